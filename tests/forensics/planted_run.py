"""Training records with a known course, written down and not trained: what the
signal layer should find is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Case
from forensics.records import TrainingRow, TrainingRun
from forensics.records.files import write_json
from forensics.records.train_tables import RECORD_FOLDER as FOLDER, write_shard

RUN = TrainingRun(
    code="test",
    recipe={},
    estimator={"scaling": "group", "dead_tolerance": 0.0},
    seed=0,
    start="a",
    tokenizer="b",
    environment={"name": "planted", "options": {}, "without": []},
)


@dataclass(frozen=True, kw_only=True)
class Course:
    """The policy at one end of a run. `success`: probability of a run; `solid`:
    share of tasks all of whose runs succeed; `hopeless`: of tasks none of whose
    runs do. `kl`: mean log-ratio to the start, nats a token. `variants`: how
    many different texts it writes. `bonus`: a reward on top of the outcome.
    """

    success: float = 0.5
    solid: float = 0.0
    hopeless: float = 0.0
    entropy: float = 1.0
    logprob: float = -1.0
    kl: float = 0.0
    truncated: float = 0.0
    tokens: int = 6
    turns: int = 4
    failed_turns: int = 4
    variants: int = 64
    bonus: float = 0.0


def write_run(
    folder: Path,
    start: Course,
    end: Course,
    *,
    steps: int = 20,
    groups: int = 16,
    samples: int = 8,
    seed: int = 0,
    only: Sequence[int] | None = None,
    **forgotten: Any,
) -> Path:
    """A record whose policy is `start` in the first half and `end` in the
    second; `forgotten` fields are overridden.
    """
    generator = np.random.default_rng(seed)
    write_json(folder / FOLDER / "run.json", RUN.model_dump(mode="json"))
    for step in range(steps):
        course = start if step < steps / 2 else end
        rows = [
            row
            for group in range(groups)
            for row in _group(course, step, group, samples, generator)
        ]
        if only is None or step in only:
            write_shard(
                folder, step, [row.model_copy(update=forgotten) for row in rows], {}, "test"
            )
    return folder


def case_of(folder: Path, seed: int = 0) -> Case:
    return Case(folder=folder / "case", training=folder, seed=seed)


def _group(
    course: Course, step: int, group: int, samples: int, generator: np.random.Generator
) -> list[TrainingRow]:
    fate = generator.random()
    chance = 1.0 if fate < course.solid else 0.0 if fate > 1 - course.hopeless else course.success
    wins = [bool(generator.random() < chance) for _ in range(samples)]
    dropped = f"all {samples} rewards equal {wins[0]:g}" if len(set(wins)) == 1 else None
    return [_row(course, step, group, n, win, dropped, generator) for n, win in enumerate(wins)]


def _row(
    course: Course,
    step: int,
    group: int,
    sample: int,
    win: bool,
    dropped: str | None,
    generator: np.random.Generator,
) -> TrainingRow:
    tokens = course.tokens
    logprobs = tuple(float(v) for v in course.logprob + 0.2 * generator.standard_normal(tokens))
    return TrainingRow(
        step=step,
        group=f"{step}-{group}",
        sample=sample,
        task=f"task-{step}-{group}",
        trajectory=f"{step}-{group}-{sample}",
        token_ids=(0, *([int(generator.integers(course.variants))] * tokens)),
        sampled=(False, *([True] * tokens)),
        sampler_logprobs=logprobs,
        reference_logprobs=tuple(v - course.kl for v in logprobs),
        entropies=tuple(float(v) for v in course.entropy + 0.1 * generator.standard_normal(tokens)),
        rewards={"outcome": float(win)},
        reward=float(win) + course.bonus,
        advantage=None if dropped else 0.0,
        dropped=dropped,
        end="truncated" if generator.random() < course.truncated else "terminated",
        outcome=float(win),
        turns=course.turns if win else course.failed_turns,
        policy_step_first=step,
        policy_step_last=step,
    )


HEALTHY = Course()
HURT = replace(
    HEALTHY, entropy=0.2, logprob=-0.04, kl=0.3, solid=0.5, hopeless=0.3, variants=1, failed_turns=8
)
