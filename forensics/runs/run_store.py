"""Runs on disk, by subject, condition and tasks.

1. Every request has a content address: the subject's weights, the world and its options, the
   condition, the tasks, the settings and the seed. What is there is never played again: runs in
   an altered world are copied where that world was asked of the same task among others.
2. Tasks are played in fixed chunks, and each chunk is written atomically. It depends on its
   request, and those before it, alone, so a case that was killed goes on and gives the same bytes.
3. A run with actions refused, with an altered or a scrubbed world or with other settings is
   coupled with the open run of its task and sample: the same random numbers, so that both are
   equal up to the first draw that differs.
4. A world that raises in each of its first episodes is broken, and is played no further.

A subject's runs are stored by one `Condition`, whose content says everything that can change
them: channels that are scrubbed from the world, actions that are refused and drawn again, a
world that is altered, activations that are steered, and another way of drawing tokens.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from forensics.budget import Budget
from forensics.errors import MissingInput, OutsideFailure, UserError, environment_failure
from forensics.phrases import percent, plural, printable
from forensics.progress import Pace, Progress, ticking
from forensics.protocols import (
    Alteration,
    Constraint,
    Environment,
    Intervention,
    Policy,
    SamplingSettings,
)
from forensics.records import Trajectory, content_hash, read_json, write_json
from forensics.records.tables import read_trajectories, write_trajectories
from forensics.records.trajectory import LAST_ACTION_CUT, TOKEN_LIMIT, WORLD_RAISED
from forensics.rollout_logs import Rollouts
from forensics.world import environment_key


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`scrubbed`: names of channels, sorted. `refused`: which actions are refused. `altered`:
    how what the policy is shown differs. `steered`: changes of activations. `sampling`:
    `None` draws tokens as the budget says.
    """

    scrubbed: tuple[str, ...] = ()
    refused: Constraint | None = None
    altered: Alteration | None = None
    steered: tuple[Intervention, ...] = ()
    sampling: SamplingSettings | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scrubbed", tuple(sorted(self.scrubbed)))
        object.__setattr__(self, "steered", tuple(self.steered))

    @property
    def key(self) -> str:
        """A hash of the content: two conditions with one key give one subject the same runs."""
        settings = None if self.sampling is None else self.sampling.content()
        return content_hash([self.content(), settings])

    @property
    def changed(self) -> bool:
        """Whether more than the channels of the world differs from the open world."""
        return bool(self.refused or self.altered or self.steered or self.sampling)

    @property
    def said(self) -> str:
        """The condition in words: `without git-history, prompts with their rows shuffled`."""
        drawn = None if self.altered else self.sampling
        parts = [
            f"without {' and '.join(map(printable, self.scrubbed))}" if self.scrubbed else "",
            *(one.said or printable(one.name) for one in (self.refused, self.altered) if one),
            "activations changed" if self.steered else "",
            f"drawn at temperature {drawn.temperature:g}" if drawn else "",
        ]
        return ", ".join(filter(None, parts)) or "open world"

    def content(self) -> dict[str, Any]:
        """What the content address of a request holds of it, the sampling settings apart."""
        coupled = (self.refused or self.sampling) and not self.steered
        return {
            "without": list(self.scrubbed),
            "constraint": self.refused.name if self.refused else None,
            "interventions": [f"{change.site}:{change.name}" for change in self.steered],
            # younger than the oldest folders; a coupled run is another than an uncoupled one
            **({"altered": self.altered.name} if self.altered else {}),
            **({"coupled": True} if coupled else {}),
        }


OPEN = Condition()
MOST: Final = 16  # things that are made of stored runs: the scores and kinds of one side, say
Made = TypeVar("Made")


class Kept:
    """Nothing that a case measures depends on what is kept here."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._open: dict[str, Policy] = {}

    def made(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once; `MOST` at a time, the oldest goes first."""
        if key not in self._made:
            made = make()
            if len(self._made) >= MOST:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        found: Made = self._made[key]
        return found

    def policy(self, subject: str, load: Callable[[], Policy]) -> Policy:
        """The policy of a subject, loaded now; the one before it is dropped."""
        if subject not in self._open:
            self._open.clear()  # one model in memory at a time
            self._open[subject] = load()
        return self._open[subject]


TASKS_PER_CHUNK = 256
FIRST, FIRST_TASKS = 8, 4  # episodes on so many tasks: a fault of one task is not the world's
ALIKE = "alike.json"  # the files of each altered world: by what their requests share, names
ROWS = "rows.json"  # how many rows a batch of each policy has, where memory decides


class Player(NamedTuple):
    """Who plays: the subject's name, its identity, what opens its policy, and what it is for who
    waits (`after training`).
    """

    name: str
    identity: str
    open: Callable[[], Policy]
    said: str


