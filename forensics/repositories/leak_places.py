"""Where files lie that an agent may read, what kind of place each is, and what cures it."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from forensics.repositories.object_store import is_git_dir

_OBJECTS = re.compile(
    r"(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/(?:pack-[0-9a-f]+\.\w+|multi-pack-index.*)|info/.*)\Z"
)
_PSEUDO = ("proc", "sys", "dev")  # at the top of an image
REMOVE = "remove the file"
PIN = "install a version from before the fix, or remove it"
CLONE = "remove the clone"
SCRUB = "`forensics scrub-git REPO --at COMMIT`"
UNTAG = f"the tag's own words hold it: delete the tag (`git tag -d`), then {SCRUB}"
EARLIER = "the history before the commit holds it: cut it off (a shallow start), or drop the task"
_KINDS = tuple(
    (re.compile(pattern), kind, cure)
    for pattern, kind, cure in (
        (r"(?:^|/)\.git/(?:modules/.+/)?lfs/", "large file storage of git", SCRUB),
        (r"(?:^|/)\.git(?:/|$)", "file of git", SCRUB),
        (r"(?:^|/)(?:site|dist)-packages/", "installed Python package", PIN),
        (r"(?:^|/)node_modules/", "installed Node package", PIN),
        (r"(?:^|/)\.cargo/(?:registry|git)/", "Cargo's registry", PIN),
        (r"(?:^|/)go/pkg/mod/", "Go's module cache", PIN),
        (r"(?:^|/)\.(?:m2|gradle)/", "Maven's or Gradle's cache", PIN),
        (r"(?:^|/)(?:\.cache/(?:pip|uv|pypoetry|yarn)|\.npm|_cacache|\.yarn)/",
         "a package manager's cache", "clear the cache"),
        (r"(?:^|/)\.\w*_?history$", "a shell's history", REMOVE),
        (r"\.sw[a-p]$|~$|(?:^|/)#[^/]+#$", "an editor's backup", REMOVE),
        (r"\.(?:orig|rej|bak|old|save)$", "backup", REMOVE),
        (r"\.(?:patch|diff|mbox)$", "patch file", REMOVE),
        (r"\.py[co](?:$|!)", "compiled Python", REMOVE),
        (r"(?:^|/)(?:build|dist|target|out|\.tox|\.nox|\.eggs|coverage)/", "build folder",
         "remove the folder and build again at the commit"),
        (r"!/", "archive", "remove the archive"),
        (r"(?i)(?:^|/)(?:change(?:s|log)|history|news|release)[^/]*$", "change log", REMOVE),
        (r"(?:^|/)(?:tmp|var/tmp)/", "temporary file", REMOVE),
    )
)  # fmt: skip


def kind_of(name: str) -> tuple[str, str]:
    """What kind of place a file's name tells, and its cure."""
    found = (told for pattern, *told in _KINDS if pattern.search(name))
    kind, cure = next(found, ("file", REMOVE))
    return kind, cure


@dataclass(frozen=True)
class Root:
    """A folder to search. `prefix`: how names in it begin in a report."""

    folder: Path
    prefix: str = ""


Note = Callable[[str, str], None]


def walk(root: Root, note: Note, skip: frozenset[str]) -> Iterator[tuple[Path, str, bool]]:
    """Each file below a root, and each git directory: path, name, whether it is one. Links are
    not followed. `skip`: real paths of folders that are searched elsewhere.
    """
    waiting = [root.folder]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            note(_name(root, folder), str(error.strerror))
            continue
        here = is_git_dir(folder)
        if here:
            yield folder, _name(root, folder), True
        folders = []
        for entry in found:
            path = Path(entry.path)
            name = _name(root, path)
            if entry.is_symlink():
                _linked(path, root, name, note)
            elif entry.is_dir(follow_symlinks=False):
                if os.path.realpath(path) in skip or (folder == root.folder and _pseudo(entry)):
                    continue
                if here and entry.name == "objects":
                    yield from _strays(path, root)
                else:
                    folders.append(path)
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield path, name, False
        waiting += reversed(folders)


def _pseudo(entry: os.DirEntry[str]) -> bool:
    return entry.name in _PSEUDO and os.path.ismount(entry.path)


def _linked(path: Path, root: Root, name: str, note: Note) -> None:
    """Note a link that leads out of the root to something that is there."""
    target = os.path.realpath(path)
    inside = os.path.realpath(root.folder)
    if os.path.exists(target) and os.path.commonpath((target, inside)) != inside:
        note(name, "it is a link out of the folder, which is not followed")


def _strays(objects: Path, root: Root) -> Iterator[tuple[Path, str, bool]]:
    """Files of an object folder that git does not count as its own (drafts of packs)."""
    for place, _, files in os.walk(objects):
        for file in sorted(files):
            path = Path(place, file)
            name = path.relative_to(objects).as_posix()
            if not _OBJECTS.match(name) and path.is_file() and not path.is_symlink():
                yield path, _name(root, path), False


def _name(root: Root, path: Path) -> str:
    return root.prefix + (path.relative_to(root.folder).as_posix())
