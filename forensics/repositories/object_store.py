"""The objects of a git repository that nobody vouches for, read without its settings.

1. Git runs only in the shadow of the repository (`git.py`), or in an empty repository of our
   own into which it indexes a bundle or a pack.
2. What git would know of references, reflogs and the index is read from their files.
3. Every object that lies there counts, reachable or not. How one is reached is asked only of
   those that were found to matter.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile

from forensics.repositories.git import GitFailed, Repository, environment, git_command, run_git

LARGEST = 64 << 20  # bytes of one object that is read
INDEX = "the index"
RESTARTS = 100  # after an object that git cannot read
_ID = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{40})(?![0-9a-f])")
_TARGET = re.compile(rb"object ([0-9a-f]{40,64})\n")
_PACKED = re.compile(r"^([0-9a-f]{40,64}) (\S+)$", re.M)
Tips = Mapping[str, Sequence[str]]
"""Under which name (`refs/heads/main`, `the reflog of HEAD`) which objects are reached."""


@dataclass(frozen=True)
class Reached:
    """How an object is reached: from what, in which commit, under which path (each where known)."""

    by: str
    commit: str | None = None
    path: str | None = None


@dataclass
class ObjectStore:
    """One object folder: `ours` is the folder to run git in; `shown` its name in a
    report; `tips` what names its objects; `unread` what of it could not be read, and why.
    """

    ours: Path
    shown: str
    tips: Tips
    unread: list[tuple[str, str]] = field(default_factory=list)
    listed: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def list_objects(self) -> int:
        """Fill `listed` (ids and sizes by type); how many there are."""
        form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
        told = run_git(self.ours, "cat-file", "--batch-all-objects", "--unordered", form)
        for line in told.decode().splitlines():
            name, kind, size = (*line.split(), "", "")[:3]
            if size.isdecimal():
                self.listed.setdefault(kind, []).append((name, int(size)))
            else:
                self.unread.append((f"{self.shown}: object {name}", "git cannot read it"))
        return sum(map(len, self.listed.values()))

    def contents(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Each object's content; one that git cannot read is noted in `unread`."""
        for _ in range(RESTARTS):
            done = 0
            for name, content in _batch(self.ours, ids):
                done += 1
                yield name, content
            if done >= len(ids):
                return
            self.unread.append((f"{self.shown}: object {ids[done]}", "git cannot read it"))
            ids = ids[done + 1 :]
        self.unread.append((f"{self.shown}: {len(ids):,} objects", "too many broken ones before"))

    def reached(self, wanted: Iterable[str], at: str | None) -> dict[str, Reached]:
        """How each wanted object is reached: in the history of `at` if it is, else from a
        reference, else from a reflog or the index, else from a commit that nothing names.
        """
        left, found = set(wanted), dict[str, Reached]()
        known = {name for kind in self.listed.values() for name, _ in kind}
        named = {by: [one for one in ids if one in known] for by, ids in self.tips.items()}
        refs = [one for by, ids in named.items() if by.startswith("refs/") for one in ids]
        rest = [one for by, ids in named.items() if by != INDEX for one in ids]
        loose = [name for name, _ in self.listed.get("commit", [])]
        labels, alone = self._labels(named, at, loose), self._without_commit(named)
        before: list[str] = []
        past = [at] if at in known and at else []
        for tips in (past, refs, rest, loose):
            for commit, name, path in self._walk(tips, before):
                if name in left:
                    left.discard(name)
                    told = Reached(labels.get(commit, "no reference"), commit, path)
                    found[name] = told if tips is past else alone.get(name, told)
                if not left:
                    return found
            before += [f"^{one}" for one in tips]
        for by, ids in named.items():
            for name in left & set(ids):
                found[name] = Reached(by)
        return found | {name: Reached("nothing") for name in left - found.keys()}

    def _labels(self, named: Tips, at: str | None, loose: Sequence[str]) -> dict[str, str]:
        """The first name that reaches each commit."""
        order = [("the history of the commit itself", [at] if at else []), *named.items()]
        told = self._rev_list("--parents", tips=[*(one for _, ids in order for one in ids), *loose])
        parents = {words[0]: words[1:] for line in told if (words := line.split())}
        labels: dict[str, str] = {}
        for by, ids in [*order, ("no reference", loose)]:
            waiting = [self._commit_of(one) for one in ids]
            while waiting:
                one = waiting.pop()
                if one not in labels and one in parents:
                    labels[one] = by
                    waiting += parents[one]
        return labels

    def _without_commit(self, named: Tips) -> dict[str, Reached]:
        """What names reach through no commit: tag objects, and blobs and trees under a name."""
        found: dict[str, Reached] = {}
        commits, trees = (dict(self.listed.get(kind, [])) for kind in ("commit", "tree"))
        for by, ids in named.items():
            for one in ids if by != INDEX else ():
                while one in self._tagged:
                    found.setdefault(one, Reached(by))
                    one = self._tagged[one]
                if one in trees:
                    for _, name, path in self._walk([one], []):
                        found.setdefault(name, Reached(by, None, path))
                elif one not in commits:
                    found.setdefault(one, Reached(by))
        return found

    @cached_property
    def _tagged(self) -> dict[str, str]:
        """What each tag object points to; a broken one, which `contents` has told, to nothing."""
        told = len(self.unread)
        tags = [name for name, _ in self.listed.get("tag", [])]
        read = {name: _TARGET.match(content) for name, content in self.contents(tags)}
        del self.unread[told:]
        return {name: found[1].decode() for name, found in read.items() if found}

    def _commit_of(self, name: str) -> str:
        """The commit that a tag object names, or the object itself."""
        while name in self._tagged:
            name = self._tagged[name]
        return name

    def _walk(self, tips: Sequence[str], before: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Commit, object and path of what `tips` reach and `before` does not, newest first."""
        commit = ""
        for line in self._rev_list("--objects", "--in-commit-order", tips=[*tips, *before]):
            name, space, path = line.partition(" ")
            if not space:
                commit = name
            yield commit, name, path

    def _rev_list(self, *options: str, tips: Sequence[str]) -> Iterator[str]:
        if not [one for one in tips if one[0] != "^"]:
            return
        command = ("rev-list", "--missing=allow-any", "--ignore-missing", *options, "--stdin")
        with _started(self.ours, command, "\n".join(tips).encode() + b"\n") as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.decode("utf-8", "replace").rstrip("\n")
            process.stdout.close()


def _started(folder: Path, command: Sequence[str], given: bytes) -> subprocess.Popen[bytes]:
    with TemporaryFile() as asked:  # a pipe would fill while git's own waits for us
        asked.write(given)
        asked.seek(0)
        return subprocess.Popen(
            git_command(folder, *command), cwd=folder, env=environment(), stdin=asked,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=1 << 20,
        )  # fmt: skip


def _batch(folder: Path, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each object, until git stops."""
    asked = "\n".join(ids).encode() + b"\n"
    with _started(folder, ("cat-file", "--batch", "--buffer"), asked) as process:
        stream = process.stdout
        assert stream is not None
        while (head := stream.readline().split()) and len(head) == 3:
            content = stream.read(int(head[2]) + 1)
            if len(content) <= int(head[2]):
                break
            yield head[0].decode(), content[:-1]
        stream.close()


def open_store(repository: Repository, shown: str) -> ObjectStore:
    """The objects of a repository and what its files name."""
    git_dir = repository.common
    store = ObjectStore(repository.shadow, shown, tips_of(git_dir) | _staged(repository))
    if (git_dir / "reftable").is_dir():
        store.unread.append((f"{shown}references", "they are kept in a reftable"))
    store.unread += [(f"{shown}alternate {one}", "it is not there") for one in _missing(git_dir)]
    if any((git_dir / "objects" / "pack").glob("*.promisor")):
        store.unread.append((f"{shown}objects", "a remote promised more of them (partial clone)"))
    return store


def _staged(repository: Repository) -> dict[str, list[str]]:
    try:
        told = repository.git("ls-files", "--stage", "-z")
    except GitFailed:  # no index, or one that git cannot read: its file is searched all the same
        return {}
    return {INDEX: [line.split()[1].decode() for line in told.split(b"\0") if line]}


def _missing(git_dir: Path) -> list[str]:
    objects = git_dir / "objects"
    lines = _small(objects / "info" / "alternates").decode("utf-8", "replace").splitlines()
    return [one for one in lines if one and one[0] != "#" and not (objects / one).is_dir()]


def is_git_dir(folder: Path) -> bool:
    """Whether a folder holds objects and a HEAD."""
    return (folder / "objects").is_dir() and (folder / "HEAD").is_file()


def tips_of(git_dir: Path) -> dict[str, list[str]]:
    """What the files of a git directory name: references, then HEADs, then reflogs."""
    found: dict[str, list[str]] = {}
    packed = _small(git_dir / "packed-refs").decode("utf-8", "replace")
    for name, by in _PACKED.findall(packed):
        found[by] = [name]
    for file in _files(git_dir / "refs"):
        if ids := _ids(file):
            found[file.relative_to(git_dir).as_posix()] = ids
    found = {by: found[by] for by in sorted(found, key=_nearness)}
    for folder in (git_dir, *sorted((git_dir / "worktrees").glob("*"))):
        where = "" if folder == git_dir else f" of the worktree {folder.name}"
        for file in sorted(folder.glob("*HEAD")):
            found[f"{file.name}{where}"] = _ids(file)
    for logs in (git_dir / "logs", *sorted((git_dir / "worktrees").glob("*/logs"))):
        for file in _files(logs):
            found[f"the reflog of {file.relative_to(logs).as_posix()}"] = _ids(file)
    return {by: ids for by, ids in found.items() if ids}


def _nearness(by: str) -> tuple[int, str]:
    """Branches first, then tags, then what else there is."""
    kinds = ("refs/heads/", "refs/tags/", "refs/stash", "refs/notes/", "refs/remotes/")
    return next((i for i, kind in enumerate(kinds) if by.startswith(kind)), len(kinds)), by


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _ids(file: Path) -> list[str]:
    return list(dict.fromkeys(one.decode() for one in _ID.findall(_small(file))))


def _small(file: Path) -> bytes:
    """A file's content; nothing where it cannot be read or is no plain small file."""
    try:
        small = file.is_file() and file.stat().st_size <= LARGEST
        return file.read_bytes() if small else b""
    except OSError:
        return b""


def indexed(file: Path, shown: str, folder: Path, base: Path, form: str) -> ObjectStore:
    """The objects of a bundle or of a pack that lies alone. `base`: an object folder that may
    hold what it builds on; `form`: how objects are named. Raises `GitFailed`.
    """
    with file.open("rb") as stream:
        head, start = stream.read(1 << 20), 0
        if head.startswith(b"# v"):
            start = head.find(b"\n\n") + 2
        told = _PACKED.findall(head[:start].decode("utf-8", "replace"))
        folder.mkdir(parents=True)
        run_git(folder, "init", "-q", "--bare", "--template=", f"--object-format={form}")
        store = ObjectStore(folder, shown, {by: [name] for name, by in told})
        link = folder / "theirs"
        link.symlink_to(base.resolve())
        (folder / "objects" / "info").mkdir(exist_ok=True)
        (folder / "objects" / "info" / "alternates").write_text(f"{link}\n")
        stream.seek(start)
        _index(folder, stream.fileno())
    (folder / "objects" / "info" / "alternates").unlink(missing_ok=True)
    return store


def _index(folder: Path, stream: int) -> None:
    command = ("index-pack", "--stdin", "--fix-thin", "--threads=1", f"--max-input-size={1 << 31}")
    done = subprocess.run(
        git_command(folder, *command),
        cwd=folder,
        env=environment(),
        stdin=stream,
        capture_output=True,
    )
    if done.returncode:
        raise GitFailed("git cannot index it")
