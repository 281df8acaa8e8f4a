"""A steering experiment as a file: what is changed, how strongly, where, in which
policy, and what is predicted of it. Light at import: no torch.

1. A key means what the option of `forensics steer` of that name means; options are an
   experiment that predicts nothing (`of_options`). Sets of features, strengths and positions
   (`at`) may be several: every combination is run.
2. Paths are read from the folder of the file on, so that file and inputs travel together.
3. What is cited is the SHA-256 of the file's bytes (what `sha256sum` prints). The
   prediction stands in the file, so it cannot be changed afterwards under the same hash.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.records import Record, parse_toml, require_file

CURE: Final = "give an experiment such as examples/steering/leak.toml"
FEWEST_RANDOM: Final = 19  # of which none may do as much, for 1 in 20
STRENGTHS: Final = {"ablate": (0.5, 1.0, 2.0), "scale": (0.0, 0.5, 2.0), "add": (0.5, 1.0, 2.0)}
WHOLE: Final = {"ablate": 1.0, "scale": 0.0, "add": 1.0}  # what the feature writes, taken or given
SETTINGS: Final = tuple(one.name for one in fields(SamplingSettings))
COMPONENTS: Final = re.compile(r"pca:([1-9]\d*)")


def _several(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _set_name(value: Any) -> Any:
    """A set of latents as one text: 12, [12, 17] and "12,17" are named alike."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, int) else value


def _sets(value: Any) -> Any:
    """`[12, 17]` is one set of two latents; a list of texts or lists is several sets."""
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return [_set_name(value)] if value else []
    return [_set_name(one) for one in _several(value)]


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool | int | float) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_several)]
Sets = Annotated[tuple[str, ...], BeforeValidator(_sets), Field(min_length=1)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_several)]
Components = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_several)]


class Predicted(Record):
    """`[predicts]`: `effect` on the measure, paired by task, against the same policy
    unsteered. `at_least`: its least size (up, down), `at_most` its largest (none).
    `beyond_random`: that no more than one in twenty random directions of equal length
    does as much is part of it. `features`, `strength`, `at`: which of several it is of;
    without them the first set, at the first position, at the strength that takes away (or
    adds) what the features write, or else at the last.
    """

    effect: Literal["up", "down", "none"]
    at_least: float | None = Field(None, gt=0)
    at_most: float | None = Field(None, gt=0)
    beyond_random: bool = True
    features: Annotated[str | None, BeforeValidator(_set_name)] = None
    strength: float | None = None
    at: str | None = None

    @model_validator(mode="after")
    def _has_its_size(self) -> Self:
        wanted, other = ("at_most", "at_least")[:: 1 if self.effect == "none" else -1]
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(
                f'an effect "{self.effect}" is predicted with {wanted}, a size in units of the'
                f" measure such as {wanted} = 0.2"
            )
        return self


class SideEffects(Record):
    """`[side_effects]`: what else changes. `elsewhere`: the world in which success is
    measured too: `scrubbed` (this one without its channels), `none`, or the name of an
    installed one with its `options`. `texts`: a file of harmless texts, as `forensics diff
    --texts` takes them; of its first `tokens` tokens the KL divergence is told.
    """

    elsewhere: str = "scrubbed"
    options: dict[str, Annotated[str, BeforeValidator(_text)]] = {}
    texts: str | None = None
    tokens: int = Field(20_000, ge=1)


