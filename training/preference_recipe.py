"""Recipes of preference training: what `forensics train` reads where the file has a `[preference]` section."""

from pathlib import Path
from typing import Any

from pydantic import Field

from training.objective import Objective
from training.recipe import ComputeSection, LoraSection, PolicySection, Recipe, parse_as, parse_recipe, read_toml
from training.sections import Section


class PreferenceSection(Section):
    """The pairs and the schedule.

    `pairs`: a file of JSON lines (`forensics.records.PreferencePair`), from the working directory on. They are passed
    over `epochs` times, each time in another order, with an optimizer step for every `minibatch` pairs; at most `rows`
    rows (two for a pair) go through the model at once. `beta`: weight of the log-ratio to the start; the
    smaller, the further the policy may go. `temperature`: log-probabilities are those at this temperature.
    `any_policy`: also take pairs that say they are another policy's.
    """

    pairs: str
    beta: float = Field(0.05, gt=0)
    epochs: int = Field(1, ge=1)
    minibatch: int = Field(16, ge=1)
    rows: int = Field(64, ge=2)
    learning_rate: float = Field(1e-5, gt=0, le=1)
    weight_decay: float = Field(0.0, ge=0)
    gradient_norm: float = Field(1.0, gt=0)
    temperature: float = Field(1.0, gt=0)
    any_policy: bool = False
    save_every: int = Field(100, ge=1)


class PreferenceRecipe(Section):
    """One preference run, but for its seed and its output folder."""

    policy: PolicySection
    preference: PreferenceSection
    compute: ComputeSection = ComputeSection()
    lora: LoraSection | None = None

    @property
    def objective(self) -> Objective:
        """Without a divergence term: a machine need keep no reference, which is scored once before the first step."""
        return Objective()


def parse_preference_recipe(content: dict[str, Any], origin: str) -> PreferenceRecipe:
    """A recipe from a dictionary. Raises `UserError` for unknown or bad keys."""
    return parse_as(PreferenceRecipe, content, origin)


def read_any_recipe(path: Path) -> Recipe | PreferenceRecipe:
    """A recipe of either kind. Raises `UserError` for a missing file, broken TOML, and unknown or bad keys."""
    content = read_toml(path)
    parse = parse_preference_recipe if "preference" in content else parse_recipe
    return parse(content, str(path))