class Request(NamedTuple):
    """Where the runs of a subject under a condition lie, and what each of the files holds:
    tasks, and the seed that they are played with. `label` says in words what is played;
    `alike`: what all requests share whose runs in an altered world differ by their tasks alone.
    """

    key: str
    label: str
    paths: tuple[Path, ...]
    parts: tuple[tuple[tuple[str, ...], int], ...]
    alike: str

    @property
    def is_there(self) -> bool:
        return all(path.exists() for path in self.paths)


@dataclass(frozen=True, kw_only=True)
class RunStore:
    """The runs of one case. `world`: the open one; `tasks`: the case's own."""

    folder: Path
    world: Environment
    tasks: tuple[str, ...]
    budget: Budget
    seed: int

    def request(
        self, who: Player, condition: Condition, tasks: tuple[str, ...] | None = None
    ) -> Request:
        """What `rollouts` reads or plays. `tasks`: all of the case's unless given."""
        chosen = self.tasks if tasks is None else tasks
        content = self._content(who, condition, chosen)
        coupled = not condition.steered and (
            condition.changed or (bool(condition.scrubbed) and tasks is None)
        )
        known, root = (
            (self.tasks, self._content(who, OPEN, self.tasks)) if coupled else (chosen, content)
        )
        place = {task: number // TASKS_PER_CHUNK for number, task in enumerate(known)}
        parts: dict[int, list[str]] = {}
        for task in chosen:  # others than the case's own stand by themselves
            parts.setdefault(place.get(task, len(known)), []).append(task)
        world = "-".join(("without", *condition.scrubbed)) if condition.scrubbed else "open"
        kept_apart = "altered-" if condition.changed or tasks is not None else ""
        name, key = f"{who.name}-{kept_apart}{world}", content_hash(content)
        folder = self.folder / "trajectories"
        some = () if chosen == self.tasks else (plural(len(chosen), "task"),)
        return Request(
            key=key,
            label=", ".join((who.said, condition.said, *some)),
            paths=tuple(folder / f"{name}-{key}-{at:04d}.parquet" for at in range(len(parts))),
            parts=tuple(
                (tuple(part), int(content_hash([root, number], 15), 16))
                for number, part in sorted(parts.items())
            ),
            alike=content_hash(content | {"tasks": None}) if coupled and condition.changed else "",
        )

    def rollouts(
        self, who: Player, condition: Condition, request: Request, progress: Progress, pace: Pace
    ) -> Rollouts:
        """The runs of a request; what is not there is played now."""
        world = self.world.without(*condition.scrubbed) if condition.scrubbed else self.world
        number = sum(len(tasks) for tasks, _ in request.parts) * self.budget.samples
        tick = ticking(progress, request.label, number)
        for at, (path, (tasks, seed)) in enumerate(zip(request.paths, request.parts, strict=True)):
            if path.exists():
                tick(len(tasks) * self.budget.samples)
                continue
            there, policy = self._there(request, tasks), None
            runs: Iterator[Trajectory] = iter(())
            if left := tuple(task for task in tasks if task not in there):
                policy = self._sized(able(who, condition))
                play = policy.play(
                    condition.altered.of(world) if condition.altered else world,
                    left,
                    self.budget.samples,
                    condition.sampling or self.budget.settings,
                    seed,
                    condition.refused,
                    condition.steered,
                )
                runs = _declared(play, self.world)
                if not condition.changed:
                    runs = _raising_no_more(runs, who.name, world, len(self.tasks), self.budget)
                if condition == OPEN and at == 0:
                    runs = _telling_of_cuts(runs, who.name, self.budget.settings)
            write_trajectories(path, _ticked(_merged(tasks, there, pace.timed(runs)), tick))
            if request.alike:
                known = self._noted(ALIKE)
                self._note(
                    ALIKE,
                    known
                    | {
                        request.alike: list(
                            dict.fromkeys([*known.get(request.alike, ()), path.name])
                        )
                    },
                )
            if policy is not None:
                self._sized(policy)  # fewer rows by now, perhaps
        progress(request.label, number, number)  # a world may give fewer
        return Rollouts(key=request.key, paths=request.paths)

    def _there(self, request: Request, tasks: tuple[str, ...]) -> dict[str, list[Trajectory]]:
        """The runs of these tasks that lie in other files of the same altered world, of tasks that
        were played to the last sample.
        """
        found: dict[str, list[Trajectory]] = {}
        folder = self.folder / "trajectories"
        noted = [folder / name for name in self._noted(ALIKE).get(request.alike, ())]
        for path in filter(Path.is_file, noted):  # a broken one is deleted, as its sentence says
            runs: dict[str, list[Trajectory]] = {}
            for run in read_trajectories(path):
                runs.setdefault(run.task, []).append(run)
            whole = {task: its for task, its in runs.items() if len(its) == self.budget.samples}
            found = {task: whole[task] for task in tasks if task in whole} | found
        return found

    def _sized(self, policy: Policy) -> Policy:
        """The policy with the rows of a batch that the case was begun with, and those noted:
        on a GPU they depend on what memory is free (`forensics.policies.kv_cache`).
        """
        room = getattr(policy, "room", None)
        if room is None or not room.stated:
            return policy
        known = self._noted(ROWS)
        earlier = known.get(policy.identity, room.stated)
        room.restore(earlier | {"rows": min(earlier["rows"], room.stated["rows"])})
        if known.get(policy.identity) != room.stated:
            self._note(ROWS, known | {policy.identity: room.stated})
        return policy

    def _noted(self, name: str) -> dict[str, Any]:
        path = self.folder / "trajectories" / name
        return read_json(path) if path.exists() else {}

    def _note(self, name: str, content: dict[str, Any]) -> None:
        path = self.folder / "trajectories" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)

    def _content(self, who: Player, condition: Condition, tasks: tuple[str, ...]) -> dict[str, Any]:
        return {
            "side": who.name,
            "checkpoint": who.identity,
            "environment": environment_key(self.world),
            "tasks": content_hash(list(tasks)),
            "samples": self.budget.samples,
            "settings": (condition.sampling or self.budget.settings).content(),
            "seed": self.seed,
            **condition.content(),
        }


