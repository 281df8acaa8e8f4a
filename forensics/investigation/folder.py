"""The case folder: who may write it, what it was started with, and what is
already there.

`case.json` is written before anything is measured, so that a run that was
killed can be continued, and only with the same inputs. Identities are compared,
never paths: a checkpoint may have moved.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records.files import as_user_error, read_json

CASE: Final = "case.json"
EVIDENCE: Final = "evidence.jsonl"
FINDINGS: Final = "findings.jsonl"
ABLATION: Final = "ablation.jsonl"
ANSWERS: Final = "answers"  # what finished instruments answered, kept until the case is complete
DRAFT: Final = ".*.draft"
REVIEW: Final = (
    "review.jsonl"  # what a second reader said of the findings; its answers lie in `review/`
)
UNREADABLE: Final = "unreadable.jsonl"  # files and rows of logs that could not be read
OWN_FILES: Final = (
    CASE,
    EVIDENCE,
    FINDINGS,
    ABLATION,
    UNREADABLE,
    REVIEW,
    "report.html",
    "report.md",
    "report.txt",
    "report.json",
)
OWN_FOLDERS: Final = ("resampled", "trajectories", "scores", ANSWERS, "figures", "review")


@contextmanager
def open_case_folder(folder: Path, *, resume: bool, force: bool) -> Iterator[dict[str, Any] | None]:
    """Hold a case folder; yields what its `case.json` says when a case is
    resumed, else `None`.

    Raises `UserError` where the folder is in use, or holds something and
    neither `resume` nor `force` is given. Nothing is deleted here: a case that
    is started over stays whole until its new inputs were found good.
    """
    if resume and force:
        raise UserError(
            "--resume and --force exclude each other: go on with the case, or start it over"
        )
    make_folder(folder)
    with _held(folder):
        if _content(folder) and not resume and not force:
            raise UserError(
                f"{folder} is not empty; use --resume to go on, --force to start over, or another"
                " --out"
            )
        try:
            yield _started(folder) if resume else None
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()


def make_folder(folder: Path) -> None:
    """Make a folder that can be written, or say in one sentence why it cannot be."""
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
def _held(folder: Path) -> Iterator[None]:
    """One run a folder: two would draw over each other's files. The lock ends with the process."""
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


_locks: set[int] = set()


def let_go() -> None:
    """In a process that was copied from one that holds case folders: only that one holds them."""
    while _locks:
        os.close(_locks.pop())


def clear_case(folder: Path) -> None:
    """Start over: only what a case wrote goes, and only where there is a case."""
    if not (folder / CASE).is_file():
        return
    for name in OWN_FILES:
        (folder / name).unlink(missing_ok=True)
    for name in OWN_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)


def remove_drafts(folder: Path) -> None:
    """Half-written files that a killed run left."""
    for place in (folder, *(folder / name for name in OWN_FOLDERS)):
        for draft in place.glob(DRAFT):
            draft.unlink(missing_ok=True)


def _content(folder: Path) -> list[str]:
    """What a folder holds. A draft that a killed run left is nothing yet."""
    return sorted(path.name for path in folder.iterdir() if not fnmatch(path.name, DRAFT))


def _started(folder: Path) -> dict[str, Any] | None:
    """What a case that is resumed was started with; an empty folder is a case
    that did not begin.
    """
    others = _content(folder)
    if not others:
        return None
    if CASE not in others:
        raise UserError(
            f"{folder} holds {others[0]} but no {CASE}, so nothing can be resumed; choose another"
            " --out"
        )
    content = read_json(folder / CASE)
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), dict):
        raise UserError(f"{folder / CASE} states no inputs; start the case over with --force")
    return content


def require_same_inputs(started: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to mix two cases in one folder; the sentence names what differs."""
    old, new = _identities(started), _identities(now)
    for what in new:
        if old.get(what) != new[what]:
            was, given = _apart(old.get(what), new[what])
            raise UserError(
                f"this case was started with {what} {_short(was)}, not {_short(given)}; resume it"
                " with the same, or start over with --force"
            )
    if missing := [what for what in old if what not in new]:
        raise UserError(
            f"this case was started with {missing[0]} too; resume it with the same, or use --force"
        )


def _apart(old: Any, new: Any) -> tuple[Any, Any]:
    """Of two tables, only the rows in which they differ."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return old, new
    differing = [
        key
        for key in (*old, *(key for key in new if key not in old))
        if old.get(key) != new.get(key)
    ]
    first, second = ({key: table[key] for key in differing if key in table} for table in (old, new))
    return first, second


def _identities(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a case this case, by the words in which a difference is told."""
    try:
        checkpoints = {"the before checkpoint": inputs["before"]}
        checkpoints |= {
            f"the after checkpoint number {i + 1}": after for i, after in enumerate(inputs["after"])
        }
        budget = dict(inputs["budget"])
        settings = budget.pop("settings")
        return {
            **{what: [value["weights"], value["tokenizer"]] for what, value in checkpoints.items()},
            "the environment": inputs["environment"]["name"],
            "the environment options": inputs["environment"]["options"],
            "seed": inputs["seed"],
            **(
                {"the training record": inputs["training"]["record"]}
                if "training" in inputs
                else {}
            ),
            **{f"a budget of {name}": value for name, value in budget.items()},
            **{
                f"a sampling {name.replace('_', ' ')} of": value for name, value in settings.items()
            },
        }
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(
            f"{CASE} states its inputs in another form; start the case over with --force"
        ) from None


def _short(value: Any) -> str:
    """A value as a sentence shows it; a checkpoint by the start of its hash."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return str(value[0])[:12]
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return str(value)
