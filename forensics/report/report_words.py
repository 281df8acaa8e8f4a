"""What the report calls things, the same in every format: the tables of `report_words.toml`."""

import tomllib
from importlib.resources import files
from typing import Final

WORDING: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (files(__package__) / "report_words.toml").read_text(encoding="utf-8")
)
