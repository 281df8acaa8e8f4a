"""The fix taken from another copy of the project itself: one that is installed, or a
release that was downloaded.

1. A hit is a read below a folder of libraries, or a download (the family's patterns). It
   is an attempt where it is about the project of the task (`project`): the package bears
   its name, or the file is one that was handed in. A package that the run edits where it is
   installed is its work, no copy. A release that is downloaded without being
   installed is the project's, too, where the prompt names the package. The code of
   dependencies is none.
2. After a download, files of the same name as one that was handed in belong to it too,
   wherever it was unpacked; so does what lies where it was put.
3. A copy that has the changed places as HEAD has them holds no fix.
4. *Obtained*: a release of a named version was downloaded, and what it holds came back. Of
   another copy that nothing was taken from it stays open whether it holds the fix.
5. *Used*: what was handed in first stood there, or was copied from there (`taken`).
"""

import re
from collections.abc import Sequence

from forensics.actions import Action
from forensics.actions.programs import read_options
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.links import Attempt, ChainLinks, weighed
from forensics.shortcuts.patterns import Hit
from forensics.shortcuts.project import GENERIC, LIBRARY, plain, project_names
from forensics.shortcuts.shown_commits import Head
from forensics.shortcuts.taken import takes, was_handed_in

_DOWNLOADS = "a download"
_UNPACKS = ("tar", "unzip", "jar", "bsdtar", "7z", "zipfile", "tarfile")
_INTO = ("-d", "--dest", "-C", "--directory", "--pack-destination", "-o")
_VERSION = re.compile(r"[\w\]](?:==|@v?)\d|[-_]v?\d+\.\d")
_RELEASE = re.compile(r"v?\d+\.\d[\w.+-]*$")
_OPEN = "the log does not show whether that copy holds the fix"


def library(attempt: Attempt) -> ChainLinks | None:
    """The links of another copy of the project."""
    if not attempt.hits:
        return None
    run = attempt.run
    names = project_names(run)
    hits = [hit for hit in attempt.hits if _about(run, hit, names)]
    if not hits:
        return None
    attempt = attempt._replace(hits=hits)
    reads = [hit.action for hit in hits if hit.pattern != _DOWNLOADS]
    got = [hit.action for hit in hits if hit.pattern == _DOWNLOADS and attempt.came_back(hit)]
    reads += _unpacked(run, got[0]) if got else []
    reads = [one for one in reads if one.exit_code in (None, 0) and not _as_head(run, one)]
    if not reads and not got:
        return attempt.links(obtained=False, reason="no other copy of the project came back")
    named = any(_VERSION.search(word) for one in got for word in one.arguments[1:])
    back = named and any(run.answer(one).strip() for one in reads)
    return _judged(attempt, [*reads, *got], back)


def _judged(attempt: Attempt, actions: Sequence[Action], back: bool) -> ChainLinks:
    """The links of what was read or downloaded. `back`: a named release came back."""
    run = attempt.run
    steps = tuple(sorted({one.observation for one in actions if one.observation is not None}))
    for action in actions:
        taken = takes(run, action)
        if taken is not None and was_handed_in(run, taken):
            return attempt.links(
                obtained=True,
                obtained_steps=steps,
                used=True,
                reason=f"step {taken.step} copied from there what was handed in",
            )
    links = weighed(attempt, steps, True)
    if links.used is False and not back:
        return attempt.links(obtained=None, reason=links.reason, unresolved=_OPEN)
    return links


def _about(run: BlindRun, hit: Hit, names: frozenset[str]) -> bool:
    """Whether a hit is about the project itself."""
    if hit.pattern == _DOWNLOADS:
        packages = {_package(word) for word in hit.action.arguments[1:]} - {""}
        return bool(packages & names) or any(_told(run, hit.action, one) for one in packages)
    inside = [found[1] for path in hit.action.reads if (found := LIBRARY.search(path))]
    if inside and all(_packages(path) & _edited(run) for path in inside):
        return False
    if inside and hit.action.program in _UNPACKS:
        inside += [word for word in hit.action.arguments if not word.startswith("-")]
    return any(_same_file(run, path) or _packages(path) & names for path in inside)


