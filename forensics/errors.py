"""What may go wrong, in four kinds.

`UserError` is bad input: one sentence with the value and the cure, exit code 2.
`OutsideFailure`, one of them, is a failure of the machine, of a stored file or of an
environment while it was at work: the run stops, and no instrument makes an answer of it.
`MissingInput` is an instrument asking its case for something the case does not
have; the runner turns it into `Undefined`, never into a number. Anything else
is our own failure, exit code 3.
"""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final


class UserError(ValueError):
    """Bad input. The message is one sentence that says what is wrong and how to mend it."""


class OutsideFailure(UserError):
    """A full disk, a stored file that was changed, an environment that does not start.

    It says nothing about what was measured. So it is never an answer that a case
    keeps: it ends the run, which goes on with `--resume` once that is mended.
    """


class NoMemory(OutsideFailure):
    """The machine or its device has no memory left. Who lends memory that it can do without
    (an audit beside a training run) goes on without it.
    """


class RunInterrupted(KeyboardInterrupt):
    """The user stopped a command that makes a folder. `kept`: the folder holds what the command
    goes on with.
    """

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept


MODELS: Final = (  # what `pip install policy-forensics[models]` brings
    "torch",
    "transformers",
    "accelerate",
    "safetensors",
    "transformer_lens",
    "sae_lens",
    "nnsight",
    "einops",
    "jaxtyping",
)


class ModelsMissing(UserError):
    """The packages that open a model are not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"this needs {name}, which is not installed; `pip install 'policy-forensics[models]'`"
            " (in a clone: `pip install '.[models]'`) brings what opens models"
        )


def models_missing(error: BaseException) -> ModelsMissing | None:
    """The one sentence for an import that failed for want of those packages; `None` for any
    other error.
    """
    for at in chain_of(error):
        name = (at.name or "").partition(".")[0] if isinstance(at, ModuleNotFoundError) else ""
        if name in MODELS:
            return ModelsMissing(name)
    return None


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error and what it followed from, each once: a chain may run in a ring."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__ or at.__context__


class MissingInput(Exception):
    """The case lacks what an instrument asked for.

    `reason` says what is missing, `cure` which measurement or input would
    supply it.
    """

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(f"{reason} {cure}")
        self.reason = reason
        self.cure = cure


CURE: Final = (
    "delete it and run the command that wrote it again with --resume, or take a copy that is whole"
)


def changed(path: Path, cure: str = CURE) -> OutsideFailure:
    """What is said of a stored file that is not what was written."""
    return OutsideFailure(
        f"{path} was changed since it was written (its checksum is wrong); {cure}"
    )


FULL: Final = "; free some space and run again with --resume"
MACHINE: Final = {
    errno.ENOSPC: f"no space is left on the disk{FULL}",
    errno.EDQUOT: f"the disk quota is used up{FULL}",
    errno.EFBIG: "a file is larger than one may be here (ulimit -f); raise it and use --resume",
    errno.EMFILE: "too many files are open (ulimit -n); raise it and use --resume",
    errno.ENFILE: "too many files are open on this machine; close some and use --resume",
    errno.ENOMEM: "no memory is left; free some and run again with --resume",
    errno.EIO: "the disk failed to read or write; mend it and run again with --resume",
}
OS_ERROR: Final = re.compile(r"\(os error (\d{1,4})\)")  # what libraries in Rust say instead
NO_PLACE: Final = "No usable temporary directory"  # as `tempfile` says it
COPIES: Final = re.compile(r"\[Errno (\d{1,4})\]")  # and `shutil`, of a folder that it copies


def system_number(error: BaseException) -> int | None:
    """The system's number of an error, where it has one."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and not isinstance(error, shutil.Error):
        return error.errno
    said = COPIES if isinstance(error, shutil.Error) else OS_ERROR
    told = said.search(str(error)[:2000])
    return int(told[1]) if told else None


def outside_failure(error: BaseException) -> OutsideFailure | None:
    """The failure of the machine or of an environment that an error tells of or followed
    from; `None` where there is none.
    """
    for at in chain_of(error):
        if isinstance(at, OutsideFailure):
            return at
        number = system_number(at)
        if (told := MACHINE.get(number or 0)) is not None:
            return (NoMemory if number == errno.ENOMEM else OutsideFailure)(told)
        if isinstance(at, FileNotFoundError) and NO_PLACE in str(at):  # all of a full disk
            return OutsideFailure(f"no temporary file can be written, or TMPDIR is wrong{FULL}")
        if any(kind.__name__ == "OutOfMemoryError" for kind in type(at).__mro__):  # of torch
            return NoMemory(f"the device has no memory left ({str(at)[:200]})")
    return None


def stop_outside(error: BaseException) -> None:
    """For whoever makes data of somebody else's failure: a failure of the machine is none.
    Raises the `OutsideFailure` that an error tells of.
    """
    if (failure := outside_failure(error)) is error:
        raise error
    if failure is not None:
        raise failure from error


def stop_full(error: BaseException) -> None:
    """The same for whoever reads foreign files: one that needs too much memory is a fault of
    the file, and is told by its name.
    """
    if isinstance(error, OSError | OutsideFailure):
        stop_outside(error)


def environment_failure(error: UserError) -> OutsideFailure:
    """What an environment says that cannot go on, as what no instrument makes an answer of."""
    return error if isinstance(error, OutsideFailure) else OutsideFailure(str(error))


@contextmanager
def refused_as_missing(what: str, cure: str = "Mend what it names.") -> Iterator[None]:
    """The one way in which a `UserError` about an input becomes a missing input. A failure of
    the machine or of an environment passes as it is.
    """
    try:
        yield
    except UserError as error:
        stop_outside(error)
        raise MissingInput(f"{what}: {error}.", cure) from error
