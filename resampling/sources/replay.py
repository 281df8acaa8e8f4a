"""Actions that were recorded, taken again in the world of any task: no policy,
no sampling, fresh instances of the environment.

1. The recorded runs of a side are read as `Played` runs: what was done, what
   was handed in, what it scored.
2. `Replays.score` resets a fresh instance to a task and takes the actions, one
   after the other, until the environment ends the episode. Its score counts. A
   replay that hands in nothing scored nothing, as a run that is cut off does.
3. Where the environment raises, or knows no score, the replay is missing and
   counted, never a failure. The same actions on the same task are taken once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forensics.case import Rollouts
from forensics.errors import MissingInput
from forensics.protocols import Environment
from forensics.records import content_hash
from resampling.sources.source_study import SourceStudy

Actions = tuple[str, ...]
Ended = tuple[float | None, str | None]  # score, submission
COLUMNS = (
    "task",
    "sample",
    "id",
    "outcome",
    "end",
    "submission",
    "steps.list.element.role",
    "steps.list.element.text",
)
WIN = 0.5  # a score from which a run is a win


@dataclass(frozen=True, kw_only=True)
class PlayedRun:
    """A recorded run: its task, actions, score, and what it handed in. `prompt`:
    what it was asked.
    """

    task: str
    actions: Actions
    score: float
    submission: str | None
    prompt: str

    @property
    def won(self) -> bool:
        return self.score >= WIN


def played_runs(log: Rollouts, tasks: Sequence[str]) -> list[PlayedRun]:
    """The runs of these tasks that have a score, in an order that does not hang
    on the log's.
    """
    wanted = frozenset(tasks)
    rows = [
        row
        for row in log.rows(*COLUMNS)
        if row["task"] in wanted and row["outcome"] is not None and row["end"] != "errored"
    ]
    return [
        PlayedRun(
            task=row["task"],
            actions=tuple(s["text"] for s in row["steps"] if s["role"] == "assistant"),
            score=row["outcome"],
            submission=row["submission"],
            prompt=next((s["text"] for s in row["steps"] if s["role"] == "user"), ""),
        )
        for row in sorted(rows, key=lambda row: (row["task"], row["sample"], row["id"]))
    ]


@dataclass(kw_only=True)
class Replays:
    """Replays in one world. `taken` counts them, `missing` those without a score."""

    world: Environment
    seed: int
    taken: int = 0
    missing: int = 0
    _known: dict[tuple[str, Actions], Ended] = field(default_factory=dict)

    def score(self, task: str, actions: Actions) -> float | None:
        """What these actions score on a task, `None` where it cannot be told."""
        return self.ended(task, actions)[0]

    def ended(self, task: str, actions: Actions) -> Ended:
        """The same, with what is handed in."""
        key = task, actions
        if key not in self._known:
            self._known[key] = self._take(task, actions)
            self.taken += 1
            self.missing += self._known[key][0] is None
        return self._known[key]

    def wins(self, task: str, many: Iterable[Actions]) -> bool | None:
        """Whether any of several does; `None` where none has a score."""
        scores = [score for one in many if (score := self.score(task, one)) is not None]
        return max(scores) >= WIN if scores else None

    @property
    def missing_share(self) -> float:
        return self.missing / max(self.taken, 1)

    def _take(self, task: str, actions: Actions) -> Ended:
        start = int(content_hash(["replay", self.seed, task], 8), 16) % 2**31
        try:
            world = self.world.spawn()
            world.reset(task, start)
            for action in actions:
                result = world.step(action)
                if result.terminated or result.truncated:
                    return result.outcome, result.submission
        except Exception:  # somebody else's world: a broken replay is data, not a crash
            return None, None
        return 0.0, None


def replays_of(study: SourceStudy) -> Replays:
    """Replays in the world of a study. Raises `MissingInput` where it has none."""
    world = study.case.environment
    if world is None:
        raise MissingInput("The case has no environment.", "Name one with `--env`.")
    return Replays(
        world=world.without(*study.world) if study.world else world, seed=study.case.seed
    )


def runs_of_sides(study: SourceStudy) -> list[list[PlayedRun]]:
    """The case's own runs in that world: before, and of every after seed."""
    case = study.case
    tasks = case.tasks if study.tasks is None else study.tasks
    return [
        played_runs(case.rollouts(side, without=study.world), tasks)
        for side in ("before", *case.afters)
    ]


def by_task(runs: Sequence[PlayedRun]) -> dict[str, list[PlayedRun]]:
    """Runs by their tasks."""
    found: dict[str, list[PlayedRun]] = defaultdict(list)
    for run in runs:
        found[run.task].append(run)
    return dict(found)