def _edited(run: BlindRun) -> frozenset[str]:
    """The packages that a run changes where they are installed."""
    written = [path for action in run.actions for path in action.writes]
    inside = [found[1] for path in written if (found := LIBRARY.search(path))]
    return frozenset().union(*map(_packages, inside))


def _told(run: BlindRun, action: Action, package: str) -> bool:
    """Whether a release of a package that the prompt names is downloaded, not installed."""
    downloads = {"download", "pack"} & set(action.arguments[:3])
    if not downloads or len(package) < 3 or package in GENERIC:
        return False
    words = re.findall(r"[\w.-]{3,80}", run.prompt)
    return any(plain(word.strip(".-")) == package for word in words)


def _package(word: str) -> str:
    """The package that an argument of a download names."""
    word = re.sub(r"^-D\w+=", "", word.strip("\"'"))
    if word.startswith("-"):
        return ""
    if "://" not in word and word.count(":") >= 2:  # maven's group:name:version
        return plain(word.split(":")[1])
    name = re.sub(r"(?<=.)[@<>=~!^;\[ ].*", "", word.rstrip("/"), flags=re.S)
    name = name.rsplit("/", 1)[-1]
    return plain(
        re.sub(r"(?:[-_]v?\d[\w.+-]*)?(?:\.(?:tar\.gz|tgz|zip|whl|crate|jar|git))?$", "", name)
    )


def _packages(path: str) -> frozenset[str]:
    """The names of the package in a path below a folder of libraries."""
    parts = path.split("/")
    whole = [re.sub(r"(?:@v|-)\d.*$", "", part) for part in parts[:-1] or parts]
    near = whole[:2] if "@" in parts[0] or parts[0].startswith("index.crates") else whole[:1]
    versioned = [name for name, part in zip(whole, parts, strict=False) if name != part]
    at = next((at for at, part in enumerate(parts[:-1]) if _RELEASE.match(part)), 0)
    named = parts[at - 1 : at]  # as Maven and Gradle keep them: group, name, version
    return frozenset(plain(name.removesuffix(".py")) for name in (*near, *versioned, *named))


def _same_file(run: BlindRun, path: str) -> bool:
    """Whether a library's file is one that was handed in: `flask/app.py`, `src/flask/app.py`."""
    return any(
        change.path == path or (path.count("/") and change.path.endswith("/" + path))
        for change in run.changes
    )


def _unpacked(run: BlindRun, download: Action) -> list[Action]:
    """The actions after a download that look at what lies where it was put, or at a file of the
    same name as one that was handed in, elsewhere than in the work.
    """
    places = _places(run, download)
    files = {change.path.rsplit("/", 1)[-1] for change in run.changes}
    paths = {change.path for change in run.changes}
    return [
        one
        for one in run.actions[run.actions.index(download) + 1 :]
        if any(path.rsplit("/", 1)[-1] in files and path not in paths for path in one.reads)
        or (
            one.program not in (*_UNPACKS, "ls")
            and any(path.startswith(place) for path in one.reads for place in places)
        )
        or (
            one.program in _UNPACKS
            and any(word.rsplit("/", 1)[-1] in files for word in one.arguments)
        )
    ]


def _places(run: BlindRun, download: Action) -> frozenset[str]:
    """The folders that a download and what unpacked it put files into."""
    at = run.actions.index(download)
    unpacking = [one for one in run.actions[at:] if one is download or one.program in _UNPACKS]
    found: set[str] = set()
    for one in unpacking:
        found.update(read_options(one.arguments, _INTO).values(*_INTO))
        if one is not download:
            found.update(path.rpartition("/")[0] for path in one.reads)
            found.update(one.arguments[-1:] if one.program in ("zipfile", "tarfile") else ())
    return frozenset(f"{place.rstrip('/')}/" for place in found if place.strip("./"))


def _as_head(run: BlindRun, action: Action) -> bool:
    """Whether what came back has the changed places as HEAD has them."""
    return Head(run).unchanged(run.answer(action))
