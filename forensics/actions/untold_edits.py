"""Actions that change code without saying what they put there, or in a form that is not known.

1. Editors that are driven by a script (`ed`, `vim -c`), copies of whole folders, and archives
   that are unpacked into the work.
2. Patches that stand in a file (`git apply x.patch`, `patch < x.patch`), and `git revert`.
3. Programs on the command line of another language that write files.
4. Runs of tests that write down anew what they expect (`jest -u`, `--snapshot-update`).
5. Code that is handed in as an argument of the call that ends the run.

Calls of tools that nobody knows are told by `unknown_tools`. Whoever meets one of them knows
that the run's own edits are not all there.
"""

import re

from forensics.actions.action import Action
from forensics.actions.unknown_tools import named_by
from forensics.actions.untrusted import TABLES

CODE_FILE = re.compile(
    r"\.(?:py|pyi|pyx|js|jsx|mjs|cjs|ts|tsx|c|cc|cpp|h|hpp|go|rs|java|kt|rb|php|swift|cs|scala|sh"
    r"|bats|toml|cfg|ini|ya?ml|json|snap|ipynb)$|(?:^|/)Makefile$"
)
OUTSIDE = re.compile(r"^/?(?:tmp|var/tmp|dev|proc|root/\.|home/[^/]{1,60}/\.)/?")
_NAMES = TABLES["untold"]
_UNPACKS = {
    "tar": re.compile(r"-{0,2}[a-zA-Z]{0,8}x[a-zA-Z]{0,8}|--extract|--get"),
    "bsdtar": re.compile(r"-{0,2}[a-zA-Z]{0,8}x[a-zA-Z]{0,8}"),
    "unzip": re.compile(r"(?!-\w*[lptvzZ])[^-].{0,300}"),
    "7z": re.compile("[xe]"),
    "zipfile": re.compile("-e|--extract"),
    "tarfile": re.compile("-e|--extract"),
}
_INTO = re.compile(r"(?:-C|-d|-o|--directory=?)(.{0,300})", re.S)
_COPIES = ("cp", "rsync", "mv")
_WRITERS = re.compile(
    r"writeFile|appendFile|createWriteStream|File\.(?:write|open)|IO\.write|file_put_contents"
)
_RECORDS = re.compile(
    r"--update-?[sS]napshots?|--snapshot-update|--inline-snapshot=\S+|--update-(?:golden|expect\w*)"
    r"|--force-regen|--regen-all|--bless"
)
LONGEST = 64_000
_WRITES_TEXTS = re.compile(
    r"\bwrite_text\b|\binplace\s{0,9}=|\bopen\([^\n]{0,300}?['\"](?:[wax]|r\+)[bt+]{0,2}['\"]"
)
_QUOTED = re.compile(r"['\"]([^'\"\s]{1,200})['\"]")


def changes_untold(action: Action) -> bool:
    """Whether an action changes code in a way that cannot be followed. `writes` that are
    known are the caller's.
    """
    name = action.program.rpartition("/")[2].casefold()
    words = action.arguments
    if action.kind in ("tool", "submit"):
        return action.kind == "submit" and named_by(action).code
    if name in _NAMES["editors"]:
        return any(map(may_be_code, words))
    if name in _UNPACKS:
        return _unpacks_here(action)
    if name in _COPIES:
        return _copies_folder(action)
    if any(map(_RECORDS.fullmatch, words)) or (name in _NAMES["jest"] and "-u" in words):
        return True
    if name in _NAMES["others"]:
        return not action.writes and _WRITERS.search(action.text[:LONGEST]) is not None
    return name == "git" and words[:1] == ("revert",) and not action.writes


def may_be_code(path: str) -> bool:
    """Whether what is written there may be code that is handed in."""
    return CODE_FILE.search(path) is not None and OUTSIDE.match(path) is None


def writes_texts(program: str) -> bool:
    """Whether a program in Python may write texts to files."""
    return _WRITES_TEXTS.search(program[:LONGEST]) is not None


def names_code(program: str) -> bool:
    """Whether a program names a file that may be code of the work."""
    return any(map(may_be_code, _QUOTED.findall(program[:LONGEST])))


def patch_file(action: Action) -> str | None:
    """The file that holds the patch which an action applies, `""` where it is not said; `None`
    where it applies none, or says it.
    """
    words = action.arguments
    applies = action.program == "patch" or (
        action.program == "git" and words[:1] in (("apply",), ("am",))
    )
    shows = {"--check", "--stat", "--dry-run", "--numstat", "--summary", "--abort", "--help"}
    if not applies or action.content is not None or shows.intersection(words):
        return None
    return action.reads[0] if action.reads else ""


def _unpacks_here(action: Action) -> bool:
    """Whether an archive is unpacked elsewhere than in a folder for temporary files. What it is
    told to print, or to list, is not unpacked.
    """
    name, words = action.program.rpartition("/")[2].casefold(), action.arguments
    if not any(map(_UNPACKS[name].fullmatch, words[:1] if name in ("tar", "7z") else words)):
        return False
    if name == "unzip" and any(re.fullmatch(r"-\w{0,8}[lptvzZ]\w{0,8}", word) for word in words):
        return False
    if name in ("tar", "bsdtar") and ("O" in words[0] or "--to-stdout" in words):
        return False
    places = [
        found[1] or following
        for word, following in zip(words, (*words[1:], ""), strict=True)
        if (found := _INTO.fullmatch(word))
    ]
    return not (places and OUTSIDE.match(places[-1]))


def _copies_folder(action: Action) -> bool:
    """A whole folder, from outside the work into it."""
    words = [word for word in action.arguments if not word.startswith("-")]
    if len(words) < 2 or OUTSIDE.match(words[-1]) or not OUTSIDE.match(words[0]):
        return False
    return action.program == "rsync" or any(
        re.match(r"-\w{0,8}[rRa]|--recursive|--archive", word) for word in action.arguments
    )
