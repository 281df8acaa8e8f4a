"""The sentences of the score section: the tables of `score_words.toml`."""

import tomllib
from importlib.resources import files
from typing import Final

WORDS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (files(__package__) / "score_words.toml").read_text(encoding="utf-8")
)
