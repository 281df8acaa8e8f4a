"""What a gain may run through, row by row: what was tested and with which
limit, what was not, and what the reader can do about it.

One row for each channel that was scrubbed, each source that a gain test looked at
by itself, and each test as a whole. Where no genuine part is left there is
nothing that a further source could carry.

What it costs to bring an interval down to a width: more tasks, more training
seeds. And how such a number is told.
"""

from collections.abc import Iterable, Iterator
from math import ceil, floor, inf, log10, sqrt

from forensics.layers.decomposition import GENUINE_BAR
from forensics.phrases import allow_flags, plural, point_range, points, printable
from forensics.records import Evidence, Undefined
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Estimate, Source
from forensics.statistics import t_quantile
from forensics.verdict.rule import G0, REFUSED, G, Rule
from forensics.verdict.view import JOINED, View, estimate_of, nothing_to_test, standing

OUT_OF_REACH = 100  # times the tasks at hand
MOST_SEEDS = 30
USUAL_TASKS = 300  # up to which a family that plays on fewer tasks plays on no more of them
NO_CHANNEL = "No shortcut of the world was scrubbed."
POWER = 1.6538  # (1.96 + 1.2816) / 1.96: a half-width at 95 % times this is seen with power .9
LONGEST = 300
NAMED = 2  # sources at most, in the headline


def sources(view: View, rule: Rule) -> tuple[Source, ...]:
    """Every row, in the order of the rule's gain tests."""
    return tuple(row for test in rule.gain_tests for row in sources_of(test, view))


def held_of(test: GainTest) -> str:
    """How what a test found hangs on it, without names."""
    return test.held or f"run through {test.excludes}"


def held_by(test: GainTest, listed: tuple[Source, ...]) -> str:
    """How much of the gain hangs on what the test found, with the names of what surely
    carries more than a fifth of it.
    """
    held = held_of(test)
    rows = {one.source: one for one in listed if one.family == test.name and one.todo}
    named = smallest(rows)
    if not named:
        return held
    shown = [printable(rows[one].told, LONGEST) for one in named[:NAMED]]
    shown += [f"{len(named) - NAMED:,} more"] if len(named) > NAMED else []
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return test.held_by.format(names=names) if test.held_by else f"{held}: {names}"


def smallest(named: Iterable[str | None]) -> list[str]:
    """Those that have a name; of several together, none that stands there by itself."""
    found = [one for one in named if one]
    alone = {one for one in found if JOINED not in one}
    return [one for one in found if one in alone or alone.isdisjoint(one.split(JOINED))]


def open_tests(listed: tuple[Source, ...]) -> tuple[str, ...]:
    """The gain tests of which something was neither tested nor accepted, in order."""
    return tuple(
        dict.fromkeys(row.family for row in listed if row.status in ("not-tested", "accepted"))
    )


def sources_of(test: GainTest, view: View) -> Iterator[Source]:
    """The rows of one test."""
    if (reason := nothing_to_test(test, view)) is not None:
        yield Source(family=test.name, status="not-applicable", reason=printable(reason, LONGEST))
        return
    if test.asked == REFUSED:
        yield from _exempt(test, view)
    answers, declared = view.answers(test.shared), test.kind == "declared"
    if declared and not any(isinstance(one, Evidence) for one in answers.values()):
        row = _row(test, view.answers(G0).get(None), view, otherwise=NO_CHANNEL)
        yield row.model_copy(update={"carried": None, "detects": None})
        return
    for about in sorted(about for about in answers if about is not None):
        yield _row(test, answers[about], view, about)
    if not declared:
        yield _whole(test, view)


def _whole(test: GainTest, view: View) -> Source:
    """All sources of a test together."""
    carried, whole = view.evidence(test.shared), view.evidence(test.asked)
    shown = carried if whole is None or carried is not None else whole
    row = _row(test, shown, view, otherwise=_why(test, view))
    if carried is None:
        row = row.model_copy(update={"carried": together(whole, view)})
    return row.model_copy(update={"todo": _todo(test, view)})


