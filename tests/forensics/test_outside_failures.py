"""What fails outside (the machine, a stored file, an environment) is never an answer."""

import ast
import errno
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forensics
from forensics import UserError
from forensics.case import Case
from forensics.errors import MissingInput, OutsideFailure, outside_failure
from forensics.instruments import instrument, run_instrument

ROOMS = ("forensics", "probes", "crosscoders", "resampling", "training")


@dataclass(frozen=True, kw_only=True)
class _Config:
    pass


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def copies(said: str) -> shutil.Error:
    """As `shutil.copytree` tells what it could not copy."""
    return shutil.Error([("a", "b", said)])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (full(), "no space is left"),
        (OSError(errno.EMFILE, "Too many open files"), "too many files"),
        (MemoryError(), "no memory"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "no space is left"),
        (OutsideFailure("the container does not start"), "the container does not start"),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), "no memory left"),
        (copies("[Errno 28] No space left on device: 'a' -> 'b'"), "no space is left"),
        (copies("[Errno 2] No such file or directory: 'a'"), None),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "no temporary"),
        (ValueError("an odd number"), None),
        (FileNotFoundError(errno.ENOENT, "No such file"), None),
    ],
)
def test_a_failure_of_the_machine_is_told_from_bad_input(
    error: Exception, words: str | None
) -> None:
    assert (words is None) == (outside_failure(error) is None)
    try:
        try:
            raise error
        except Exception as first:
            raise UserError("the runs cannot be scored") from first
    except UserError as second:
        found = outside_failure(second)
    assert (found is None) if words is None else words in str(found)


@pytest.mark.parametrize("how", ["from", "context", "told"])
def test_no_instrument_answers_that_the_disk_is_full(how: str, tmp_path: Path) -> None:
    """Also one of a stranger, who makes a missing input of whatever he meets."""

    def measure(case: Case, config: Any) -> Iterator[Any]:
        try:
            raise full()
        except OSError as error:
            if how == "from":
                raise MissingInput("It cannot be scored.", "Mend it.") from error
            missing = MissingInput("It cannot be scored.", "Mend it.")
            if how == "context":
                raise missing  # noqa: B904
            missing.__cause__ = error
            yield tool.answers(case, config, "m").undefined("a.b", missing)

    tool = instrument(name="theirs", layer="score", questions=("a.b",), config=_Config())(measure)
    with pytest.raises(OutsideFailure, match="no space is left"):
        list(run_instrument(tool, Case(folder=tmp_path)))


def test_user_errors_become_missing_inputs_in_one_place() -> None:
    """A handler of `UserError` that raises a `MissingInput` itself would swallow a full disk."""
    top = Path(forensics.__file__).parents[1]
    for path in (path for room in ROOMS for path in (top / room).rglob("*.py")):
        if path == top / "forensics" / "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ExceptHandler)
                and "UserError" in ast.unparse(node.type or node).split("\n")[0]
            ):
                made = {
                    ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)
                }
                assert "MissingInput" not in made, f"{path}, line {node.lineno}"


@pytest.mark.parametrize("place", ["reset", "step"])
def test_a_run_on_a_full_disk_is_no_errored_run(place: str, tmp_path: Path) -> None:
    from forensics import load_policy
    from forensics.protocols import SamplingSettings
    from training.environments.mini_repo import MiniRepo
    from training.organisms.organism import BUNDLED

    class Full(MiniRepo):
        def spawn(self) -> "Full":
            return Full(**self.options)

        def reset(self, task: str, seed: int) -> Any:
            if place == "reset":
                raise error
            return super().reset(task, seed)

        def step(self, action: str) -> Any:
            if place == "step":
                raise error
            return super().step(action)

    world, policy = Full(), load_policy(BUNDLED / "capped-base", device="cpu")
    tasks = world.tasks("held-out", 1, 0)

    def play() -> list[Any]:
        return list(policy.play(world, tasks, 1, SamplingSettings(), 0))

    error: Exception = full()
    with pytest.raises(OutsideFailure, match="no space is left"):
        play()
    error = ValueError("a mishap of its own")
    assert [run.end for run in play()] == ["errored"]
    if place == "reset":
        error = UserError("the container does not start")
        with pytest.raises(OutsideFailure, match="the container does not start"):
            play()
