"""The folder that a command writes: never over something else without being told to."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.investigation.folder import make_folder
from forensics.records.files import write_atomically

MARK: Final = (
    ".forensics"  # says that a command of ours made the folder, so that --force may empty it
)


def claim_folder(out: Path, *, force: bool, resume: bool) -> Path:
    """Make `out` ready to be written.

    A folder that holds something needs `resume` (it is left as it is) or
    `force` (what a command of ours wrote there is deleted; in a folder that
    none of them made, nothing is). Raises `UserError` otherwise.
    """
    if force and resume:
        raise UserError("--resume and --force exclude each other: go on, or start over")
    make_folder(out)
    if any(out.iterdir()) and not (force or resume):
        raise UserError(
            f"{out} is not empty; use --resume to go on, --force to start over, or another --out"
        )
    if force and (out / MARK).is_file():
        for entry in out.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    write_atomically(out / MARK, "")
    return out


@contextmanager
def claimed_folder(out: Path, *, force: bool, resume: bool) -> Iterator[Path]:
    """`claim_folder` for as long as a command runs; refused before anything was
    written, it leaves no folder.
    """
    claim_folder(out, force=force, resume=resume)
    try:
        yield out
    except UserError:
        if [entry.name for entry in out.iterdir()] == [MARK]:
            shutil.rmtree(out)
        raise
