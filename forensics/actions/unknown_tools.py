"""Calls of tools that no table knows, and what they may have touched.

1. A call is *known* where the table of `programs.toml` has its tool, where it hands something
   in, and where its shape says all that it changes: a path with the text that is put there.
2. What an unknown call *names* is read from the values of its arguments, under any key and in
   nested JSON: paths of files, revisions of a repository, lines of code.
3. A tool whose name only reads (`view_file`, `search`) changes nothing. Any other unknown
   tool that was given a path or code may have changed it, nobody knows how.
4. A call of any tool that names a revision, or of a tool for version control that is told to
   show one, shows what commits hold in a form that nobody reads.
5. A call that gives another agent its orders (`Task`, `spawn_agent`) does what the log does not
   record.
6. Orders, prices, dates, addresses of pages and of people are no paths, so the tools of a shop
   or an airline touch neither files nor a shell.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from forensics.actions.action import Action
from forensics.actions.untrusted import TABLES, json_value

MOST_VALUES = 400  # of one call
DEEPEST = 6
LONGEST = 100_000  # characters of a value that is read as JSON, or as lines of code
FEWEST = 2  # lines of code that are code
_KNOWN = frozenset(TABLES["tools"]["known"])
_SUBMITS = frozenset(TABLES["tools"]["submits"])
_READS, _CHANGES = (frozenset(TABLES["tool words"][name]) for name in ("reads", "changes"))
_HISTORY, _SHOWS = (frozenset(TABLES["tool words"][name]) for name in ("history", "shows"))
_REACHES, _COMMANDS = (frozenset(TABLES["tool words"][name]) for name in ("reaches", "commands"))
_REMOVES, _AGENTS = (frozenset(TABLES["tool words"][name]) for name in ("removes", "agents"))
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ORDERS = ("prompt=", "instructions=", "instruction=", "task=")
_KEY = re.compile(r"[A-Za-z_][\w.-]{0,39}")
_SUFFIX = re.compile(
    r"[^\s:;,'\"()<>{}|]{0,300}[\w*]\.(?:py|pyi|pyx|js|jsx|mjs|cjs|tsx?|c|cc|cpp|h|hpp|go|rs|java"
    r"|kt|rb|php|swift|cs|scala|sh|bats|toml|cfg|ini|ya?ml|jsonl?|snap|ipynb|md|rst|txt|log|csv"
    r"|tsv|html?|css|scss|xml|sql|diff|patch|lock|lua|pl|r|jl|ex|exs|hs|ml|vue|svelte|proto|gradle"
    r"|parquet|pkl|npy|db|sqlite|env|conf|zip|tar|gz|whl)"
)
_PLACE = re.compile(r"(?:~|\.{1,2})?/[\w.@+*-]{1,100}(?:/[\w.@+*-]{1,100}){0,30}/?")
_INSIDE = re.compile(r"[A-Za-z_.][\w.@+*-]{0,100}(?:/[\w.@+*-]{1,100}){1,30}/?")
_NO_PATH = re.compile(
    r"(?:text|image|application|audio|video|multipart|America|Europe|Asia|Africa|Pacific|Atlantic"
    r"|Australia|Indian|Antarctica|Etc|US)/.*|[Nn]/[Aa]"
)
_PATH_KEY = re.compile(
    r"(?:.*[_.-])?(?:paths?|files?|file_?names?|dirs?|directory|folders?|targets?|src|dst|where|modules?"
    r"|uris?|documents?|buffers?)|.*(?:Path|File|Name|Dir|Folder)"
)
_PAGE_KEY = re.compile(r"(?i).*(?:url|endpoint|route|href|link|query|pattern|regex)s?")
_LINE = re.compile(
    r"^[ \t]{0,40}(?:(?:async )?def \w{1,80}\(|class \w{1,80}[(:{]|import \w"
    r"|from [\w.]{1,80} import |return\b|assert\b|#include\b|function \w"
    r"|(?:const|let|var) \w{1,80} =|func \w|(?:pub )?fn \w)"
)
_HEX = re.compile(r"(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}")
_REVISION = re.compile(
    r"(?:HEAD|@)(?:[~^]\d{0,4}){1,9}|(?:HEAD|ORIG_HEAD|FETCH_HEAD|stash)(?:@\{[^}\s]{1,40}\})?"
    r"|(?:refs|origin|upstream)/\S{1,200}|(?:HEAD|[0-9a-f]{7,40})\.{2,3}\S{0,200}"
)
_REVISION_KEY = re.compile(
    r"(?i)(?:.*[_.-])?(?:revs?|revisions?|commits?|commit_?(?:id|hash|sha)|sha1?|oid|tree_?ish)"
)


class Named(NamedTuple):
    """What the arguments of a call name."""

    paths: tuple[str, ...]
    revision: bool
    code: bool


def edits_unknown(action: Action) -> bool:
    """Whether a call may have changed files in a way that nobody knows."""
    if runs_script(action):
        return True
    if not _is_unknown(action) or only_reads(action.program):
        return False
    named = named_by(action)
    return bool(named.paths) or named.code


def shows_unknown(action: Action) -> bool:
    """Whether a call may show what commits hold, in a form that nobody reads."""
    if not _is_call(action):
        return False
    if runs_script(action):
        return True
    words = _words_of(action.program)
    if words & _HISTORY and words & _SHOWS:
        return True
    if words & _HISTORY and any(
        value.casefold() in _SHOWS for _, value in _values_of(action) if len(value) < 40
    ):
        return True
    return named_by(action).revision


def runs_script(action: Action) -> bool:
    """Whether a call runs a script that gives commands to a shell, which it puts together."""
    return _is_call(action) and any("_command(" in value for _, value in _values_of(action))


def calls_agent(action: Action) -> bool:
    """Whether a call gives another agent its orders."""
    ordered = any(argument.startswith(_ORDERS) for argument in action.arguments)
    return _is_call(action) and ordered and bool(_words_of(action.program) & _AGENTS)


def touches_files(action: Action) -> bool:
    """Whether an action has to do with files, a shell, code or a repository, as far as it tells."""
    if action.kind not in ("tool", "submit") or action.reads or action.writes:
        return True
    if action.kind == "submit":
        return False
    if _words_of(action.program) & (_REACHES | _HISTORY) or calls_agent(action):
        return True
    named = named_by(action)
    given = any(key in _COMMANDS and value.strip() for key, value in _values_of(action))
    return bool(named.paths or named.code or named.revision or given)


def unknown_tools(actions: Sequence[Action]) -> tuple[str, ...]:
    """The names of the tools whose calls may have changed files or shown commits, and that
    nobody can read, each once, in order.
    """
    found = (one.program for one in actions if edits_unknown(one) or shows_unknown(one))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def named_by(action: Action) -> Named:
    """The paths, revisions and lines of code among the arguments of a call."""
    values = tuple(_values_of(action))
    paths = (value for key, value in values if _is_path(key, value))
    lines = (line[:400] for _, value in values for line in value[:LONGEST].split("\n"))
    return Named(
        paths=tuple(dict.fromkeys((*action.reads, *action.writes, *paths))),
        revision=any(_is_revision(action.program, key, value) for key, value in values),
        code=sum(_LINE.match(line) is not None for line in lines) >= FEWEST,
    )


def removes_file(action: Action) -> bool:
    """Whether a call takes a whole file away: its name says so, and it was given a path alone."""
    words = _words_of(action.program)
    alone = action.kind == "edit" and action.content is None and len(action.arguments) <= FEWEST
    return alone and bool(words & _REMOVES) and _is_call(action) and not _numbered(action)


def _is_call(action: Action) -> bool:
    """A call by its name and arguments; what a harness put into its shell is none."""
    return action.kind in ("tool", "edit") and action.text.startswith(f"{action.program}(")


def _is_unknown(action: Action) -> bool:
    if not _is_call(action):
        return False
    name = re.split(r"__|\.|:", action.program)[-1].casefold()
    if name in _KNOWN or name in _SUBMITS:
        return False
    told = action.content is not None or removes_file(action)
    return not (action.kind == "edit" and told and not _numbered(action))


def _numbered(action: Action) -> bool:
    """Whether a change is said by numbers of lines, so that what it takes away is not."""
    return any(
        re.search(r"(?i)start|end|line|from|to\b|pos|offset|range", key) and value.strip().isdigit()
        for key, value in _values_of(action)
    )


@lru_cache(maxsize=2048)
def _words_of(name: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORDS.findall(name[:200]))


def only_reads(name: str) -> bool:
    """Whether a tool's own name says that it looks at something, and nothing else."""
    words = _words_of(re.split(r"__|\.|:", name)[-1])
    return bool(words & _READS) and not words & _CHANGES


