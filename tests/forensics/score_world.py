"""Planted truth for the score layer and the verdict: runs with known rates, and
a case made of files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from forensics.case import Case, Rollouts
from forensics.layers.decomposition import OPEN, Runs, World, runs_from
from forensics.layers.score import ScoreConfig, WorldRuns, findings
from forensics.protocols import Channel
from forensics.records import Evidence, Interval, Provenance, Step, Trajectory, Undefined
from forensics.records.tables import write_trajectories

LEAK: World = ("git-history",)
PROVENANCE = Provenance(instrument="test")
Outcome = tuple[float | None, str]  # score, how it ended
Logs = Mapping[tuple[str, World], Mapping[str, Sequence[Outcome]]]  # side and world, then task


class TinyWorld:
    """As much of an environment as the score layer looks at."""

    name = "tiny"
    options: Mapping[str, str] = {}

    def __init__(self, *channels: str) -> None:
        self.channels = tuple(
            Channel(name=name, family="disclosure", attempts=("look",), description="")
            for name in channels
        )


def tasks_named(count: int) -> list[str]:
    return [f"task-{number:04d}" for number in range(count)]


def drawn(
    rates: np.ndarray, samples: int, generator: np.random.Generator, unfinished: float = 0.0
) -> Runs:
    """`samples` runs a task, each a win at its task's rate; a share never hands
    in and so never wins.
    """
    broken = generator.random((len(rates), samples)) < unfinished
    wins = (generator.random((len(rates), samples)) < rates[:, None]) & ~broken
    return runs_of(np.stack([wins, broken], axis=-1).astype(float))


def runs_of(table: np.ndarray) -> Runs:
    """Runs from `[tasks, runs, 2]`."""
    count, samples, _ = table.shape
    return runs_from(
        [task for task in tasks_named(count) for _ in range(samples)], table.reshape(-1, 2)
    )


def reading_of(
    open_pair: tuple[Runs, Sequence[Runs]], scrubbed_pair: tuple[Runs, Sequence[Runs]]
) -> WorldRuns:
    """One channel, both worlds."""
    (before, afters), (before_scrubbed, afters_scrubbed) = open_pair, scrubbed_pair
    worlds = {OPEN: (before, tuple(afters)), LEAK: (before_scrubbed, tuple(afters_scrubbed))}
    return WorldRuns(worlds=worlds, scrubbed=LEAK, channels=LEAK)


def planted(
    rates: tuple[float, float, float, float],
    *,
    tasks: int = 600,
    samples: int = 4,
    seeds: int = 1,
    stream: int = 0,
    broken: float = 0.0,
) -> WorldRuns:
    """Rates (before open, after open, before scrubbed, after scrubbed), the
    same for every task and seed.
    """
    generator = np.random.default_rng(stream)

    def runs(rate: float, unfinished: float = 0.0) -> Runs:
        return drawn(np.full(tasks, rate), samples, generator, unfinished)

    before, after, before_scrubbed, after_scrubbed = rates
    return reading_of(
        (runs(before), [runs(after) for _ in range(seeds)]),
        (runs(before_scrubbed), [runs(after_scrubbed, broken) for _ in range(seeds)]),
    )


def answers(reading: WorldRuns, config: ScoreConfig | None = None) -> dict[str, Evidence]:
    """The score layer's findings by question (and `question:about`)."""
    made = findings(reading, config or ScoreConfig(), PROVENANCE)
    return {f.question if f.about is None else f"{f.question}:{f.about}": f for f in made}


def behaviour(
    wins: float | None = 0.0, *, echo: float = 0.0, collapse: float = 0.0
) -> list[Evidence]:
    """What the behaviour layer would say."""
    found = [finding("behaviour.echo_trap", echo), finding("behaviour.collapse", collapse)]
    if wins is not None:
        example = {"example_task": "fix-7", "example_step": 3}
        found.append(
            finding("behaviour.channel_wins", wins, 0.005, about="git-history", diagnostics=example)
        )
    return found


def tested(refused: float = -0.08, regraded: float = -0.08, half: float = 0.01) -> list[Evidence]:
    """What refusing actions and grading again would say: what they carry, minus
    a fifth of the genuine part.
    """
    return [
        finding("refusal.over_bar", refused, half),
        finding("regrading.over_bar", regraded, half),
    ]


NO_SKILL = ("renaming", "sufficiency", "blind-play", "audit")
FAMILIES = ("exchange", *NO_SKILL, "variants", "memory")


def family(
    name: str, carried: float, whole: float = 0.48, harm: float = 0.0, half: float = 0.01
) -> list[Evidence]:
    """What a family says whose sources carry this much of a genuine part
    (`whole`); `harm`: what its alteration takes from the policy before training.
    """
    ends = {"carried": carried, "carried_low": carried - half, "carried_high": carried + half}
    found = [finding(f"{name}.over_bar", carried - 0.2 * whole, half, diagnostics=ends)]
    if name in NO_SKILL:
        found += [
            finding(f"{name}.left", whole - carried, half),
            finding(f"{name}.phantom_over_bar", carried - 0.8 * whole, half),
            finding(f"{name}.placebo_over_bar", harm - 0.2 * whole, half),
        ]
    return found


def elsewhere(*others: str) -> list[Evidence | Undefined]:
    """The families beside scrubbing, refusal and regrading, all cleared, but for
    those that are named.
    """
    found = [one for name in FAMILIES for one in family(name, 0.0)]
    found.append(finding("elicitation.unlocked", 0.0, 0.01))
    recipe = Undefined(
        question="placebo-training.carried",
        layer="sources",
        method="planted",
        provenance=PROVENANCE,
        reason="No recipe was given.",
        cure="Give `--recipe`.",
    )
    return [one for one in (*found, recipe) if one.question.split(".")[0] not in others]


def finding(
    question: str, estimate: float, half_width: float | None = None, **more: object
) -> Evidence:
    """Any evidence, with a symmetric interval where a half-width is given."""
    interval = None
    if half_width is not None:
        interval = Interval(low=estimate - half_width, high=estimate + half_width)
    fields = {"about": None, "diagnostics": {}, "n": 2400, "clusters": 600} | more
    return Evidence(
        question=question,
        layer=question.split(".")[0],
        method="planted",
        provenance=PROVENANCE,
        estimate=estimate,
        unit="share",
        interval=interval,
        **fields,
    )


def stored_case(folder: Path, logs: Logs, *channels: str) -> Case:
    """A case made of real Parquet files: for each side and world, the outcomes of each task."""
    stored = {}
    for number, ((side, without), by_task) in enumerate(logs.items()):
        path = folder / f"{number}.parquet"
        write_trajectories(
            path,
            (
                _trajectory(side, without, task, sample, *outcome)
                for task, outcomes in by_task.items()
                for sample, outcome in enumerate(outcomes)
            ),
        )
        stored[side, without] = Rollouts(key=f"{number}", paths=(path,))
    return Case(folder=folder, environment=TinyWorld(*channels), stored=stored)


def _trajectory(
    side: str, without: World, task: str, sample: int, outcome: float | None, end: str
) -> Trajectory:
    return Trajectory(
        id=f"{side}-{task}-{sample}",
        task=task,
        policy=side,
        environment="tiny",
        without=without,
        seed=0,
        sample=sample,
        steps=(Step(role="assistant", text="submit"),),
        outcome=outcome,
        end=end,
    )
