"""The world of somebody else's agent: tasks, channels, and what scrubs them."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from forensics.errors import UserError
from forensics.harbor_tasks import PARTS, lay_over
from forensics.harness.harness_file import Harness, HarnessChannel
from forensics.harness.harness_tasks import HarnessTask
from forensics.played_elsewhere import PlayedElsewhere
from forensics.protocols import Channel
from forensics.world import SPLITS


class HarnessWorld(PlayedElsewhere):
    """`needed` is there where `harness.toml` names what an honest solver needs."""

    def __init__(self, harness: Harness) -> None:
        of_split = {
            split: [task.name for task in harness.tasks.values() if task.split == split]
            for split in SPLITS
        }
        channels: list[Channel] = [one.channel for one in harness.table.channels]
        super().__init__(harness.table.name, of_split, channels, harness.identity)
        self.harness = harness
        if harness.table.needed is not None:
            self.needed = harness.table.needed

    def task(self, name: str) -> HarnessTask:
        """A task as it is in this world: its scrubbed twin where one stands for it."""
        for channel in self.scrubbed:
            if twins := self.harness.twins.get(channel):
                return twins[name]
        return self.harness.tasks[name]

    @property
    def taken_out(self) -> Iterator[HarnessChannel]:
        """The channels that are scrubbed, as the harness knows them."""
        return (self.harness.channels[name] for name in self.scrubbed)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that scrub this world."""
        return {key: text for one in self.taken_out for key, text in one.environment.items()}

    def command(self, task: HarnessTask, seed: int, out: Path, folder: Path | None) -> list[str]:
        """The argv of an episode."""
        filled = dict(task.fields) | {
            "task": task.name,
            "seed": str(seed),
            "without": ",".join(self.scrubbed),
            "out": str(out),
            "prompt": task.prompt or "",
            "task_dir": str(folder or ""),
            "python": sys.executable,
        }
        try:
            words = [word.format_map(filled) for word in self.harness.table.command]
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the task {task.name} of {self.name} has no {error} for the command; add it"
            ) from None
        return [*words, *(word for one in self.taken_out for word in one.option)]

    def lay_out(self, task: HarnessTask, place: Path) -> Path | None:
        """A copy of the task's folder, scrubbed; `None` where tasks are no folders."""
        if task.folder is None:
            return None
        shutil.copytree(task.folder, place, symlinks=True)
        for one in self.taken_out:
            if one.overlay:
                self._lay_over(self.harness.folder / one.overlay, task, place)
        return place

    @staticmethod
    def _lay_over(overlay: Path, task: HarnessTask, place: Path) -> None:
        """Parts of a task go over every task, what lies under a task's name over that one alone."""
        own = overlay / task.name
        parts = [overlay / name for name in PARTS] + (sorted(own.iterdir()) if own.is_dir() else [])
        for part in parts:
            if part.exists():
                lay_over(part, place / part.name)
