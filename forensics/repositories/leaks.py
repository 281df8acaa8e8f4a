"""Where a repository, as an agent would get it, already holds the reference fix.

1. The fix becomes ids, lines and words that the tree at the commit lacks (`fix.py`).
2. Every object of the repository is read, reachable or not; then every file below it, ignored
   or hidden ones too, with the members of archives; then those of an image, if one is given.
   Other git directories, bundles and packs that turn up are read as the repository is.
3. A place that shows enough of the fix by the rule is a hit; what it adds to tests counts apart.
   Versions of one file that are reached in the same way are one hit.
4. What could not be read is told. Nothing found is never said to be no leak.

Nothing is unpacked by name: members of archives are read as streams, in pieces, within limits.
Links in archives and encrypted members are told, not followed. Nothing is unpickled or
unmarshalled.
"""

import hashlib
import os
import re
import stat
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, BinaryIO, cast

from forensics.errors import UserError, stop_full
from forensics.progress import Progress, silent
from forensics.readers.archives import WRONG, ZIP, open_member, opened_zip
from forensics.readers.content import UnreadableContent, compression, open_content
from forensics.repositories.fix import Fix, Match, read_fix
from forensics.repositories.git import GitFailed, Repository, open_repository
from forensics.repositories.object_store import (
    LARGEST,
    ObjectStore,
    Reached,
    indexed,
    is_git_dir,
    open_store,
)

MOST_SHOWN = 20  # hits of a kind, in the text
NEVER = ("encoded or encrypted content", "what only a network reaches")
PIECE, OVERLAP = 32 << 20, 64 << 10  # bytes that are searched at a time, and twice
MOST_INFLATED = 2 << 30  # bytes that the members of one file may come to
MOST_MEMBERS = 200_000
MOST_DEPTH = 3  # archives in archives
HEAD = 4096
PACKS = (b"# v2 git bundle", b"# v3 git bundle", b"PACK\0\0\0")


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


Note = Callable[[str, str], None]
WHOLE_FILE, ITSELF = "whole file", "the commit that the patch was written from"
SHOWN = 3  # lines of a hit
MOST_NAMED = 1000  # of what was not searched
_ORDER = (ITSELF, "whole patch", WHOLE_FILE, "all added lines of one file")


@dataclass
class Reading:
    """One file at work: what of it could not be read, how much was inflated, how many members."""

    unread: list[tuple[str, str]] = field(default_factory=list)
    inflated: int = 0
    members: int = 0

    def note(self, name: str, why: object) -> None:
        """One more thing that was not searched."""
        self.unread.append((name, str(why)))

    def count(self, more: int) -> None:
        """So many bytes were inflated. Raises `UnreadableContent` past the limit."""
        self.inflated += more
        if self.inflated > MOST_INFLATED:
            raise UnreadableContent(f"its members come to more than {MOST_INFLATED >> 30} GB")


@dataclass(frozen=True)
class Content:
    """One content: its name (`a.zip!/b.py`), and either its pieces or a git pack in a file."""

    name: str
    pieces: Iterator[bytes]
    pack: Path | None = None


