"""A stranger's instrument: words an action, after minus before.

One frozen config, one function that takes a case and yields evidence, one line
in `pyproject.toml`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.records import Control, Evidence, Interval, Undefined
from forensics.statistics import sign_flip_test, t_quantile


@dataclass(frozen=True, kw_only=True)
class WordinessConfig:
    """`level` of the interval."""

    level: float = 0.95


def words_per_action(case: Case, side: str) -> dict[str, float]:
    """Mean words of the actions on each task."""
    words: dict[str, list[int]] = {}
    for run in case.rollouts(side):
        words.setdefault(run.task, []).extend(len(step.text.split()) for _, step in run.actions)
    return {task: sum(found) / len(found) for task, found in words.items() if found}


@instrument(
    name="wordiness", layer="behaviour", questions=("wordiness.change",), config=WordinessConfig()
)
def wordiness(case: Case, config: WordinessConfig) -> Iterator[Evidence | Undefined]:
    """The change of words an action, paired by task."""
    before, after = words_per_action(case, "before"), words_per_action(case, "after-0")
    tasks = sorted(before.keys() & after.keys())
    if len(tasks) < 2:
        raise MissingInput("The sides share fewer than two tasks.", "Run both on the same tasks.")
    differences = np.array([after[task] - before[task] for task in tasks])
    estimate = float(differences.mean())
    half = (
        t_quantile(config.level, len(tasks) - 1)
        * float(differences.std(ddof=1))
        / len(tasks) ** 0.5
    )
    p_value = sign_flip_test(differences, np.random.default_rng(case.seed))
    yield Evidence(
        question="wordiness.change",
        layer="behaviour",
        method="paired t interval over tasks",
        provenance=wordiness.configured(**vars(config)).provenance(case),
        estimate=estimate,
        unit="words an action",
        interval=Interval(low=estimate - half, high=estimate + half, level=config.level),
        n=len(tasks),
        clusters=len(tasks),
        control=Control(name="signs flipped at random", estimate=0.0, p_value=p_value),
        summary=f"Actions changed by {estimate:+.1f} words.",
    )
