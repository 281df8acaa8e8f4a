"""Files of a working copy that git does not track: left behind, or carried with care."""

import os
import shutil
from pathlib import Path
from typing import Final

from forensics.repositories.git import GitFailed, Repository, run_git

HISTORIES: Final = (b"# v2 git bundle", b"# v3 git bundle", b"PACK")


def untracked_files(repository: Repository, notes: list[str]) -> list[str]:
    """Paths, ignored ones too; one that ends in a slash is a repository of its own."""
    if repository.work_tree is None:
        return []
    try:
        told = repository.git("ls-files", "-z", "--others", with_files=True)
    except GitFailed:  # an index that git cannot read does not say what is tracked
        notes.append("the source's index is broken: untracked files are left, and not counted")
        return []
    return [os.fsdecode(path) for path in told.split(b"\0") if path]


def carry_untracked(
    repository: Repository, folder: Path, paths: list[str], notes: list[str]
) -> int:
    """Copy what is no repository, bundle or pack, is not the content of a later commit and does
    not stand in the way of the commit's tree. How many were copied.
    """
    assert repository.work_tree is not None or not paths
    tree = repository.work_tree or Path()
    plain = [path for path in paths if _may_be_carried(tree / path, folder, folder / path)]
    late = _later(repository, folder, plain)
    carried = [path for path in plain if path not in late]
    for path in carried:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / path, folder / path)
    if late:
        notes.append(f"{len(late)} untracked files are the content of a later commit: left out")
    if carried:
        notes.append("untracked files may hold anything: search them with `forensics leaks`")
    return len(carried)


def _may_be_carried(file: Path, folder: Path, target: Path) -> bool:
    if file.is_symlink() or not file.is_file() or "\n" in str(file) or os.path.lexists(target):
        return False
    above = [parent for parent in target.parents if parent.is_relative_to(folder)]
    if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in above):
        return False
    with file.open("rb") as stream:
        return not stream.read(20).startswith(HISTORIES)


def _later(repository: Repository, folder: Path, paths: list[str]) -> set[str]:
    """Of these, the files whose content is an object of the source and none of the copy."""
    asked = b"".join(os.fsencode(path) + b"\n" for path in paths)
    words = ("hash-object", "--no-filters", "--stdin-paths")
    ids = repository.git(*words, stdin=asked, with_files=True).decode().split()
    had, kept = (_present(place, ids) for place in (repository.shadow, folder / ".git"))
    return {path for path, name in zip(paths, ids, strict=True) if name in had - kept}


def _present(git_dir: Path, ids: list[str]) -> set[str]:
    asked = "".join(f"{name}\n" for name in ids).encode()
    told = run_git(git_dir, "cat-file", "--batch-check", stdin=asked).decode()
    return {line.split(" ")[0] for line in told.splitlines() if not line.endswith(" missing")}
