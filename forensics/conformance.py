"""Checks that every instrument should pass, ours or a stranger's.

Each `check_*` takes an instrument and cases, and raises `AssertionError` with
one sentence on what is wrong. Cases come from `forensics.planted` (synthetic
logs with a known cause) or from anywhere else; the helpers that change a case
work on cases made of logs.

1. `check_questions`: every declared question is answered, no other one, and no
   path of this machine is told.
2. `check_finds`: the planted cause is found.
3. `check_silent`: identical policies raise no alarm beyond the stated rate.
4. `check_swap`: before and after exchanged flips the sign of what has one.
5. `check_same_bits`: the same case gives the same bytes. 6. `check_order`:
   whatever the order of trajectories.
7. `check_missing`: what is taken away gives `Undefined` or changes nothing,
   never another number.
8. `check_saved`: findings survive a save and load.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from forensics.case import Case, Rollouts
from forensics.instruments import Instrument, run_instrument
from forensics.records import Evidence, Trajectory, Undefined, canonical_json
from forensics.records.files import read_findings, write_json_lines
from forensics.records.tables import write_trajectories

Answer = Evidence | Undefined
Name = tuple[str, str | None]  # question, about
YES_OR_NO = "1 = yes, 0 = no"  # the unit of a yes-or-no answer
DOUBT = 1e-3  # probability at which a check that may fail by chance gives up on chance


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What an instrument should find: an estimate in `[low, high]`; if given,
    `truth` inside its interval, and an `alarm` or none (see `alarms`).
    """

    question: str
    about: str | None = None
    low: float = -math.inf
    high: float = math.inf
    truth: float | None = None
    alarm: bool | None = None


def answers(tool: Instrument, case: Case) -> dict[Name, Answer]:
    """Everything an instrument says about a case, by question."""
    return {(answer.question, answer.about): answer for answer in run_instrument(tool, case)}


def check_questions(tool: Instrument, case: Case) -> None:
    """Every declared question is answered, no other is, and no answer tells where the case lies."""
    found = answers(tool, case)
    asked = {question for question, _ in found}
    assert asked == set(tool.questions), (
        f"{tool.name} declares {sorted(tool.questions)} and answers {sorted(asked)}"
    )
    for answer in found.values():
        assert str(case.folder) not in canonical_json(answer), (
            f"{answer.question} tells the folder of the case"
        )


def check_finds(tool: Instrument, case: Case, expected: Iterable[Expected]) -> None:
    """Every expectation holds."""
    found = answers(tool, case)
    for wish in expected:
        answer = found.get((wish.question, wish.about))
        assert isinstance(answer, Evidence), f"{wish.question} should be measured, not {answer}"
        assert wish.low <= answer.estimate <= wish.high, (
            f"{wish.question} is {answer.estimate:.4g}, outside {wish.low:g} to {wish.high:g}"
        )
        if wish.truth is not None:
            assert answer.interval is not None and answer.interval.contains(wish.truth), (
                f"the interval of {wish.question}, {answer.interval}, misses the truth"
                f" {wish.truth:g}"
            )
        if wish.alarm is not None:
            assert alarms(answer) == wish.alarm, (
                f"{wish.question} should {'' if wish.alarm else 'not '}raise an alarm"
            )


def alarms(answer: Answer, signed: Collection[str] = ()) -> bool:
    """Whether an answer claims a difference.

    By its control's p-value; else, for a signed question, by an interval
    without 0; else by an interval apart from the control's; else an answer of
    yes (1) to a yes-or-no question.
    """
    if isinstance(answer, Undefined):
        return False
    control, interval = answer.control, answer.interval
    if control is not None and control.p_value is not None:
        return control.p_value < 0.05
    if answer.question in signed and interval is not None:
        return not interval.contains(0)
    if interval is not None and control is not None and control.interval is not None:
        return interval.low > control.interval.high or interval.high < control.interval.low
    return answer.unit == YES_OR_NO and answer.estimate == 1


