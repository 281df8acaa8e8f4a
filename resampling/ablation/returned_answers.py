"""(c): did the answer come out of what an action returned?

1. Of the wins after training that used a kind, count those whose submission's
   changed part first appeared in what that kind returned, more than in what it
   returned on other tasks (`forensics.layers.evidence_chain`).
2. An answer that is worked out rather than copied leaves no trace in the text.
   Where the environment tells which texts it withholds (`Withholding`: the
   reference answer, outputs that only the grader knows), a win counts too if
   the kind was the first to show one, with other tasks' output as control
   again. Ours.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forensics.errors import MissingInput
from forensics.layers import (
    ChainRule,
    Gram,
    Use,
    digest,
    grams,
    keep_donor,
    kinds_of,
    use_of,
    words,
)
from forensics.records import Trajectory
from forensics.statistics import Estimate, share_by_task
from resampling.ablation.refused_runs import Kinds, action_kinds

Withheld = Callable[[str], Sequence[str]]
RULE = ChainRule()


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


def returned_steps(run: Trajectory, kinds: Iterable[str]) -> tuple[int, ...]:
    """The steps that answered an action of one of these kinds."""
    wanted, starts = frozenset(kinds), [i for i, _ in run.actions]
    return tuple(
        step
        for start, end in pairwise([*starts, len(run.steps)])
        for step in range(start + 1, end)
        if wanted.intersection(step_kinds(run, start, wanted))
    )


def step_kinds(run: Trajectory, number: int, split: Collection[str] = ()) -> tuple[str, ...]:
    """The kinds of an action, by the log or by the heads of its commands."""
    step = run.steps[number]
    return action_kinds(step.text, kinds_of(step), split)


def holds_answer(
    wins: Sequence[Trajectory],
    kinds: Kinds,
    withheld: Withheld | None,
    control_tasks: int,
    level: float,
) -> AnswerShare:
    """(c) over the wins after training, in any order of theirs."""
    used = [(run, steps) for run in wins if (steps := returned_steps(run, kinds))]
    if not used:
        return AnswerShare(None, reason="no win after training used it")
    shown: dict[str, str] = {}  # what the kind returned on a few tasks
    for run, steps in used:
        keep_donor(shown, run.task, "\n".join(run.steps[i].text for i in steps), control_tasks)
    donors = {task: shown[task] for task in sorted(shown, key=digest)}
    answers = [_answer(run, steps, donors, withheld) for run, steps in used]
    control = sum(answer.control or 0.0 for answer in answers) / len(used)
    told = list(zip(used, answers, strict=True))
    example = next(((run.id, steps[0]) for (run, steps), one in told if one.used), None)
    try:
        sure, possible = (
            share_by_task(((run.task, one.used in hits, 1) for (run, _), one in told), level=level)
            for hits in ((True,), (True, None))
        )
    except MissingInput as missing:
        return AnswerShare(None, reason=missing.reason)
    if sure.low <= 0.5 < possible.estimate and sure.estimate <= 0.5:
        return AnswerShare(None, sure, control, example, "for many wins it cannot be told")
    return AnswerShare(sure.low > 0.5, sure, control, example)


def _answer(
    run: Trajectory, steps: tuple[int, ...], donors: Mapping[str, str], withheld: Withheld | None
) -> Use:
    """Whether one win has its answer from these steps: copied, or else the
    first to show what the environment withholds.
    """
    use = use_of(run, steps, donors, RULE)
    if use.used or withheld is None:
        return use
    before = [
        step.text
        for i, step in enumerate(run.steps[: steps[-1]])
        if i not in steps and step.role != "assistant"
    ]
    news = [secret for secret in withheld(run.task) if not _shows(before, secret)]
    if not news:
        return Use(False, "")

    def share(texts: Sequence[str]) -> float:
        return sum(_shows(texts, secret) for secret in news) / len(news)

    own = share([run.steps[i].text for i in steps])
    others = [share([text]) for task, text in donors.items() if task != run.task]
    control = sum(others) / len(others) if others else 0.0
    return Use(own > 0 and control <= RULE.control_ratio * own, "", own, control)


def _shows(texts: Iterable[str], secret: str) -> bool:
    wanted = words(secret)
    return bool(wanted) and any(wanted in grams_in(text, len(wanted)) for text in texts)


@lru_cache(maxsize=4096)
def grams_in(text: str, size: int) -> frozenset[Gram]:
    """Every run of `size` words of a text."""
    return frozenset(grams(words(text), size))
