"""Commands of PowerShell that read and write files: `Get-Content a.py`, `Set-Content -Path a.py
-Value "x"`, `Remove-Item a.py`. Names of commands and options count in any case; what is piped
in is not known.
"""

from collections.abc import Sequence
from typing import NamedTuple

from forensics.actions.python_source import FileEffects
from forensics.actions.untrusted import TABLES, first_of

_NAMES = TABLES["powershell"]
REMOVES = _NAMES["removes"]


class Told(NamedTuple):
    """The files of a command, and the text that it puts there (`None`: not said)."""

    files: FileEffects
    content: str | None


def powershell(program: str, arguments: Sequence[str]) -> Told | None:
    """What a command of PowerShell reads and writes, `None` where it is none."""
    name = program.casefold()
    if name not in (*_NAMES["reads"], *_NAMES["writes"], *REMOVES):
        return None
    given: dict[str, str] = {}
    operands: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.casefold() in (*_NAMES["paths"], *_NAMES["valued"]):
            given[word.casefold()] = next(words, "")
        elif not word.startswith("-"):
            operands.append(word)
    named = first_of(given, _NAMES["paths"])
    if named is None and name == "select-string":
        operands = operands[1:]
    paths = tuple(operands[:1]) if named is None else (named,)
    rest = operands[1:] if named is None else operands
    if name in _NAMES["reads"]:
        return Told(FileEffects(paths), None)
    puts = name in ("set-content", "add-content")
    content = given.get("-value", rest[0] if rest and puts else None) if puts else None
    return Told(FileEffects((), paths), content)
