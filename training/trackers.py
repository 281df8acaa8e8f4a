"""A run's metrics in wandb or trackio, beside its folder, where `[logging]` asks for it.

1. Both packages have one interface, and are imported only then; where and how they
   send is theirs to be told (`wandb login`, `WANDB_MODE=offline`, `TRACKIO_DIR`).
2. What goes out is the recipe, the seed and the numbers of `metrics.jsonl`: no episode,
   and none of what wandb notes of a machine (console, git, packages, hardware).
3. One that does not start is said before anything is trained. One that fails later is
   warned of once and left out; the run goes on.
4. A resumed run goes on under the name and the number that it was begun with, which
   its folder keeps.
"""

import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field

from forensics.errors import UserError, stop_outside
from forensics.records import read_json, write_json
from training.sections import Section

FILE = "logging.json"
QUIET: dict[str, dict[str, Any]] = {
    "wandb": {
        "settings": {
            "console": "off",
            "disable_git": True,
            "x_disable_meta": True,
            "x_disable_stats": True,
            "x_save_requirements": False,
        }
    },
    "trackio": {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False},
}
logger = logging.getLogger("forensics")


class LoggingSection(Section):
    """`to`: the trackers. `project`, and the run's `name` there (without it that of its
    folder), to which a number of the run's own is added.
    """

    to: Annotated[tuple[Literal["wandb", "trackio"], ...], Field(strict=False, min_length=1)]
    project: str = Field("policy-forensics", min_length=1)
    name: str | None = Field(None, min_length=1)


def check_trackers(section: LoggingSection | None) -> None:
    """Raise `UserError` for a tracker that is not installed."""
    for name in section.to if section else ():
        if find_spec(name) is None:
            raise UserError(
                f"[logging] names {name}, which is not installed; run `pip install {name}`, or take"
                " it out of the recipe (metrics.jsonl is always written)"
            )


class Trackers:
    """The trackers of one run. Raises `UserError` where one does not start."""

    def __init__(self, section: LoggingSection, folder: Path, config: Mapping[str, Any]) -> None:
        check_trackers(section)
        number = _number(folder)
        name = f"{section.name or folder.resolve().name}-{number}"
        self._begun: dict[str, Any] = {}
        for tracker in dict.fromkeys(section.to):
            own = QUIET[tracker] | ({"id": number} if tracker == "wandb" else {})
            try:
                with redirect_stdout(sys.stderr):  # a command's answer is alone on its own
                    module = import_module(tracker)
                    module.init(
                        project=section.project,
                        name=name,
                        config=dict(config),
                        resume="allow",
                        **own,
                    )
                self._begun[tracker] = module
            except Exception as error:
                stop_outside(error)
                self.close()
                raise UserError(
                    f"{tracker} did not start ({_line(error)}); mend that, or take it out of"
                    " [logging]"
                ) from error

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Points of some curves at a step."""
        for tracker in list(self._begun):
            self._ask(tracker, "log", dict(values), step=step)

    def close(self) -> None:
        for tracker in list(self._begun):
            self._ask(tracker, "finish")
        self._begun = {}

    def _ask(self, tracker: str, what: str, *given: Any, **more: Any) -> None:
        try:
            with redirect_stdout(sys.stderr):
                getattr(self._begun[tracker], what)(*given, **more)
        except Exception as error:
            stop_outside(error)
            del self._begun[tracker]
            logger.warning(
                "%s failed (%s) and gets nothing more of this run; metrics.jsonl has everything",
                tracker,
                _line(error),
            )


def _number(folder: Path) -> str:
    """What tells this run from others of its name; kept in the folder."""
    path = folder / FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {"number": uuid4().hex[:8]})
    return str(read_json(path)["number"])


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