def only_looked(actions: Sequence[Action]) -> bool:
    """Whether every action is a call of a tool that only looks at something, by its name."""
    return all(_is_call(one) and only_reads(one.program) for one in actions)


def _values_of(action: Action) -> Iterator[tuple[str, str]]:
    """Every text and number among the arguments, with the name that it stands under."""
    left = MOST_VALUES
    for argument in action.arguments:
        key, equals, value = argument.partition("=")
        named = (key, value) if equals and _KEY.fullmatch(key) else ("", argument)
        for one in _leaves(*named, DEEPEST):
            if not left:
                return
            left -= 1
            yield one


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        inner = _inner(value) if depth else None
        if inner is None:
            yield key, value
            return
        value = inner
    if isinstance(value, dict) and depth:
        for name, one in value.items():
            yield from _leaves(str(name), one, depth - 1)
    elif isinstance(value, list) and depth:
        for one in value:
            yield from _leaves(key, one, depth - 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, str(value)


def _inner(text: str) -> dict[str, Any] | list[Any] | None:
    """The JSON that a text holds, `None` where it is another text."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > LONGEST:
        return None
    found = json_value(text)
    return found if isinstance(found, dict | list) else None


def _is_path(key: str, value: str) -> bool:
    value = value.strip()
    if len(value) > 400 or "://" in value or "@" in value.partition("/")[0]:
        return False
    if _NO_PATH.fullmatch(value) or _PAGE_KEY.fullmatch(key):
        return False
    if _SUFFIX.fullmatch(value) or _PLACE.fullmatch(value):
        return True
    if not _INSIDE.fullmatch(value):
        return False
    return value.count("/") > 1 or _PATH_KEY.fullmatch(key) is not None


def _is_revision(name: str, key: str, value: str) -> bool:
    value = value.strip()[:300]
    told = _REVISION_KEY.fullmatch(key) is not None or bool(_words_of(name) & _HISTORY)
    if _REVISION.fullmatch(value):
        return told or re.match(r"HEAD[~^@]|refs/", value) is not None
    return told and _HEX.fullmatch(value.partition(":")[0]) is not None
