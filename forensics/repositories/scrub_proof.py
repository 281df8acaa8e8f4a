"""The proof that a scrubbed copy holds a commit's past and nothing else.

1. The objects that lie in it, packed or loose, are those that the commit and its tags reach.
2. `git fsck --full --strict` finds each one whole. What it says of an old commit's form is the
   history's own; what it says of missing or unreached objects is a failure.
3. Its git folder holds no file but those that are expected, and its refs are these.
4. Its files are the commit's tree: each one read again and compared, and no other file.
"""

import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forensics.repositories.git import environment, git_command, run_git

EXPECTED: Final = re.compile(
    r"HEAD|config|index|packed-refs|shallow|refs/heads/.+"
    r"|objects/pack/pack-[0-9a-f]+\.(pack|idx|rev)"
)
CONFIG: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase"
    r"|precomposeunicode)=(\d|true|false)|extensions\.objectformat=sha256"
)


class NotProved(Exception):
    """The copy is not what it should be: a failure of ours, and no copy is left."""


@dataclass(frozen=True)
class Copy:
    """What a copy should be: `tags` by name, `shallow` the commits where its history ends."""

    folder: Path
    commit: str
    branch: str
    tags: dict[str, str]
    shallow: list[str]

    def git(self, *arguments: str) -> str:
        return os.fsdecode(run_git(self.folder / ".git", *arguments))


def prove(copy: Copy, notes: list[str]) -> Counter[str]:
    """How many objects of each kind it holds. Raises `NotProved`, and `GitFailed` where the
    source's own objects are at fault.
    """
    held = _objects(copy)
    _check_objects(copy, set(held))
    if odd := _odd_forms(copy):
        notes.append(f"git fsck finds {odd} objects of an odd form in the history; they stay")
    _check_refs(copy, set(held))
    _check_files(copy)
    _check_tree(copy)
    return Counter(held.values())


def _objects(copy: Copy) -> dict[str, str]:
    how = "--batch-check=%(objectname) %(objecttype)"
    told = copy.git("cat-file", "--batch-all-objects", "--unordered", how)
    return dict(line.split(" ") for line in told.splitlines())


def _check_objects(copy: Copy, held: set[str]) -> None:
    tips = [copy.commit, *copy.tags.values()]
    asked = "".join(f"{tip}\n" for tip in tips).encode()
    words = ("rev-list", "--objects", "--no-object-names", "--stdin")
    reached = set(run_git(copy.folder / ".git", *words, stdin=asked).decode().split())
    if held != reached:
        raise NotProved(f"{len(held ^ reached)} objects of the copy are not those of the commit")


def _odd_forms(copy: Copy) -> int:
    """How many objects have a form that git would not write now; what else fsck says fails."""
    words = ("fsck", "--full", "--strict", "--no-reflogs", "--unreachable", "--no-progress")
    git_dir = copy.folder / ".git"
    done = subprocess.run(
        git_command(git_dir, *words), capture_output=True, env=environment(), cwd=git_dir
    )
    lines = os.fsdecode(done.stdout + done.stderr).splitlines()
    odd = [line for line in lines if line.startswith(("error in ", "warning in "))]
    if len(odd) < len(lines) or (done.returncode and not odd):
        raise NotProved(f"git fsck of the copy says {sorted(set(lines) - set(odd))[:1]}")
    return len(odd)


def _check_refs(copy: Copy, held: set[str]) -> None:
    told = copy.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    names = copy.tags | {f"refs/heads/{copy.branch}": copy.commit}
    if dict(line.split(" ") for line in told) != names:
        raise NotProved("the refs of the copy are not those that were written")
    settings = copy.git("config", "--local", "--list").splitlines()
    if "core.bare=false" not in settings:
        raise NotProved("the copy is bare")
    if odd := [line for line in settings if not CONFIG.fullmatch(line)]:
        raise NotProved(f"the config of the copy holds {odd[0]}")
    if not set(copy.shallow) <= held:
        raise NotProved("the shallow boundary names commits that are not there")


def _check_files(copy: Copy) -> None:
    base = copy.folder / ".git"
    files = [path for path in base.rglob("*") if path.is_symlink() or not path.is_dir()]
    for path in files:
        name = path.relative_to(base).as_posix()
        if path.is_symlink() or not path.is_file() or not EXPECTED.fullmatch(name):
            raise NotProved(f"the git folder of the copy holds {name}")


def _check_tree(copy: Copy) -> None:
    """With an index that knows no dates or sizes, so that git reads every file."""
    index = copy.folder / ".git" / "index"
    kept = index.read_bytes()
    try:
        index.unlink()
        copy.git("read-tree", copy.commit)
        words = ("status", "--porcelain", "-z", "-uall", "--ignored", "--ignore-submodules=all")
        told = run_git(copy.folder / ".git", *words, work_tree=copy.folder)
    finally:
        index.write_bytes(kept)
    changed = [row for row in told.split(b"\0") if row and not _as_checked_out(copy, row)]
    if changed:
        raise NotProved(f"{len(changed)} files are not those of the commit's tree: {changed[0]!r}")


def _as_checked_out(copy: Copy, row: bytes) -> bool:
    """Whether a file that git calls changed is, by bytes, what git would check out: a file with
    line ends that its own attributes would not give it.
    """
    name = os.fsdecode(row[3:])
    path = copy.folder / name
    if row[:2] != b" M" or path.is_symlink() or not path.is_file():
        return False
    mode = copy.git("ls-tree", copy.commit, name)[:6]
    if bool(path.stat().st_mode & 0o100) != (mode == "100755"):
        return False
    words = ("cat-file", "--filters", f"{copy.commit}:{name}")
    return run_git(copy.folder / ".git", *words, work_tree=copy.folder) == path.read_bytes()
