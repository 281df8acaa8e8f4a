"""What a module looks for in texts, kept as data in the TOML file of its name.

1. A text is a regular expression; a list of texts is one, too, its parts alternatives. Flags
   stand at its beginning (`(?i)`).
2. `{name}` in an expression stands for the text of that name.
3. The table `words` holds sets of plain words.
"""

import re
import tomllib
from importlib.resources import files

_NAMED = re.compile(r"\{([a-z_]{2,})\}")


class Vocabulary:
    """The expressions of one module as attributes, each compiled when it is first asked for."""

    def __init__(self, module: str) -> None:
        package, _, name = module.rpartition(".")
        said = tomllib.loads((files(package) / f"{name}.toml").read_text(encoding="utf-8"))
        self.words = {key: frozenset(words) for key, words in said.pop("words", {}).items()}
        self._texts = {
            key: text if isinstance(text, str) else "|".join(text) for key, text in said.items()
        }

    def __getattr__(self, name: str) -> re.Pattern[str]:
        if name.startswith("__") or name not in self._texts:
            raise AttributeError(name)
        found = re.compile(self.text(name))
        setattr(self, name, found)
        return found

    def text(self, name: str) -> str:
        """An expression as text, with what it names put in."""
        return _NAMED.sub(lambda found: self.text(found[1]), self._texts[name])