class ExperimentTable(Record):
    """The whole file. `project_out`: numbers of principal components of the models'
    difference to project out beside. `refuse`: kinds of action that are refused beside; by
    default those that the measure counts. `feature_controls`: random sets of latents of equal
    activity, beside what the prediction is of. `random_everywhere`: random directions at every
    strength, instead of at that of the prediction alone.
    """

    model_config = ConfigDict(populate_by_name=True)

    before: str | None = None
    after: str | None = None
    env: str | None = None
    env_option: dict[str, Annotated[str, BeforeValidator(_text)]] = {}
    dictionary: str | None = None
    latents: str | None = None
    site: str | None = None
    features: Sets
    measure: str | None = None
    mode: Literal["ablate", "scale", "add"] = "ablate"
    acting: Literal["before", "after"] = Field("after", alias="in")
    encode_from: Literal["both", "own"] = "both"
    strengths: Numbers = ()
    at: Texts = ("deciding",)
    controls: int = Field(20, ge=0)
    feature_controls: int = Field(0, ge=0)
    random_everywhere: bool = False
    project_out: Components | None = None
    refuse: Texts | None = None
    keep_outliers: bool = False
    tasks: int = Field(200, ge=2)
    choosing: int = Field(100, ge=2)
    samples: int = Field(4, ge=1)
    seed: int = Field(0, ge=0)
    sampling: dict[str, int | float] = {}
    predicts: Predicted | None = None
    side_effects: SideEffects = SideEffects()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if unknown := sorted(set(self.sampling) - set(SETTINGS)):
            raise ValueError(
                f"unknown key '{unknown[0]}' in [sampling]; known: {', '.join(SETTINGS)}"
            )
        components = [name for name in self.features if COMPONENTS.fullmatch(name)]
        if self.dictionary is None and len(components) < len(self.features):
            raise ValueError(
                "latents are those of a dictionary; add dictionary, a folder that `forensics diff`"
                ' wrote, or test components of the difference: features = "pca:2"'
            )
        if components and self.mode == "add":
            raise ValueError(f'{components[0]} is taken out, not added; use mode = "ablate"')
        if not self.dictionary and not self.site:
            raise ValueError('without a dictionary add site, such as "blocks.1.hook_resid_post"')
        return self

    @model_validator(mode="after")
    def _predicts_what_is_run(self) -> Self:
        if (said := self.predicts) is None:
            return self
        if self.measure is None:
            raise ValueError('a prediction is of a measure; add measure, such as "success"')
        for name, known in (("features", self.features), ("strength", self.tried), ("at", self.at)):
            if (value := getattr(said, name)) is not None and value not in known:
                told = ", ".join(f"{one:g}" if name == "strength" else str(one) for one in known)
                raise ValueError(f"predicts.{name} is {value} and is not run; run are: {told}")
        if said.beyond_random and said.effect != "none" and self.controls < FEWEST_RANDOM:
            raise ValueError(
                f"{self.controls} random directions cannot show that the effect is beyond theirs;"
                f" use controls = {FEWEST_RANDOM} or more, or predicts.beyond_random = false"
            )
        return self

    @property
    def places(self) -> dict[str, str | None]:
        """The folders of both checkpoints, as they were written."""
        return {"before": self.before, "after": self.after}

    @property
    def tried(self) -> tuple[float, ...]:
        """The strengths, each once, rising."""
        return tuple(sorted(set(self.strengths or STRENGTHS[self.mode])))

    @property
    def projected(self) -> tuple[int, ...]:
        """How many components are projected out beside."""
        if self.project_out is None:
            return () if self.mode == "add" else (2,)
        return self.project_out

    @property
    def told_of(self) -> tuple[str, float, str]:
        """Set, strength and position that the prediction and the summary are of."""
        said = self.predicts
        whole = WHOLE[self.mode] if WHOLE[self.mode] in self.tried else self.tried[-1]
        strength = said.strength if said and said.strength is not None else whole
        return (
            (said and said.features) or self.features[0],
            strength,
            (said and said.at) or self.at[0],
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A file that was read: where it lies, its bytes and their SHA-256, what it says."""

    path: Path
    content: bytes
    sha256: str
    table: ExperimentTable

    def place(self, name: str) -> Path:
        """A path of the file, from its folder on."""
        return self.path.parent / Path(name).expanduser()


@dataclass(frozen=True, kw_only=True)
class SteeringConfig:
    """What options and Python say beside features and tasks, as keys of a file. `mode`: what is
    done, `acting`: in which model. `strengths`: all are run (empty: by mode). `controls`: random
    directions; `feature_controls`: random sets of latents. `measure`: `success`, `channel:NAME`,
    `kind:NAME`, ... (`None`: the channel that differs most). `encoding`: see `activation_edits`.
    """

    mode: str = "ablate"
    acting: str = "after"
    strengths: tuple[float, ...] = ()
    controls: int = 20
    feature_controls: int = 5
    measure: str | None = None
    encoding: str = "both"


def of_options(config: SteeringConfig, **keys: Any) -> Experiment:
    """The experiment that options state, as if a file of them lay in this folder. Its bytes hold
    what is not as ever, but not where things lie. Raises `UserError` for what cannot be meant.
    """
    asked = {**vars(config), **keys, "encode_from": config.encoding}
    asked = {name: value for name, value in asked.items() if value is not None}
    del asked["encoding"]
    try:
        table = ExperimentTable.model_validate(asked)
    except ValidationError as error:
        raise UserError(_amiss(error)) from None
    stated = table.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"dictionary", "latents"}
    )
    options = stated.pop("env_option", {})
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in stated.items()]
    lines += ["[env_option]"] * bool(options)
    lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in options.items()]
    content = "".join(f"{line}\n" for line in lines).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    return Experiment(path=Path("experiment.toml"), content=content, sha256=sha256, table=table)


def read_experiment(path: Path) -> Experiment:
    """Raises `UserError` for a missing file, broken TOML, and what cannot be meant."""
    require_file(path, "the experiment ", CURE)
    try:
        content = path.read_bytes()
        table = ExperimentTable.model_validate(parse_toml(content.decode()))
    except OSError as error:
        raise UserError(
            f"the experiment {path} cannot be read ({error.strerror}); {CURE}"
        ) from None
    except ValidationError as error:
        raise UserError(f"the experiment {path}: {_amiss(error)}") from None
    except ValueError as error:
        raise UserError(f"the experiment {path} is not valid TOML: {error}; mend it") from None
    sha256 = hashlib.sha256(content).hexdigest()
    return Experiment(path=path, content=content, sha256=sha256, table=table)


def _amiss(error: ValidationError) -> str:
    """The first thing amiss; an unknown key before a missing one, of which it most often
    is a misspelling.
    """
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return _unknown(where)
    if first["type"] == "missing":
        return f"{'.'.join(where)} is missing; add it"
    value, said = first.get("input"), first["msg"].removeprefix("Value error, ")
    given = f", not {value!r}" if isinstance(value, str | int | float) else ""
    return f"{'.'.join(where)}: {said}{given}; mend it" if where else said


def _unknown(where: Sequence[str]) -> str:
    *within, key = where
    kind: Any = ExperimentTable
    for part in within:
        found = kind.model_fields[part].annotation
        kind = next((one for one in get_args(found) if hasattr(one, "model_fields")), found)
    known = [field.alias or name for name, field in kind.model_fields.items()]
    meant = "".join(f", did you mean '{name}'?" for name in get_close_matches(key, known, 1))
    place = f" in [{'.'.join(within)}]" if within else ""
    return f"unknown key '{key}'{place}{meant or ';'} known: {', '.join(known)}"
