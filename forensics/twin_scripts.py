"""Scripts that play a world: the reader's own trusted code, or a list of actions.

Two kinds of file:

* Python (`solver.py`, or `solver.py:NAME`): a function `act(observations, task)` (or `NAME`) that
  is given every text read so far, the prompt first, and the name of the task, and returns the
  next action; `None` where it has nothing left to do. *The file is run as it
  stands, with your rights.*
* Anything else: one action a line, in this order; `{task}` is replaced by the name of the task.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from forensics.errors import UserError, stop_outside

Act = Callable[[Sequence[str], str], str | None]
CURE = "a Python file with act(observations, task), or a text file with one action a line"


@dataclass(frozen=True)
class Script:
    """Something that acts, and the name under which mistakes of it are told."""

    name: str
    act: Act

    def next(self, observations: Sequence[str], task: str) -> str | None:
        """The next action. Raises `UserError` with the line where the script raised, and for what
        is no text.
        """
        try:
            action = self.act(list(observations), task)
        except Exception as error:
            stop_outside(error)
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise UserError(
                f"{self.name} raised {type(error).__name__} in line {where.lineno} of"
                f" {Path(where.filename).name} on task {task} ({error}); mend it"
            ) from error
        if action is not None and not isinstance(action, str):
            raise UserError(
                f"{self.name} returned {type(action).__name__} on task {task} instead of the text"
                " of an action; return a str, or None where nothing is left to do"
            )
        return action


def script_of(given: "str | Path | Act | Script", role: str) -> Script:
    """A script from a path, `PATH:FUNCTION` or a function. Raises `UserError`."""
    if isinstance(given, Script):
        return given
    if callable(given):
        return Script(f"the {role} script", given)
    path, _, function = str(given).partition(".py:")
    file = Path(f"{path}.py" if function else path)
    if not file.is_file():
        raise UserError(f"there is no {role} script {file}; give {CURE}")
    act = _function(file, function or "act") if file.suffix == ".py" else _listed(file)
    return Script(f"the {role} script {file.name}", act)


def _function(file: Path, name: str) -> Act:
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    except Exception as error:
        stop_outside(error)
        raise UserError(
            f"{file} cannot be run ({type(error).__name__}: {error}); mend it"
        ) from error
    act = getattr(module, name, None)
    if not callable(act):
        raise UserError(f"{file} has no function {name}; write def {name}(observations, task)")
    found: Act = act
    return found


def _listed(file: Path) -> Act:
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise UserError(f"{file} is not text in UTF-8; give {CURE}") from None
    if not lines:
        raise UserError(f"{file} holds no actions; give {CURE}")
    return in_turn(lines)


def in_turn(lines: Sequence[str]) -> Act:
    """These actions one after another, whatever comes back."""

    def act(observations: Sequence[str], task: str) -> str | None:
        done = len(observations) - 1
        return lines[done].replace("{task}", task) if done < len(lines) else None

    return act


def shipped(world: object) -> Mapping[str, Act]:
    """The scripts that a world brings along (`forensics.protocols.Rehearsed`)."""
    return dict(getattr(world, "scripts", {}))