@dataclass(frozen=True)
class Root:
    """A folder to search. `prefix`: how names in it begin in a report."""

    folder: Path
    prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A place that holds the answer. `place`: a path below the root, or an object's id; `reached`:
    how an object is; `strength`: in words; `versions`: how many objects it stands for.
    """

    place: str
    kind: str
    reached: str | None
    strength: str
    of: str | None
    share: float
    shown: tuple[str, ...]
    cure: str
    versions: int = 1


@dataclass
class Leaks:
    """What was found: `fix` and `tests` hold hits, strongest first; `nearest`: the strongest place
    below the rule; `searched`: counts; `unread`: what was not searched, and why.
    """

    commit: str
    fix: list[Hit] = field(default_factory=list)
    tests: list[Hit] = field(default_factory=list)
    nearest: Hit | None = None
    searched: Counter[str] = field(default_factory=Counter)
    unread: list[tuple[str, str]] = field(default_factory=list)
    unread_count: int = 0

    @property
    def found(self) -> bool:
        """Whether the fix or its tests lie somewhere."""
        return bool(self.fix or self.tests)

    def note(self, place: str, why: str) -> None:
        """One more place that was not searched."""
        self.unread_count += 1
        if len(self.unread) < MOST_NAMED:
            self.unread.append((place, why))

    def add(self, hit: Hit, match_holds: bool, is_test: bool) -> None:
        """One more place with something of the fix in it."""
        if match_holds:
            (self.tests if is_test else self.fix).append(hit)
        elif not is_test and (self.nearest is None or hit.share > self.nearest.share):
            self.nearest = hit


@dataclass
class _Search:
    """A search at work: `done` are the real paths of what was searched."""

    fix: Fix
    leaks: Leaks
    scratch: Path
    main: Repository
    patch: Path
    progress: Progress
    done: set[str] = field(default_factory=set)
    stores: int = 0

    def objects(self, store: ObjectStore) -> None:
        """All objects of one store, but those of the tree at the commit."""
        if not store.listed:
            store.list_objects()
        held = {kind: dict(listed) for kind, listed in store.listed.items()}
        wanted = [
            name
            for kind in ("commit", "tag", "blob")
            for name, size in held.get(kind, {}).items()
            if size <= LARGEST and name not in self.fix.base
        ]
        for name, size in held.get("blob", {}).items():
            if size > LARGEST:
                self.leaks.note(f"{store.shown}object {name}", f"above {LARGEST >> 20} MB")
        found: dict[str, list[tuple[Match, str]]] = {}
        what = f"objects of {store.shown.rstrip(': ') or 'the repository'}"
        for at, (name, content) in enumerate(store.contents(wanted)):
            if at % 256 == 0:
                self.progress(what, at, len(wanted))
            if matches := self._matches(name, self.fix.match(content)):
                found[name] = matches
        self.progress(what, len(wanted), len(wanted))
        self.leaks.searched["objects"] += sum(map(len, held.values()))
        self._tell_objects(store, found, {**held.get("commit", {}), **held.get("tag", {})})
        for place, why in store.unread:
            self.leaks.note(place, why)

    def _matches(self, name: str | None, features: set[bytes]) -> list[tuple[Match, str]]:
        """What content shows, with its strength in words; `name`: its id as a blob."""
        matches = self.fix.judge(features) if features else []
        if name is not None and name == self.fix.named:
            itself = Match(is_test=False, part=None, lines=0, of=0, share=1.0, shown=())
            return [(itself, ITSELF)]
        if name is not None and (path := self.fix.results.get(name)) is not None:
            is_test = any(part.path == path and part.is_test for part in self.fix.parts)
            whole = Match(is_test=is_test, part=path, lines=0, of=0, share=1.0, shown=())
            matches = [one for one in matches if one.is_test != is_test]
            return [(whole, WHOLE_FILE), *((one, one.strength) for one in matches)]
        return [(one, one.strength) for one in matches]

    def _tell_objects(
        self,
        store: ObjectStore,
        found: dict[str, list[tuple[Match, str]]],
        messages: dict[str, int],
    ) -> None:
        """Add hits: the versions of one path that are reached in the same way are one."""
        if not found:
            return
        reached = store.reached(found, self.fix.commit)
        groups: dict[tuple[str, str | None, bool, bool], list[tuple[str, Match, str]]] = {}
        for name, matches in found.items():
            how = reached[name]
            path = how.path if how.path else None if name not in messages else name
            key_path = path if path or how.by != "nothing" else name
            for match, strength in matches:
                key = (how.by, key_path, match.is_test, match.holds)
                groups.setdefault(key, []).append((name, match, strength))
        for (_, _, is_test, holds), some in groups.items():
            name, match, strength = min(some, key=lambda one: (_place_in(one[2]), -one[1].share))
            message = name in messages and strength != ITSELF
            hit = _object_hit(store, name, reached[name], match, strength, message, len(some))
            self.leaks.add(self._lines(hit, match), holds, is_test)

    def _lines(self, hit: Hit, match: Match) -> Hit:
        shown = tuple(self.fix.shown[one].decode("utf-8", "replace") for one in match.shown[:SHOWN])
        return Hit(**{**vars(hit), "shown": shown})

    def files(self, roots: list[Root], what: str, skip: Path | None = None) -> None:
        """All files below the roots, and the git directories among them."""
        beside = frozenset() if skip is None else frozenset({os.path.realpath(skip)})
        listed = [entry for root in roots for entry in walk(root, self.leaks.note, beside)]
        for at, (path, name, is_store) in enumerate(listed):
            self.progress(what, at, len(listed))
            if is_store:
                self._clone(path, name)
            elif not path.samefile(self.patch):
                self._file(path, name)
        self.progress(what, len(listed), len(listed))
        self._sort()

    def _clone(self, git_dir: Path, name: str) -> None:
        """The objects of another git directory, once."""
        place = os.path.realpath(git_dir / "objects")
        if place in self.done:
            return
        self.done.add(place)
        try:
            with open_repository(git_dir) as opened:
                self.objects(open_store(opened, f"{name}: "))
        except UserError as refused:
            self.leaks.note(name, str(refused))

    def _folder(self) -> Path:
        self.stores += 1
        return self.scratch / f"store-{self.stores}"

    def _file(self, path: Path, name: str) -> None:
        reading = Reading()
        for content in contents_of(path, name, reading):
            if content.pack is not None:
                self._pack(content.pack, content.name)
            else:
                self._content(content, path)
        self.leaks.searched["files"] += 1
        self.leaks.searched["archive members"] += reading.members
        for place, why in reading.unread:
            self.leaks.note(place, why)

    def _pack(self, pack: Path, name: str) -> None:
        try:
            base, form = self.main.common / "objects", self.main.object_format
            store = indexed(pack, f"{name}: ", self._folder(), base, form)
        except GitFailed as refused:
            self.leaks.note(name, str(refused))
        else:
            self.objects(store)

    def _content(self, content: Content, path: Path) -> None:
        features: set[bytes] = set()
        only, pieces = b"", 0
        for piece in content.pieces:
            features |= self.fix.match(piece)
            only, pieces = piece, pieces + 1
        alone = pieces == 1 and len(only) in self.fix.sizes
        for match, strength in self._matches(self._id(only) if alone else None, features):
            kind, cure = kind_of(content.name)
            hit = Hit(
                place=content.name, kind=kind, reached=None, strength=strength, of=match.part,
                share=match.share, shown=(), cure=cure,
            )  # fmt: skip
            self.leaks.add(self._lines(hit, match), match.holds, match.is_test)

    def _id(self, content: bytes) -> str:
        """The id that git gives a file of this content."""
        sign = hashlib.sha1 if len(self.fix.commit) == 40 else hashlib.sha256
        return sign(b"blob %d\0" % len(content) + content).hexdigest()

    def _sort(self) -> None:
        for hits in (self.leaks.fix, self.leaks.tests):
            hits.sort(key=lambda hit: (_place_in(hit.strength), -hit.share, hit.place))


def find_leaks(
    repository: Path,
    patch: Path,
    at: str = "HEAD",
    image_root: Path | None = None,
    progress: Progress = silent,
) -> Leaks:
    """Search a repository, and an unpacked image, for the fix that `patch` makes at a commit.

    Raises `UserError` where there is no repository, commit or image, or the patch does not
    apply.
    """
    if not patch.is_file():
        raise UserError(f"there is no patch {patch}; give the reference fix as a unified diff")
    if image_root is not None and not image_root.is_dir():
        raise UserError(f"there is no folder {image_root}; give the unpacked image")
    with TemporaryDirectory(prefix="leaks-") as scratch, open_repository(repository) as opened:
        store = open_store(opened, "")
        store.list_objects()
        fix = read_fix(patch, store, opened.commit_id(at), Path(scratch), progress)
        search = _Search(fix, Leaks(fix.commit), Path(scratch), opened, patch, progress)
        if (why := fix.untellable) is not None:
            search.leaks.note("shared lines", why)
        search.objects(store)
        search.done.add(os.path.realpath(opened.common / "objects"))
        roots = [Root(repository)]
        if not opened.common.is_relative_to(repository.resolve()):
            roots.append(Root(opened.common, "(git directory)/"))
        search.files(roots, "files of the repository")
        if image_root is not None:
            search.files([Root(image_root, "(image)/")], "files of the image", repository)
        return search.leaks


def _place_in(strength: str) -> int:
    return _ORDER.index(strength) if strength in _ORDER else len(_ORDER)


def _object_hit(
    store: ObjectStore,
    name: str,
    how: Reached,
    match: Match,
    strength: str,
    message: bool,
    versions: int,
) -> Hit:
    """A hit in the objects, without the lines."""
    cure = SCRUB
    if store.shown:
        cure = CLONE
    elif how.by == "the history of the commit itself":
        cure = EARLIER
    elif message and how.commit is None and how.by.startswith("refs/tags/"):
        cure = UNTAG
    reached = {"nothing": "unreachable"}.get(how.by, f"reachable from {how.by}")
    if how.by == "no reference":
        reached = "only from commits that no reference names"
    if how.commit and how.commit != name:
        reached += f", commit {how.commit[:12]}"
    if how.path:
        reached += f", as {how.path}"
    return Hit(
        place=f"{store.shown}object {name[:12]}", kind="message" if message else "git object",
        reached=reached, strength=strength, of=match.part, share=match.share, shown=(),
        cure=cure, versions=versions,
    )  # fmt: skip


def not_searched(leaks: Leaks) -> Iterator[tuple[str, int, str]]:
    """Why something was not searched, how much, and one such place."""
    counts = Counter(why for _, why in leaks.unread)
    for why, count in counts.most_common():
        yield why, count, next(place for place, reason in leaks.unread if reason == why)


def contents_of(path: Path, name: str, reading: Reading, depth: int = 0) -> Iterator[Content]:
    """The contents of a file. A piece begins with the end of the one before it. What fails is
    noted in `reading`.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            file.seek(0)
            if head.startswith(PACKS):
                yield Content(name, iter(()), path)
            elif depth < MOST_DEPTH and _is_container(head):
                yield from _members(path, head, name, reading, depth)
            else:
                if _is_container(head):
                    reading.note(name, f"it is more than {MOST_DEPTH} archives deep")
                yield Content(name, _pieces(file))
    except WRONG as error:  # an archive that breaks off, a file that may not be read
        stop_full(error)
        reading.note(name, getattr(error, "strerror", None) or error)