def _ticked(runs: Iterable[Trajectory], tick: Callable[[int], None]) -> Iterator[Trajectory]:
    """The same runs, each of which is told."""
    for run in runs:
        yield run
        tick(1)


def _merged(
    tasks: Iterable[str], there: Mapping[str, list[Trajectory]], played: Iterable[Trajectory]
) -> Iterator[Trajectory]:
    """The runs that are there and those that are `played`, in the order of the tasks."""
    groups = groupby(played, key=lambda run: run.task)
    name, group = next(groups, (None, iter(())))
    for task in tasks:
        if task in there:
            yield from there[task]
        elif task == name:
            yield from group
            name, group = next(groups, (None, iter(())))


def _declared(runs: Iterable[Trajectory], world: Environment) -> Iterator[Trajectory]:
    """The runs, as long as they show no shortcut that the open world does not declare."""
    known = {channel.name for channel in world.channels}
    for run in runs:
        for channel in (name for step in run.steps for name in step.channels):
            if channel not in known:
                raise environment_failure(
                    UserError(
                        f"the world {world.name} showed the channel '{channel}' on task"
                        f" {run.task}, which its `channels` do not declare; they declare:"
                        f" {', '.join(sorted(known)) or 'none'}"
                    )
                )
        yield run


def _raising_no_more(
    runs: Iterable[Trajectory], name: str, world: Environment, tasks: int, budget: Budget
) -> Iterator[Trajectory]:
    """The runs. Raises `OutsideFailure` where the world raised in each of the first ones, or in
    all of a case that has no more of them.
    """
    least, spread = min(FIRST, tasks * budget.samples), min(FIRST_TASKS, tasks)
    failed, seen = 0, set[str]()
    for number, run in enumerate(runs, 1):
        why = run.end_reason or ""
        failed += run.end == "errored" and why.startswith(WORLD_RAISED)
        seen.add(run.task)
        if failed == number >= least and len(seen) >= spread:
            raise OutsideFailure(
                f"the world {world.name} failed in each of the first {number} episodes of {name},"
                f" the last of them with {printable(why.removeprefix(WORLD_RAISED).strip(), 300)};"
                " mend the world, and go on with --resume"
            )
        yield run


def _telling_of_cuts(
    runs: Iterable[Trajectory], name: str, settings: SamplingSettings
) -> Iterator[Trajectory]:
    """The runs; where a limit on tokens cut off half of them or more, a warning behind them."""
    cut = number = 0
    for run in runs:
        number += 1
        cut += (run.end_reason or "").startswith((LAST_ACTION_CUT, TOKEN_LIMIT))
        yield run
    if number and 2 * cut >= number:
        logging.getLogger("forensics").warning(
            "%s of the runs of %s were cut off at %d tokens a turn, %d in all; if training had"
            " other limits, play with them (--max-turn-tokens, --max-tokens): what is measured is"
            " skill within these",
            percent(cut / number),
            name,
            settings.max_turn_tokens,
            settings.max_tokens,
        )


def able(who: Player, condition: Condition) -> Policy:
    """The subject's policy. Raises `MissingInput` where it cannot refuse actions and must."""
    policy = who.open()
    if condition.refused is not None and "constraint" not in policy.capabilities:
        raise MissingInput(
            f"The policy `{who.name}` cannot refuse an action and draw it again.",
            "Give a checkpoint that is run here, or a backend with the capability `constraint`.",
        )
    return policy
