"""The base of every section of a recipe: frozen, an unknown key is refused, and
so is a value of another type.

A whole number is taken where a float is wanted; infinities and NaN are not.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Names = Annotated[
    tuple[str, ...], Field(strict=False)
]  # TOML has lists only, which strictness would refuse


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def named(default: str) -> Any:
    """A choice among what is installed. Its default is left out of what is
    written, so that folders of runs from before there was a choice go on.
    """
    return Field(default, exclude_if=lambda name: name == default)
