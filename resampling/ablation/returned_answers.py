"""(c): did the answer come out of what an action returned?

1. Of the wins after training that used a kind, count those whose submission's
   changed part first appeared in what that kind returned, more than in what it
   returned on other tasks (`forensics.layers.use`).
2. An answer that is worked out rather than copied leaves no trace in the text.
   Where the environment tells which texts it withholds (`Withholding`: the
   reference answer, outputs that only the grader knows), a win counts too if
   the kind was the first to show one, with other tasks' output as control
   again. Ours.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from forensics.errors import MissingInput
from forensics.layers.actions import kinds_of
from forensics.layers.text_words import Gram, grams, words
from forensics.layers.use import ChainRule, use_of
from forensics.records import Trajectory
from forensics.statistics import Estimate, clustered_share
from resampling.ablation.refused_runs import Kinds, action_kinds

Withheld = Callable[[str], Sequence[str]]


class AnswerShare(NamedTuple):
    """(c) for one kind.

    `holds`: `None` where it cannot be told, for the `reason`. `share` of the
    wins, `control` by other tasks' output, and the first example (trajectory,
    step).
    """

    holds: bool | None
    share: Estimate | None = None
    control: float | None = None
    example: tuple[str, int] | None = None
    reason: str = ""


class _Win(NamedTuple):
    found: bool | None
    own: float
    control: float


def returned_steps(run: Trajectory, kinds: Iterable[str]) -> tuple[int, ...]:
    """The steps that answered an action of one of these kinds."""
    wanted, starts = frozenset(kinds), [i for i, _ in run.actions]
    return tuple(
        step
        for start, end in pairwise([*starts, len(run.steps)])
        for step in range(start + 1, end)
        if wanted.intersection(step_kinds(run, start))
    )


def step_kinds(run: Trajectory, number: int) -> tuple[str, ...]:
    """The kinds of an action, by the log or by the heads of its commands."""
    step = run.steps[number]
    return action_kinds(step.text, kinds_of(step))


def holds_answer(
    wins: Sequence[Trajectory],
    kinds: Kinds,
    withheld: Withheld | None,
    rule: ChainRule,
    control_tasks: int,
    level: float,
) -> AnswerShare:
    """(c) over the wins after training, in any order of theirs."""
    used = [(run, steps) for run in wins if (steps := returned_steps(run, kinds))]
    donors = _donors(used, control_tasks)
    judged = [(run, steps, _judge(run, steps, donors, withheld, rule)) for run, steps in used]
    if not judged:
        return AnswerShare(None, reason="no win after training used it")
    hits = [(run, steps) for run, steps, win in judged if win.found]
    control = sum(win.control for _, _, win in judged) / len(judged)
    example = (hits[0][0].id, hits[0][1][0]) if hits else None
    try:
        sure = _share([(run.task, win.found is True) for run, _, win in judged], level)
        possible = _share([(run.task, win.found is not False) for run, _, win in judged], level)
    except MissingInput as missing:
        return AnswerShare(None, reason=missing.reason)
    holds = True if sure.low > 0.5 else None if possible.estimate > 0.5 >= sure.estimate else False
    return AnswerShare(
        holds,
        sure,
        control,
        example,
        "" if holds is not None else "for many wins it cannot be told",
    )


def _share(rows: Sequence[tuple[str, bool]], level: float) -> Estimate:
    counts: dict[str, list[int]] = {}
    for task, hit in rows:
        counts.setdefault(task, []).append(hit)
    table = np.array([[sum(hits), len(hits)] for _, hits in sorted(counts.items())], dtype=float)
    return clustered_share(table[:, 0], table[:, 1], level=level)


def _judge(
    run: Trajectory,
    steps: tuple[int, ...],
    donors: Mapping[str, str],
    withheld: Withheld | None,
    rule: ChainRule,
) -> _Win:
    use = use_of(run, steps, donors, rule)
    if use.used:
        return _Win(True, use.overlap or 0.0, use.control or 0.0)
    if withheld is None:
        return _Win(use.used, use.overlap or 0.0, use.control or 0.0)
    own, control = _told(run, steps, donors, withheld(run.task))
    return _Win(own > 0 and control <= rule.control_ratio * own, own, control)


def _told(
    run: Trajectory, steps: tuple[int, ...], donors: Mapping[str, str], secrets: Sequence[str]
) -> tuple[float, float]:
    """Estimate of the secrets that these steps showed first, and the mean share in
    other tasks' output.
    """
    before = [
        step.text
        for i, step in enumerate(run.steps[: steps[-1]])
        if i not in steps and step.role != "assistant"
    ]
    news = [secret for secret in secrets if not _shows(before, secret)]
    if not news:
        return 0.0, 0.0
    own = sum(_shows([run.steps[i].text for i in steps], secret) for secret in news) / len(news)
    others = [
        sum(_shows([text], secret) for secret in news) / len(news)
        for task, text in donors.items()
        if task != run.task
    ]
    return own, sum(others) / len(others) if others else 0.0


def _shows(texts: Iterable[str], secret: str) -> bool:
    wanted = words(secret)
    return bool(wanted) and any(wanted in _grams(text, len(wanted)) for text in texts)


@lru_cache(maxsize=4096)
def _grams(text: str, size: int) -> frozenset[Gram]:
    return frozenset(grams(words(text), size))


def _donors(used: Sequence[tuple[Trajectory, tuple[int, ...]]], most: int) -> dict[str, str]:
    """What the kind returned on the tasks with the smallest hashes: the same
    whatever the order of the runs.
    """
    texts: dict[str, str] = {}
    for run, steps in used:
        text = "\n".join(run.steps[i].text for i in steps)
        texts[run.task] = min(texts.get(run.task, text), text, key=_digest)
    return {task: texts[task] for task in sorted(texts, key=_digest)[:most]}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
