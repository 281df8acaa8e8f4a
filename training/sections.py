"""The base of every section of a recipe: frozen, an unknown key is refused, and
so is a value of another type. What is amiss is said in one sentence.

A whole number is taken where a float is wanted; infinities and NaN are not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from forensics.errors import UserError
from forensics.records import first_amiss, parse_json, read_text

Names = Annotated[
    tuple[str, ...], Field(strict=False)
]  # TOML has lists only, which strictness would refuse


MOST: Final = 1_000_000  # what is above is a slip, which would train without an end
NO_BOUND: Final = 1_000_000_000  # of a number that bounds something else


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Kind = TypeVar("Kind", bound=Section)


def as_text(value: Any) -> Any:
    """A number or a boolean as TOML writes it: `turns = 2` means `turns = "2"`."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


Text = Annotated[str, BeforeValidator(as_text)]


def later(default: Any, **limits: Any) -> Any:
    """A key that was not there from the start, such as a choice among what is
    installed. Its default is left out of what is written, so that folders of runs
    from before there was a choice go on.
    """
    return Field(default, exclude_if=lambda value: value == default, **limits)


def parse_as(kind: type[Kind], content: dict[str, Any], origin: str) -> Kind:
    """A recipe of some kind. Raises `UserError` for unknown or bad keys;
    `origin` is where they come from.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise UserError(f"recipe {origin}: {sentence(error, kind)}") from None


def read_lines(path: Path, kind: type[Kind], cure: str) -> Iterator[tuple[int, Kind, Any]]:
    """The rows of a file of JSON lines: number of the line, row, and its value as it was
    written. Raises `UserError` that names the first line which is none.
    """
    text = read_text(path.expanduser(), "", cure, encoding="utf-8-sig")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path.name} line {number}"
        try:
            value = parse_json(line, parse_constant=_no_constant)
        except ValueError as error:
            raise UserError(f"{where} is not valid JSON ({error})") from None
        if not isinstance(value, dict):
            raise UserError(f"{where}: a row must be a JSON object")
        try:
            yield number, kind.model_validate(value), value
        except ValidationError as error:
            raise UserError(f"{where}: {sentence(error, kind)}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def sentence(error: ValidationError, kind: type[Section]) -> str:
    """The first thing amiss in a section."""
    if ("preference",) in [one["loc"] for one in error.errors(include_url=False)]:
        return "[preference] is gone; pairs train in TRL (`trl_trainer`, docs/training.md)"
    return first_amiss(error, kind)
