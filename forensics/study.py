"""The one way in which a command makes a folder.

1. `hold`: the folder is made and locked. What it holds stays until the study is
   found good; a full disk is said in one sentence.
2. `Study.check`: everything that a user gave is opened and checked. Refused, it
   leaves a new folder as if it had never been.
3. `Study.inputs`: what identifies the study (hashes and settings, no paths) goes
   into `NAME-inputs.json`. A run that is gone on with must have the same; one
   that starts over deletes here what the study wrote before, and nothing else.
4. `Study.run`: the work, stage by stage; what is finished is read back.
5. `Study.write`: tables, then `NAME.json` and the page, `NAME.html`.

`investigate`, `scan` and `ablate` make a case and take step 1 alone, by `hold`.
A case has one file, `case.json`, for what it was started with and for its
verdict, `running` until it is complete, which `gate`, `report` and other cases
read; with `NAME-inputs.json` and `NAME.json` beside it, it would be said twice.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from forensics.errors import RunInterrupted, UserError
from forensics.progress import Progress, silent
from forensics.records import Table
from forensics.records.files import as_user_error, read_json, write_atomically, write_json
from forensics.records.given_files import address
from forensics.records.page import Page
from forensics.records.tables import write_table

DRAFT: Final = ".*.draft"
# files that say that a run of ours was started here; the last one, of versions before this
STATED: Final = ("-inputs.json", "case.json", ".forensics")
ROWS_AT_ONCE: Final = 4096
Ready = TypeVar("Ready")
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a study found: `summary` goes into `NAME.json` and is what `--json`
    prints; `tables` and `sentences` are printed otherwise; `page` is drawn.
    """

    summary: dict[str, Any]
    tables: tuple[Table, ...] = ()
    sentences: tuple[str, ...] = ()
    page: Page | None = None


