"""Was a study's rule there before its table? Read from the git history.

A study's run has a folder with `rule.md` (question, arms, sizes, seeds,
decision rule) and, later, `table.json` and `table.md`. The rule is a commit of
its own before the run, which means:

1. No commit that touches the rule has a table of that folder in its tree: the
   two never come in one commit, and a rule is not changed once there is a
   table.
2. Every commit that adds a table is a strict descendant of every commit that
   touches the rule.
3. Where a table lies in the folder, the rule beside it is the one that was
   committed.
4. A folder with a table and no rule is refused unless it is one of the studies
   older than this convention.

A commit touches a file if it differs from the file in each of its parents, so
that a merge which only brings two lines together touches nothing. A folder that
moves is a new study: move it before there is a table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dulwich.errors import NotGitRepository
from dulwich.object_store import tree_lookup_path
from dulwich.objects import Commit, ShaFile
from dulwich.repo import Repo

RULE, TABLES = "rule.md", ("table.json", "table.md")


@dataclass(frozen=True)
class History:
    """All commits behind HEAD, by their id."""

    repo: Repo
    commits: dict[bytes, Commit]
    read: dict[bytes, ShaFile] = field(default_factory=dict)  # trees, by their id

    def tree(self, name: bytes) -> ShaFile:
        if name not in self.read:
            self.read[name] = self.repo.object_store[name]
        return self.read[name]

    def blob(self, commit: bytes, path: str) -> bytes | None:
        """The id of a file in the tree of a commit."""
        try:
            root = self.commits[commit].tree
            found: bytes = tree_lookup_path(self.tree, root, path.encode())[1]
        except KeyError:
            return None
        return found

    def touching(self, path: str) -> list[bytes]:
        """Commits whose file is none of their parents'."""
        return [
            name
            for name, commit in self.commits.items()
            if all(self.blob(name, path) != self.blob(parent, path) for parent in commit.parents)
            and (commit.parents or self.blob(name, path))
        ]

    def adding(self, path: str) -> list[bytes]:
        """Commits that have the file, and no parent of theirs has."""
        return [
            name
            for name in self.touching(path)
            if self.blob(name, path)
            and not any(self.blob(parent, path) for parent in self.commits[name].parents)
        ]

    def before(self, commit: bytes) -> set[bytes]:
        """All strict ancestors."""
        found, waiting = set[bytes](), list(self.commits[commit].parents)
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += self.commits[name].parents
        return found


def read_history(root: Path) -> History | str:
    """The history of the repository at `root`, or why there is none."""
    try:
        repo = Repo(str(root))
    except NotGitRepository:
        return f"{root.name} is not a git repository (a source archive?)"
    if repo.get_shallow():
        repo.close()
        return "the clone is shallow: its history is cut off"
    try:
        head = repo.head()
    except KeyError:
        repo.close()
        return "nothing is committed yet"
    return History(
        repo, {entry.commit.id: entry.commit for entry in repo.get_walker(include=[head])}
    )


def complaints(
    root: Path, older: frozenset[str] = frozenset(), below: str = "experiments"
) -> list[str]:
    """What is wrong with the studies below `root/below`, a sentence each.
    `older`: folders that need no rule.

    Raises `ValueError` where there is no history to read.
    """
    history = read_history(root)
    if isinstance(history, str):
        raise ValueError(history)
    folders = sorted(
        {path.parent for name in (RULE, *TABLES) for path in (root / below).rglob(name)}
    )
    with history.repo:
        return [
            complaint
            for path in folders
            for folder in [path.relative_to(root).as_posix()]
            for complaint in (
                _of_study(history, root, folder)
                if (path / RULE).exists()
                else _of_no_rule(folder, older)
            )
        ]


def _of_no_rule(folder: str, older: frozenset[str]) -> Iterator[str]:
    if folder not in older:
        yield f"{folder} has a table and no {RULE}; write the rule, commit it alone, then run"


def _of_study(history: History, root: Path, folder: str) -> Iterator[str]:
    rules = history.touching(f"{folder}/{RULE}")
    for name in rules:
        for table in TABLES:
            if history.blob(name, f"{folder}/{table}"):
                yield (
                    f"{folder}: commit {_short(name)} touches {RULE} where {table} is already there"
                )
    for table in TABLES:
        for name in history.adding(f"{folder}/{table}"):
            if set(rules) - history.before(name) - {name}:
                yield (
                    f"{folder}: commit {_short(name)} adds {table} before the last commit of {RULE}"
                )
        if (root / folder / table).exists() and not _as_committed(
            history, root, f"{folder}/{RULE}"
        ):
            yield (
                f"{folder} has {table} and its {RULE} is not as it was committed; commit the rule"
                " before the run"
            )


def _as_committed(history: History, root: Path, path: str) -> bool:
    blob = history.blob(history.repo.head(), path)
    if blob is None:
        return False
    held: bytes = history.repo[blob].as_raw_string()
    return held.replace(b"\r\n", b"\n") == (root / path).read_bytes().replace(b"\r\n", b"\n")


def _short(commit: bytes) -> str:
    return commit.decode()[:8]