def check_silent(
    tool: Instrument, cases: Iterable[Case], *, signed: Collection[str] = (), rate: float = 0.05
) -> dict[Name, tuple[int, int]]:
    """On cases of identical policies with independent streams, no question
    alarms more often than `rate`.

    Returns alarms and cases of each question. Fails where so many alarms would
    come by chance less than once in a thousand times.
    """
    from scipy.stats import binom  # most who import this file never get here

    fired: Counter[Name] = Counter()
    asked: Counter[Name] = Counter()
    for case in cases:
        for name, answer in answers(tool, case).items():
            asked[name] += 1
            fired[name] += alarms(answer, signed)
    for name, count in asked.items():
        chance = binom.sf(fired[name] - 1, count, rate)
        assert chance >= DOUBT, (
            f"{name[0]} alarms on {fired[name]} of {count} identical pairs, stated rate {rate:g}"
        )
    return {name: (fired[name], count) for name, count in asked.items()}


def check_swap(tool: Instrument, case: Case, *, signed: Collection[str]) -> None:
    """With before and after exchanged, every signed answer changes its sign and
    its interval is mirrored.
    """
    there, back = answers(tool, case), answers(tool, swapped(case))
    for name, answer in there.items():
        if name[0] not in signed or isinstance(answer, Undefined):
            continue
        mirror = back[name]
        assert isinstance(mirror, Evidence), (
            f"{name[0]} is measured one way and undefined the other"
        )
        assert _close(mirror.estimate, -answer.estimate), (
            f"{name[0]} is {answer.estimate:g} one way and {mirror.estimate:g} the other"
        )
        if answer.interval is not None and mirror.interval is not None:
            assert _close(mirror.interval.low, -answer.interval.high), (
                f"the interval of {name[0]} is not mirrored"
            )


def check_same_bits(tool: Instrument, case: Case) -> None:
    """Measuring twice gives the same bytes."""
    assert _bytes(tool, case) == _bytes(tool, replace(case)), (
        f"{tool.name} says different things about the same case"
    )


def check_order(tool: Instrument, case: Case, folder: Path, generator: np.random.Generator) -> None:
    """Shuffled logs give the same bytes."""
    shuffled = rewritten(
        case, folder, lambda runs: [runs[i] for i in generator.permutation(len(runs))]
    )
    assert _bytes(tool, case) == _bytes(tool, shuffled), (
        f"{tool.name} depends on the order of trajectories"
    )


def check_missing(tool: Instrument, case: Case, poorer: Case) -> int:
    """What a poorer case can no longer support becomes `Undefined`; what it
    still supports stays the same number.

    Returns how many answers became undefined.
    """
    full, less = answers(tool, case), answers(tool, poorer)
    lost = 0
    for name, answer in full.items():
        remaining = less.get(name)
        if remaining is None or isinstance(remaining, Undefined):
            lost += isinstance(answer, Evidence)
            continue
        assert isinstance(answer, Evidence), (
            f"{name[0]} is undefined on the full case and measured on a poorer one"
        )
        assert _close(remaining.estimate, answer.estimate), (
            f"{name[0]} is {answer.estimate:g} on the full case and {remaining.estimate:g} where"
            " its input is missing"
        )
    return lost


def check_saved(tool: Instrument, case: Case, folder: Path) -> None:
    """Findings written to `evidence.jsonl` and read back are equal, ids included."""
    found = list(answers(tool, case).values())
    path = folder / "evidence.jsonl"
    write_json_lines(path, found)
    read = list(read_findings(path))
    assert read == found and [a.id for a in read] == [a.id for a in found], (
        f"{tool.name} does not survive a save"
    )


def swapped(case: Case) -> Case:
    """A case of logs with before and after exchanged."""
    mates = {"before": "after-0", "after-0": "before"}
    return replace(
        case, stored={(mates[side], without): log for (side, without), log in case.stored.items()}
    )


def rewritten(
    case: Case,
    folder: Path,
    change: Callable[[list[Trajectory]], Sequence[Trajectory]],
    only: Collection[str] = (),
) -> Case:
    """A case whose logs are written anew after a change (`only`: of these
    sides), under the same keys.
    """
    stored = dict(case.stored)
    for number, ((side, without), log) in enumerate(case.stored.items()):
        if not only or side in only:
            path = folder / f"rewritten-{number}.parquet"
            write_trajectories(path, change(list(log)))
            stored[side, without] = Rollouts(key=log.key, paths=(path,))
    return replace(case, stored=stored)


def without_logs(case: Case, *sides: str) -> Case:
    """A case without the logs of some sides."""
    return replace(
        case, stored={key: log for key, log in case.stored.items() if key[0] not in sides}
    )


def _bytes(tool: Instrument, case: Case) -> str:
    return "\n".join(canonical_json(answer) for answer in answers(tool, case).values())


def _close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
