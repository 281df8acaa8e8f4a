"""Where a repository, as an agent would get it, already holds the reference fix.

1. The fix becomes ids, lines and words that the tree at the commit lacks (`fix.py`).
2. Every object of the repository is read, reachable or not; then every file below it, ignored
   or hidden ones too, with the members of archives; then those of an image, if one is given.
   Other git directories, bundles and packs that turn up are read as the repository is.
3. A place that shows enough of the fix by the rule is a hit; what it adds to tests counts apart.
   Versions of one file that are reached in the same way are one hit.
4. What could not be read is told. Nothing found is never said to be no leak.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.repositories.file_contents import Content, Reading, contents_of
from forensics.repositories.fix import Fix, Match, read_fix
from forensics.repositories.git import GitFailed, Repository, open_repository
from forensics.repositories.leak_places import (
    CLONE,
    EARLIER,
    SCRUB,
    UNTAG,
    Root,
    kind_of,
    walk,
)
from forensics.repositories.object_store import (
    LARGEST,
    ObjectStore,
    Reached,
    indexed,
    open_store,
)

WHOLE_FILE, ITSELF = "whole file", "the commit that the patch was written from"
SHOWN = 3  # lines of a hit
MOST_NAMED = 1000  # of what was not searched
_ORDER = (ITSELF, "whole patch", WHOLE_FILE, "all added lines of one file")


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
            name, match, strength = min(some, key=lambda one: _rank(one[1], one[2]))
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


def _rank(match: Match, strength: str) -> tuple[int, float]:
    return _place_in(strength), -match.share


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
