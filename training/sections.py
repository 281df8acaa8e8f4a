"""The base of every section of a recipe: frozen, and an unknown key is refused."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