class Folder:
    """A folder that one run holds. `files`: the names of the files and folders
    that its study writes, beside `NAME-inputs.json`, `NAME.json` and `NAME.html`.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        files: Iterable[str] = (),
        *,
        resume: bool = False,
        force: bool = False,
        progress: Progress = silent,
    ) -> None:
        self.path, self.name, self.progress = path, name, progress
        self.resume, self.force = resume, force
        self.begun = False  # whether the study may have written something
        self.inputs_file = f"{name}-inputs.json"
        self._files = (self.inputs_file, f"{name}.json", f"{name}.html", *files)

    @property
    def copies(self) -> Path:
        """Where a check copies what it was given in part; never deleted with the study."""
        return self.path / "runs"

    def holds(self) -> list[str]:
        """What lies in the folder. A draft that a killed run left is nothing yet."""
        return sorted(p.name for p in self.path.iterdir() if not fnmatch(p.name, DRAFT))

    def state(self, inputs: Mapping[str, Any]) -> None:
        """Write what identifies the study, and begin. Raises `UserError` where
        the folder is gone on with and was started with something else.
        """
        self.require_started(inputs)
        self.begin()
        write_json(self.path / self.inputs_file, inputs)

    def require_started(self, inputs: Mapping[str, Any], later: Collection[str] = ()) -> None:
        """Refuse to go on with what was started with other inputs. A check that loads much
        asks first, with what it knows by then; `later`: inputs that are not known yet.
        """
        stated = self.path / self.inputs_file
        if self.resume and stated.exists():
            was = {what: value for what, value in read_json(stated).items() if what not in later}
            require_same(self.path, was, json.loads(json.dumps(inputs)))

    def begin(self) -> None:
        """From here on the study writes: what starts over goes, and so do half-written files."""
        if self.force:
            self.clear()
        self.remove_drafts()
        self.begun = True

    def remove_drafts(self) -> None:
        """Delete what is half written."""
        remove_drafts(self.path, self._files)

    def clear(self) -> None:
        """Delete what the study wrote, and only where it was begun."""
        stated = (name for name in self._files if name.endswith((*STATED, f"{self.name}.json")))
        if not any((self.path / name).exists() for name in stated):
            return
        for name in self._files:
            _remove(self.path / name)

    def table(self, file: str, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Path:
        """A Parquet file of these rows, streamed; whole or not there."""
        write_table(self.path / file, schema, rows, at_once=ROWS_AT_ONCE)
        return self.path / file

    def finish(self, result: Result) -> Result:
        """Write the summary and the page."""
        write_json(self.path / f"{self.name}.json", result.summary)
        if result.page is not None:
            from forensics.report import draw_page  # a scan's workers never draw

            write_atomically(self.path / f"{self.name}.html", draw_page(result.page))
        return result


class Study(Protocol[Ready, Found]):
    """A command that makes a folder, in four steps; `name` and `files` as `Folder` says them."""

    @property
    def name(self) -> str: ...
    @property
    def files(self) -> tuple[str, ...]: ...

    def check(self, folder: Folder) -> Ready:
        """Open and check what was given; nothing of the folder is deleted yet."""

    def inputs(self, ready: Ready) -> dict[str, Any]:
        """What identifies the study: hashes and settings, no paths."""

    def run(self, ready: Ready, folder: Folder) -> Found:
        """The work, resumable."""

    def write(self, found: Found, folder: Folder) -> Result:
        """Write the tables; gives what is said."""


def run_study(
    study: Study[Ready, Found],
    out: Path,
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> Result:
    """Carry a study out in the folder `out`. Raises `UserError` for bad input, a
    full disk, or a folder that holds something else.
    """
    with hold(
        Folder(
            out.expanduser(), study.name, study.files, resume=resume, force=force, progress=progress
        )
    ) as folder:
        ready = study.check(folder)
        folder.state(study.inputs(ready))
        return folder.finish(study.write(study.run(ready, folder), folder))


@contextmanager
def hold(folder: Folder) -> Iterator[Folder]:
    """Make and lock a folder. Raises `UserError` where it is in use, or holds
    something and is neither resumed nor started over.
    """
    path = folder.path
    if folder.resume and folder.force:
        raise UserError("--resume and --force exclude each other: go on, or start over")
    there = os.path.isdir(path)  # never raises
    make_folder(path)
    with _locked(path):
        held = folder.holds()
        if held and not folder.resume and not folder.force:
            raise UserError(
                f"{path} is not empty; use --resume to go on, --force to start over, or another"
                " --out"
            )
        if held and folder.resume and not any(name.endswith(STATED) for name in held):
            raise UserError(
                f"{path} holds {held[0]}, and nothing in it says what was started there (it may be"
                " of another version), so nothing can be resumed; use --force to start over, or"
                " choose another --out"
            )
        try:
            yield folder
        except OSError as error:
            raise as_user_error(error, Path(error.filename or path)) from error
        except KeyboardInterrupt as stop:
            ours = folder.begun or (folder.resume and bool(held))
            raise RunInterrupted(ours and not _is_nothing(folder, held)) from stop
        finally:
            if folder.begun:
                with suppress(OSError):  # half-written files, which take the place of whole ones
                    folder.remove_drafts()
            if _is_nothing(folder, held):
                for entry in path.iterdir():
                    _remove(entry)
                if held or not there:  # an empty one that was given stays
                    with suppress(OSError):  # so does a disk's own place
                        path.rmdir()


def _is_nothing(folder: Folder, held: Sequence[str]) -> bool:
    """Whether a folder, which held this before, is as if there had been no run."""
    nothing = not folder.begun or {*folder.holds()} <= {folder.inputs_file}
    return (not held and nothing) or not any(folder.path.iterdir())


def make_folder(folder: Path) -> None:
    """Make a folder that can be written, or say in one sentence why it cannot be."""
    if given := address(folder):
        raise UserError(f"{given} is an address, not a folder on this machine; give one with --out")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"the name {str(folder)!r} is no UTF-8 text; choose another folder with --out"
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{folder} is a file; choose another folder with --out") from None
    except NotADirectoryError:
        raise UserError(f"{folder} lies below a file; choose another folder with --out") from None
    except OSError as error:
        told = as_user_error(error, folder)
        if not isinstance(told, UserError):
            told = UserError(
                f"{folder} cannot be made ({error.strerror}); choose another folder with --out"
            )
        raise told from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder} cannot be written; choose another folder with --out")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run a folder: two would write over each other. The lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another run is writing {folder}; wait for it, or choose another --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        _locks.add(handle)
        yield
    finally:
        _locks.discard(handle)
        os.close(handle)


def remove_drafts(folder: Path, names: Iterable[str]) -> None:
    """Half-written files that a killed run left in a folder and in these folders of it."""
    for place in (folder, *(folder / name for name in names)):
        for draft in place.glob(DRAFT):
            _remove(draft)


def _remove(place: Path) -> None:
    """A file, a link or a folder, where it is there."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


_locks: set[int] = set()


def let_go() -> None:
    """In a process that was copied from one that holds folders: only that one holds them."""
    while _locks:
        os.close(_locks.pop())


def require_same(folder: Path, was: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to mix two studies in one folder; the sentence names what differs."""
    for what in (*now, *was):
        if was.get(what) != now.get(what):
            old, new = was.get(what), now.get(what)
            if isinstance(old, Mapping) and isinstance(new, Mapping):  # only rows that differ
                keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
                old = {key: old[key] for key in keys if key in old}
                new = {key: new[key] for key in keys if key in new}
            raise UserError(
                f"{folder} was started with {what} {_short(old)}, not {_short(new)}; resume it with"
                " the same, start over with --force, or choose another --out"
            )


def _short(value: Any) -> str:
    """A value as a sentence shows it; hashes by their start."""
    if isinstance(value, list):
        return ", ".join(str(item)[:12] for item in value[:3]) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return "none" if value is None else str(value)[:60]
