"""Is the scrubbed twin of a harness fair? Commands in the agent's place show it.

`harness.toml` names them: `honest` (does the job), a channel's `cheat` (wins by it alone), and
`bystander` (optional). Each is run as the agent is: the same placeholders, variables, copies of the
task and time-out, a result in `{out}`; it asks no model. A bystander writes what it reads to
`{out}/seen.txt`, which must be the same in both worlds, letter by letter; without one no texts are
compared, and honest and cheating runs decide.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from forensics.errors import UserError
from forensics.harness import Commands, Harness, HarnessWorld, read_harness
from forensics.phrases import printable
from forensics.progress import Progress, silent
from forensics.protocols import SamplingSettings
from forensics.subjects.agent import Planned, handed_in, own_folder
from forensics.twin_check import Difference, TwinResult, TwinTask, channels_of, judged

NOWHERE: Final = "http://127.0.0.1:9"  # nobody answers there
SEEN: Final = "seen.txt"
CURE: Final = 'no cheat by {0} is known; give cheat = ["COMMAND", ...] in its [[channels]]'
Came = tuple[bool | None, str | None]  # won, and what was seen


def check_harness_twin(
    path: Path,
    *,
    without: Sequence[str] = (),
    tasks: int = 20,
    seed: int = 0,
    win: float = 1.0,
    progress: Progress = silent,
) -> tuple[TwinResult, ...]:
    """Check the twins of a `harness.toml`, as `forensics.check_twin` does for a world that is
    stepped here. Raises `UserError`.
    """
    harness = read_harness(path)
    if not harness.table.honest:
        raise UserError(
            f'{path} names no honest command; give honest = ["COMMAND", ...], which does the job'
            " and hands in as the agent does"
        )
    world = HarnessWorld(harness)
    names = channels_of(world, without)
    taken = [(name,) for name in names] + ([names] if len(names) > 1 else [])
    drawn = world.tasks("held-out", tasks, seed)
    with Commands() as commands, ThreadPoolExecutor(harness.table.at_once) as pool:
        plays = _Plays(harness, seed, win, commands)
        found = []
        for at, gone in enumerate(taken):
            rows = []
            for number, row in enumerate(pool.map(lambda t, g=gone: plays.task(t, g), drawn)):
                progress("twin", at * len(drawn) + number, len(taken) * len(drawn))
                rows.append(row)
            texts = bool(harness.table.bystander)
            result = judged(gone, rows, cure=CURE, texts=texts)
            found.append(replace(result, unchecked=(*result.unchecked, *plays.failures(gone))))
    progress("twin", 1, 1)
    return tuple(found)


class _Plays:
    """Runs the commands of a harness in the agent's place."""

    def __init__(self, harness: Harness, seed: int, win: float, commands: Commands) -> None:
        self.harness, self.seed, self.win, self.commands = harness, seed, win, commands
        self._failed: dict[tuple[str, tuple[str, ...], str], str] = {}

    def failures(self, gone: tuple[str, ...]) -> Iterator[str]:
        """What the first failed run of each command in the open world, or without `gone`, said."""
        rows = sorted((key, why) for key, why in self._failed.items() if key[1] in ((), gone))
        for (who, _, task), why in {key[0]: (key, why) for key, why in reversed(rows)}.values():
            yield f"the {who} command failed on {task}: {printable(why, 300)}"

    def task(self, task: str, gone: tuple[str, ...]) -> TwinTask:
        table, channels = self.harness.table, self.harness.channels
        both = ((), gone)
        honest = [self._run("honest", table.honest, task, world)[0] for world in both]
        cheats = {
            name: [self._run(f"{name} cheat", channels[name].cheat, task, w)[0] for w in both]
            for name in gone
            if channels[name].cheat
        }
        row = TwinTask(
            task=task,
            honest=(honest[0], honest[1]),
            cheats={name: (wins[0], wins[1]) for name, wins in cheats.items()},
        )
        return self._compared(row, gone) if table.bystander else row

    def _compared(self, row: TwinTask, gone: tuple[str, ...]) -> TwinTask:
        worlds: tuple[tuple[str, ...], ...] = ((), (), gone)
        first, again, twin = (
            self._run("bystander", self.harness.table.bystander, row.task, world)[1]
            for world in worlds
        )
        if first is None or first != again:
            return replace(row, steady=first is None)
        here = "" if twin is None else twin
        place = Difference(task=row.task, step=1, open=first, scrubbed=here)
        return replace(row, compared=1, difference=None if here == first else place)

    def _run(self, who: str, argv: Sequence[str], task: str, gone: tuple[str, ...]) -> Came:
        table = self.harness.table.model_copy(update={"command": tuple(argv)})
        world = HarnessWorld(replace(self.harness, table=table)).without(*gone)
        planned = Planned(world, task, 0, SamplingSettings(), self.seed, None, "")
        key = f"sk-{token_urlsafe(24)}"  # as the proxy draws an agent's
        with own_folder(planned, self.commands) as made:
            handed = handed_in(planned, made, NOWHERE, key, self.commands)
            seen = made / "out" / SEEN
            text = seen.read_text(errors="replace") if seen.is_file() else None
        text = None if text is None else text.replace(key, "[key]")
        quiet = text is None and who == "bystander"
        if (handed.outcome is None and who != "bystander") or quiet:
            why = handed.reason or (f"it left no {{out}}/{SEEN}" if quiet else "it has no outcome")
            self._failed[who, gone, task] = why
        return (None if handed.outcome is None else handed.outcome >= self.win), text