def _row(
    test: GainTest,
    answer: Evidence | Undefined | None,
    view: View,
    about: str | None = None,
    otherwise: str = "",
) -> Source:
    """What one answer says of a source, or of the test as a whole."""
    source = None if about is None else printable(about)
    if isinstance(answer, Evidence):
        return Source(
            family=test.name,
            source=source,
            said="" if about is None else said_of(answer),
            status="tested",
            carried=estimate_of(answer),
            detects=_detects(answer, view),
            reason=printable(answer.summary, LONGEST),
            todo=cure_of(test, source) if source and _carries(test, answer, view) else "",
        )
    return Source(
        family=test.name,
        source=source,
        status="accepted" if test.name in view.terms.accepted else "not-tested",
        reason=printable(otherwise if answer is None else answer.reason, LONGEST),
        todo=""
        if answer is None or test.name in view.terms.accepted
        else _sentence_end(printable(answer.cure, LONGEST)),
    )


def said_of(answer: Evidence) -> str:
    """A source in words, those of who measured it; `""` where it has none."""
    said = answer.diagnostics.get("said")
    return printable(said, LONGEST) if isinstance(said, str) else ""


def _carries(test: GainTest, answer: Evidence, view: View) -> bool:
    """Whether a source surely carries more than a fifth of what it is measured on."""
    if isinstance(told := answer.diagnostics.get("carries"), bool):
        return told
    whole = view.evidence(G if test.kind == "declared" else G0) or view.evidence(G)
    if whole is None or answer.interval is None or test.kind == "aside":
        return False
    return answer.interval.low > GENUINE_BAR * max(whole.estimate, 0.0)


def _todo(test: GainTest, view: View) -> str:
    """What there is to do about a test as a whole."""
    stands, whole = standing(test, view), view.evidence(test.asked)
    if stands == "found" or (stands == "loose" and whole is not None and whole.estimate >= 0):
        return cure_of(test)
    if stands == "loose" and whole is not None:
        return clearing_cost(whole, view).removeprefix("about ")
    if stands != "not-tested":
        return ""
    cures = [
        answer.cure
        for question in test.questions
        for answer in view.answers(question).values()
        if isinstance(answer, Undefined)
    ]
    cure = _sentence_end(printable(cures[0], LONGEST)) if cures else "`--resume` without `--quick`"
    return f"{cure}, or `--accept {test.name}`"


def clearing_cost(whole: Evidence, view: View) -> str:
    """What would clear a test that is known too loosely. Where its sources may
    carry nothing at all, it is what would do if they carry nothing: that their
    estimate fell on one side of zero is luck, and would be counted twice.
    """
    carried, genuine, total = together(whole, view), view.evidence(G0), view.evidence(G)
    room = -whole.estimate
    if carried is not None and genuine is not None and carried.low <= 0 <= carried.high:
        room = GENUINE_BAR * genuine.estimate
    return cost(whole, max(room, 0.0), total.clusters if total else 0)


def cure_of(test: GainTest, *sources: str) -> str:
    """What to do about sources that carry more than a fifth (none named: all of the test)."""
    kinds = dict.fromkeys(kind for source in sources for kind in source.split(JOINED))
    allow = " ".join(f"`{allow_flags([kind])}`" for kind in kinds) or "allow it"
    return test.todo.format(allow=allow)


def _sentence_end(text: str) -> str:
    return text.rstrip(". ")


def together(whole: Evidence | None, view: View) -> Estimate | None:
    """What all sources of a test carry together, beside the answer that the rule reads."""
    told = {} if whole is None else whole.diagnostics
    ends = {end: told.get(f"carried_{end}") for end in ("low", "high")}
    numbers = {"estimate": told.get("carried"), **ends}
    if not all(isinstance(number, float) for number in numbers.values()):
        return None
    return Estimate.model_validate({**numbers, "level": view.level})


def _exempt(test: GainTest, view: View) -> Iterator[Source]:
    """Kinds of action that an honest solver needs by the environment's word,
    and those that the reader allows.
    """
    joint = view.answers(REFUSED).get(None)
    needed = joint.diagnostics.get("needed") if isinstance(joint, Evidence) else None
    for kind in needed.split(", ") if isinstance(needed, str) and needed else ():
        yield Source(
            family=test.name,
            source=printable(kind),
            status="not-applicable",
            reason="The environment says that an honest solver needs it.",
        )
    for kind in view.terms.allowed:
        yield Source(
            family=test.name,
            source=printable(kind),
            status="allowed",
            reason="The reader allows it.",
        )


