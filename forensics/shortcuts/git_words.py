"""A git command's words: its subcommand, and which of them name commits.

1. Options and their values are put aside, each subcommand with its own.
2. Where git takes a commit at a place (`cherry-pick X`, `show X`, `checkout X -- a`,
   `restore --source=X`), the word there names one, whatever it is called.
3. Elsewhere a word names a commit where its form says so (HEAD, a hash, a remote, a
   stash, a version), or where git listed it as a branch or a tag (`known`).
4. What the shell puts in (`$commit`) names a commit that is not told.
"""

import re
from collections.abc import Collection

from forensics.actions import Action
from forensics.actions.programs import Read, read_options

REACHING = re.compile(
    r"--(?:all|branches|remotes|tags|reflog|walk-reflogs|glob|exclude|alternate-refs)(?:=.*)?|-g",
    re.S,
)
HEX = re.compile(r"[0-9a-f]{7,40}")
HEAD = re.compile(r"(?:HEAD|@)(?:[~^]\d{0,4})*")
VERSION = re.compile(r"(?:refs/tags/)?(?:[A-Za-z][\w.]*[-/_])?v?(\d+(?:\.\d+)+)[\w.-]*")
UNTOLD = "$"  # a commit that the shell puts in
_FAR = re.compile(
    r"(?:refs/.*|(?:origin|upstream)(?:/.*)?|FETCH_HEAD|ORIG_HEAD|MERGE_HEAD|stash(?:@\{\d+\})?|(?:HEAD|@)@\{.*"
    r"|(?:[\w.]+-)?v?\d+\.\d[\w.]*)",
    re.S,
)
_RANGE = re.compile(r"[\w/@^~-]+\.{2,3}[\w/@^~.-]*|\.\.\w[\w-]*")
_ADDED = re.compile(r"(?:\^(?:0|\{\w*\}|!)|~0|[~^]\d{0,4})+$")
_VALUED = {
    "restore": ("-s", "--source"),
    "checkout": ("-b", "-B", "--orphan"),
    "switch": ("-c", "-C", "--orphan"),
    "worktree": ("-b", "-B"),
    "cherry-pick": ("-m", "-X"),
    "merge": ("-m", "-s", "-X"),
    "rebase": ("--onto", "-s", "-X"),
    "archive": ("-o", "--prefix"),
    "format-patch": ("-o", "--output-directory"),
}
_LOG = ("-n", "-S", "-G", "-L", "--author", "--grep", "--since", "--until", "--max-count")
_FIRST = frozenset(  # git takes a commit as the first operand
    ("show", "cherry-pick", "merge", "switch", "format-patch", "archive", "read-tree", "ls-tree")
)
_STASHED = {"show", "apply", "pop", "branch"}


def subcommand(action: Action) -> str:
    """`log` of `git log`; `""` for what is no command of git."""
    return action.arguments[0] if action.program == "git" and action.arguments else ""


def reaches_beyond_head(action: Action) -> bool:
    """Whether a log goes beyond HEAD's own history."""
    return any(REACHING.fullmatch(word) for word in action.arguments)


def words_of(action: Action) -> Read:
    """Options and operands of a git command, but for what stands after `--`."""
    rest = action.arguments[1:]
    rest = rest[: rest.index("--")] if "--" in rest else rest
    return read_options(rest, _VALUED.get(subcommand(action), _LOG))


def revisions(action: Action, known: Collection[str] = ()) -> tuple[str, ...]:
    """The words that name commits."""
    command, read = subcommand(action), words_of(action)
    operands, certain = list(read.operands), list(read.values("-s", "--source"))
    if command == "restore":
        operands = []
    if command in _FIRST:
        certain += operands[:1]
    elif command == "cat-file":
        certain += operands[-1:]
    elif command == "worktree":
        certain += operands[2:3] if operands[:1] == ["add"] else []
    elif "--" in action.arguments or (command == "checkout" and _start(read)):
        certain += operands[: 1 if command == "checkout" else None]
    elif command == "stash":
        certain += (operands[1:2] or ["stash@{0}"]) if set(operands[:1]) & _STASHED else []
        operands = []
    if action.text.startswith("xargs ") and not certain:
        certain.append(UNTOLD)
    return tuple(
        dict.fromkeys(
            word for word in (*certain, *operands) if word in certain or names(word, known)
        )
    )


def _start(read: Read) -> bool:
    """Whether the first operand of `checkout` is a commit: files follow, or a new branch
    starts there.
    """
    made = read.has("-b", "-B", "--orphan", "--detach", "--track")
    return made or (len(read.operands) > 1 and not _path(read.operands[0]))


def _path(word: str) -> bool:
    """Whether a word looks like a file rather than a branch."""
    return word in (".", ":/") or re.search(r"[^\d.]\.[A-Za-z]\w{0,6}$", word) is not None


def names(word: str, known: Collection[str] = ()) -> bool:
    """Whether a word names a commit, by its form or since git listed it."""
    return (
        word.startswith((UNTOLD, "`"))
        or _RANGE.fullmatch(word) is not None
        or any(
            HEAD.fullmatch(end)
            or HEX.fullmatch(bare(end))
            or _FAR.fullmatch(end)
            or bare(end) in known
            for end in ends(word)
        )
    )


def ends(revision: str) -> list[str]:
    """What a revision names: the ends of a range, the commit of `REVISION:PATH`."""
    if revision.startswith((UNTOLD, "`")):
        return [revision]
    return [end for end in re.split(r"\.{2,3}", revision.split(":", 1)[0].lstrip("^")) if end]


def bare(end: str) -> str:
    """A name without what leads from it to other commits (`~2`, `^`)."""
    return _ADDED.sub("", end)


def same_commit(end: str) -> bool:
    """Whether what is added to a name leads nowhere else (`^0`, `^{}`)."""
    added = end[len(bare(end)) :]
    return re.fullmatch(r"(?:\^(?:0|\{\w*\}|!)|~0)*", added) is not None


def version(name: str) -> tuple[int, ...] | None:
    """The numbers of a version's name (`v3.1.0`), `None` where it is none."""
    found = VERSION.fullmatch(name)
    return tuple(int(part[:9]) for part in found[1].split(".")) if found else None
