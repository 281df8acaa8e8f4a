"""Quotes and escapes of the shell, undone."""

import re
from typing import Final

MOST_BRACES: Final = 64
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "0": "\0"}


def unescaped(text: str) -> str:
    """A word outside quotes: a backslash keeps the next character, and joins lines."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(\n|.)", lambda found: "" if found[1] == "\n" else found[1], text, flags=re.S)


def unescaped_in_string(text: str) -> str:
    """Within double quotes a backslash only keeps `$`, a backtick, `"`, itself and a line's end."""
    return re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], text) if "\\" in text else text


def c_escapes(text: str) -> str:
    """`\\n`, `\\t`, `\\x41` and the like, as in `$'...'`, `echo -e` and `printf`."""
    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2] if found[2] in "\\'\"" else found[0])
    return re.sub(r"\\(?:x([0-9a-fA-F]{1,2})|(.))", one, text, flags=re.S) if "\\" in text else text


def braces(word: str) -> list[str]:
    """`{a,b}.py` as `a.py` and `b.py`; one that stands alone (`{}`, `{x}`) is text."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one := waiting.pop(0))
        if found is None or len(done) + len(waiting) >= MOST_BRACES:
            done.append(one)
        else:
            waiting += [one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")]
    return done