def _why(test: GainTest, view: View) -> str:
    for question in (*test.questions, test.shared):
        for answer in view.answers(question).values():
            if isinstance(answer, Undefined):
                return printable(answer.reason, LONGEST)
    return "Left out."


def _detects(evidence: Evidence, view: View) -> float | None:
    """The share of the gain that the test would have seen with power .9: what
    it says itself, else by its interval.
    """
    own = evidence.diagnostics.get("detects")
    if isinstance(own, float):
        return own
    scrubbing = evidence.question.startswith("gain.")
    whole = view.evidence(G if scrubbing else G0) or view.evidence(G)
    if evidence.interval is None or whole is None or whole.estimate <= 0:
        return None
    return min(POWER * evidence.interval.half_width / whole.estimate, 1.0)


def grown(tasks: int, of_case: int) -> int:
    """On how many tasks a family plays that plays on so many of `USUAL_TASKS`: of
    more tasks the same share, so that more of them make its interval narrower too.
    """
    return max(tasks, tasks * of_case // USUAL_TASKS)


def cost(evidence: Evidence, target: float, of_case: int = 0) -> str:
    """What brings the half-width down to `target`: tasks with one seed, seeds
    as well with several. `of_case`: the tasks of the case, where the evidence may
    rest on fewer.

    The part over tasks shrinks with the root of their number; the training part
    with the root of the number of seeds and with the t quantile of their
    degrees of freedom.
    """
    interval, told = evidence.interval, evidence.diagnostics
    deviation, count = told.get("seed_deviation"), told.get("seeds")
    if interval is None or target <= 0:
        return "cannot be said from what was measured"
    lost = (told.get("lost_before"), told.get("lost_after"))
    if sum(share for share in lost if isinstance(share, float)) / 2 >= target:
        return "no number of tasks would do: too many runs have no score"
    width, level = interval.half_width, interval.level
    if not isinstance(deviation, float) or not isinstance(count, int):
        return _more_tasks(evidence.clusters, (width / target) ** 2, of_case)
    half_widths = {
        seeds: t_quantile(level, seeds - 1) * deviation / sqrt(seeds)
        for seeds in {count, *range(2, MOST_SEEDS + 1)}
    }
    by_tasks = max(width**2 - half_widths[count] ** 2, 0.0)
    room = target**2 - by_tasks if by_tasks < target**2 / 2 else target**2 / 2
    needed = next((s for s in range(2, MOST_SEEDS + 1) if half_widths[s] <= sqrt(room)), None)
    wanted = []
    if needed is None:
        wanted.append(
            f"more than {MOST_SEEDS} training seeds: the runs of this recipe differ too much"
        )
    elif needed > count:
        wanted.append(f"about {plural(needed - count, 'more training seed')}")
    if by_tasks > target**2 / 2:
        wanted.append(_more_tasks(evidence.clusters, by_tasks / (target**2 / 2), of_case))
    return " and ".join(wanted) or "about 1 more training seed"


def _more_tasks(tasks: int, factor: float, of_case: int) -> str:
    at_hand = max(tasks, of_case)
    if factor > OUT_OF_REACH:
        return (
            f"more than {OUT_OF_REACH} times the {plural(at_hand, 'task')} at hand: too close to"
            " tell apart"
        )
    number = factor * (max(at_hand, USUAL_TASKS) if tasks < at_hand else at_hand)  # see `grown`
    unit = int(10 ** max(floor(log10(max(number, 1))) - 1, 0))
    needed = ceil(number / unit) * unit  # two significant digits, upwards
    return f"about {plural(max(needed - at_hand, 1), 'more task')} ({needed:,} in all)"


def widths_to(evidence: Evidence, target: float) -> float:
    """How many times too wide an interval is for a target; infinite where none would do."""
    if evidence.interval is None or target <= 0:
        return inf
    return evidence.interval.half_width / target


def more_runs(evidence: Evidence) -> str:
    """What would make an interval narrower."""
    return (
        "More held-out tasks."
        if evidence.diagnostics.get("seeds") in (None, 1)
        else "More training seeds or tasks."
    )


def in_points(evidence: Evidence) -> str:
    """A number in points with its interval, which it must have."""
    assert evidence.interval is not None
    span = point_range(evidence.interval.low, evidence.interval.high, 1)
    return f"{points(evidence.estimate, 1)} points ({span})"