def _is_container(head: bytes) -> bool:
    return ZIP in head or head[257:262] == b"ustar" or compression(head) is not None


def _members(path: Path, head: bytes, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    if (ZIP in head and zipfile.is_zipfile(path)) or head.startswith(ZIP):
        yield from _zipped(path, name, reading, depth)
        return
    if ZIP in head and not compression(head):
        with path.open("rb") as file:
            yield Content(name, _pieces(file))
        return
    with open_content(path) as stream:
        start = stream.read(HEAD)
    if start[257:262] == b"ustar":
        yield from _tarred(path, name, reading, depth)
        return
    with open_content(path) as stream:
        yield from _member(stream, name, reading, depth)


def _zipped(path: Path, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    with opened_zip(path) as (archive, lost):
        if lost is not None:
            reading.note(name, lost)
        for member in archive.infolist():
            if stat.S_ISLNK(member.external_attr >> 16):
                reading.note(f"{name}!/{member.filename}", "it is a link, which is not followed")
            elif not member.filename.endswith("/"):
                where = f"{name}!/{member.filename}"
                try:
                    with open_member(archive, member) as stream:
                        yield from _member(stream, where, reading, depth)
                except UnreadableContent:
                    if reading.inflated > MOST_INFLATED:
                        raise
                    reading.note(where, "it is encrypted or broken")


def _tarred(path: Path, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    with open_content(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                inside = cast(BinaryIO, archive.extractfile(member))
                yield from _member(inside, f"{name}!/{member.name}", reading, depth)
            elif member.issym() or member.islnk():
                reading.note(f"{name}!/{member.name}", "it is a link, which is not followed")


def _member(stream: BinaryIO, name: str, reading: Reading, depth: int) -> Iterator[Content]:
    """The contents of a member, by way of a file of its own where it is an archive again."""
    reading.members += 1
    if reading.members > MOST_MEMBERS:
        raise UnreadableContent(f"it holds more than {MOST_MEMBERS:,} files")
    head = stream.read(HEAD)
    if not (_is_container(head) or head.startswith(PACKS)):
        yield Content(name, _pieces(stream, head, reading))
        return
    with NamedTemporaryFile(prefix="leaks-") as draft:
        draft.write(head)
        while piece := stream.read(1 << 20):
            reading.count(len(piece))
            draft.write(piece)
        draft.flush()
        yield from contents_of(Path(draft.name), name, reading, depth + 1)


def _pieces(stream: BinaryIO, head: bytes = b"", reading: Reading | None = None) -> Iterator[bytes]:
    piece = head
    while more := stream.read(PIECE):
        if reading is not None:
            reading.count(len(more))
        yield piece + more
        piece = more[-OVERLAP:]
        head = b""
    if head:
        yield head


def kind_of(name: str) -> tuple[str, str]:
    """What kind of place a file's name tells, and its cure."""
    found = (told for pattern, *told in _KINDS if pattern.search(name))
    kind, cure = next(found, ("file", REMOVE))
    return kind, cure


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
                target = os.path.realpath(path)
                inside = os.path.realpath(root.folder)
                if os.path.exists(target) and os.path.commonpath((target, inside)) != inside:
                    note(name, "it is a link out of the folder, which is not followed")
            elif entry.is_dir(follow_symlinks=False):
                if os.path.realpath(path) in skip or (
                    folder == root.folder
                    and (entry.name in _PSEUDO and os.path.ismount(entry.path))
                ):
                    continue
                if here and entry.name == "objects":
                    yield from _strays(path, root)
                else:
                    folders.append(path)
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield path, name, False
        waiting += reversed(folders)


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


def rows_of_leaks(leaks: Leaks) -> dict[str, Any]:
    """The whole answer for a machine."""
    return {
        "found": leaks.found,
        "verdict": in_one_line(leaks),
        "commit": leaks.commit,
        "fix": [vars(hit) for hit in leaks.fix],
        "hidden_tests": [vars(hit) for hit in leaks.tests],
        "nearest": vars(leaks.nearest) if leaks.nearest else None,
        "searched": dict(leaks.searched),
        "not_searched": [{"place": place, "why": why} for place, why in leaks.unread],
        "not_searched_count": leaks.unread_count,
    }


def in_one_line(leaks: Leaks) -> str:
    """One line."""
    searched = ", ".join(f"{count:,} {what}" for what, count in leaks.searched.items() if count)
    left = [f"{why} ({count:,})" for why, count, _ in not_searched(leaks)]
    rest = f"; not searched: {', '.join([*left, *NEVER])}"
    if not leaks.found:
        return f"none found in what was searched: {searched}{rest}"
    kinds = [(len(leaks.fix), "the fix lies in"), (len(leaks.tests), "hidden tests lie in")]
    told = "; ".join(f"{words} {n:,} place{'s' * (n > 1)}" for n, words in kinds if n)
    return f"{told}; searched: {searched}{rest}"


def text_of_leaks(leaks: Leaks) -> str:
    """The answer for a reader."""
    lines = [f"At {leaks.commit[:12]}: {in_one_line(leaks)}"]
    for title, hits in (("The fix lies here", leaks.fix), ("Hidden tests lie here", leaks.tests)):
        if hits:
            lines += ["", f"{title}:"]
            lines += [line for hit in hits[:MOST_SHOWN] for line in _told(hit)]
        if len(hits) > MOST_SHOWN:
            lines.append(f"  ... and {len(hits) - MOST_SHOWN:,} more (--json names all)")
    if leaks.nearest is not None:
        lines += ["", "Strongest place below the rule:", *_told(leaks.nearest)]
    if leaks.unread:
        lines += ["", "Not searched:"]
        lines += [f"  {why}: {n:,}, e.g. {place}" for why, n, place in not_searched(leaks)]
    return "\n".join(lines)


def _told(hit: Hit) -> list[str]:
    of = f" of {hit.of}" if hit.of and hit.strength != "all added lines of one file" else ""
    of = f" ({hit.of})" if hit.of and not of else of
    share = f", {hit.share:.0%} of their weight" if " of " in hit.strength else ""
    where = f", {hit.reached}" if hit.reached else ""
    more = f" ({hit.versions:,} versions)" if hit.versions > 1 else ""
    lines = [f"  {hit.place} [{hit.kind}{where}]{more}"]
    lines.append(f"    {hit.strength}{of}{share}; cure: {hit.cure}")
    return [*lines, *(f"      | {text[:120]}" for text in hit.shown)]
