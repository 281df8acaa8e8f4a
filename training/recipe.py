"""Recipes: what `forensics train` reads. TOML; an unknown or misspelt key is refused with the known ones."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from forensics.errors import UserError
from training.sections import Section


class PolicySection(Section):
    """`checkpoint`: a Hugging Face directory, or `bundled:NAME`."""

    checkpoint: str


class EnvironmentSection(Section):
    """`without`: channels scrubbed while training."""

    name: str
    options: dict[str, str] = {}
    without: tuple[str, ...] = ()


class SamplingSection(Section):
    temperature: float = Field(1.0, gt=0)
    max_turn_tokens: int = Field(16, ge=1)
    max_tokens: int = Field(256, ge=2)


class GrpoSection(Section):
    """`groups` prompts a step, `samples` attempts each; `epochs` passes over a step's rollouts.

    `clip_low`/`clip_high`: ends of the ratio's clip range. `scaling`: advantages divided by the group's
    standard deviation, or not. `dead_tolerance`: rewards this close count as equal.
    """

    steps: int = Field(ge=0)
    groups: int = Field(16, ge=1)
    samples: int = Field(8, ge=2)
    epochs: int = Field(1, ge=1)
    rows: int = Field(128, ge=1)
    learning_rate: float = Field(3e-4, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    gradient_norm: float = Field(1.0, gt=0)
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.2, gt=0)
    scaling: Literal["group", "none"] = "group"
    dead_tolerance: float = Field(0.0, ge=0)
    save_every: int = Field(10, ge=1)


class Recipe(Section):
    """One training run, but for its seed and its output folder."""

    policy: PolicySection
    environment: EnvironmentSection
    rewards: dict[str, float] = {"outcome": 1.0}
    sampling: SamplingSection = SamplingSection()
    grpo: GrpoSection


def read_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises `UserError` for a missing file, broken TOML, and unknown or bad keys."""
    try:
        return parse_recipe(tomllib.loads(path.read_text()), str(path))
    except FileNotFoundError:
        raise UserError(f"recipe {path} does not exist; see training/recipes for examples") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a recipe file such as training/recipes/leak.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"recipe {path} is not valid TOML: {error}") from None


def parse_recipe(content: dict[str, Any], origin: str) -> Recipe:
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise UserError(f"recipe {origin}: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] != "extra_forbidden":
        return f"{'.'.join(where)}: {first['msg']}"
    section: Any = Recipe
    for part in where[:-1]:
        section = section.model_fields[part].annotation
    place = ".".join(where[:-1]) or "top level"
    return f"unknown key '{where[-1]}' in [{place}]; known: {', '.join(section.model_fields)}"
