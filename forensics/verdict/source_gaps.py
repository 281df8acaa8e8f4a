"""Gaps about gain tests: what a gain runs through that nobody allowed,
what is phantom while the rest is open, what is known too loosely.
"""

from collections.abc import Iterator, Sequence

from forensics.layers.one_line_rules import RULE
from forensics.phrases import allow_flags, capital, points, printable
from forensics.records import Evidence
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Gap, Source
from forensics.verdict.rule import MOST, REFUSED, REGRADED, SHORTCUT, THROUGH, G
from forensics.verdict.sources import (
    clearing_cost,
    cost,
    cure_of,
    held_of,
    in_points,
    more_runs,
    smallest,
    sources_of,
    widths_to,
)
from forensics.verdict.view import (
    CARRIED,
    JOINED,
    Judgement,
    View,
    all_of,
    judge,
    standing,
    statistic,
)


def rest_open(judged: Judgement) -> Iterator[Gap]:
    """What is surely phantom by a needless test, while it is open
    whether the rest is genuine.
    """
    if judged.ruling.clause.id != "rest-open":
        return
    view = judged.view
    for choice in judged.ruling.clause.when:
        test = judged.rule.test_of(choice[0].question)
        if test is None or not all_of(judge(one, view) for one in choice):
            continue
        least = statistic(view.evidence(test.asked), "carried_low", view.level)
        assert least is not None, "the clause asks for it"
        yield Gap(
            text=(
                f"At least {points(least, 1).lstrip('+')} points of the gain that survives"
                f" scrubbing are phantom: they {held_of(test)} ({test.name}). Whether the rest is"
                " genuine is open."
            ),
            **_would_tell(judged, test),
        )


def _would_tell(judged: Judgement, test: GainTest) -> dict[str, str]:
    """What says of the rest that there is next to nothing, or that it is genuine:
    the cheaper of the two.
    """
    sides = (("phantom_over_bar", 0.0), ("left", judged.rule.margin))
    known = [
        (evidence, evidence.estimate - bar)
        for name, bar in sides
        if (evidence := judged.view.evidence(f"{test.name}.{name}")) is not None
    ]
    evidence, distance = min(known, key=lambda one: widths_to(*one))
    total = judged.view.evidence(G)
    wanted = cost(evidence, distance, total.clusters if total else 0)
    return {"measurement": more_runs(evidence), "cost": wanted}


def not_allowed(judged: Judgement) -> Iterator[Gap]:
    """What more than a fifth of the surviving gain runs through, without
    anybody having allowed it.
    """
    view = judged.view
    shortcuts = [kind for kind in answered_yes(view, SHORTCUT) if not _by_regrading(view, kind)]
    carrying = [
        about
        for about, e in view.all_evidence(CARRIED).items()
        if e.diagnostics.get("carries") is True
    ]
    for kind in dict.fromkeys(
        (*shortcuts, *answered_yes(view, THROUGH), *(kind or "" for kind in carrying))
    ):
        name, allow = printable(kind), allow_flags(kind.split(JOINED))
        held = ", whose output held the answer" if kind in shortcuts else ""
        yield Gap(
            text=(
                f"More than a fifth of the gain that survives scrubbing runs through {name}{held}:"
                " is that part of the job?"
            ),
            measurement=(
                f"If it is, say so, for all that are named together: `{allow}`. If not, declare it"
                " as a channel of the environment, with a scrubbed twin of the world."
            ),
            cost="no new runs to allow all that are named, else one more world for both sides",
        )
    lost = view.evidence(REGRADED)
    if lost is not None and lost.interval is not None and lost.interval.low > 0:
        bent = [
            printable(kind) for kind in answered_yes(view, SHORTCUT) if _by_regrading(view, kind)
        ]
        used = f" ({', '.join(bent)})" if bent else ""
        yield Gap(
            text=(
                "More than a fifth of the gain that survives scrubbing does not stand when"
                f" hand-ins are graded again{used}."
            ),
            measurement="Read the wins that are lost, and mend the grader.",
            cost="no new runs to read them",
        )


def found_elsewhere(judged: Judgement) -> Iterator[Gap]:
    """What the tests beside refusal and regrading found, where it did not
    decide the label.
    """
    view = judged.view
    for test in judged.rule.gain_tests:
        name, needless = test.name, test.kind == "needless"
        decided = needless and judged.label in ("phantom", "mixed")
        elsewhere = test.kind in ("declared", "aside") or test.asked == REGRADED
        if elsewhere or decided or standing(test, view) != "found":
            continue
        rows = [row for row in sources_of(test, view) if row.todo]
        named = smallest([row.source for row in rows])
        if test.asked == REFUSED and named:
            continue  # `not_allowed` names them
        if not named and (since := _allowed_since(name, view)):
            terms = allow_flags(view.terms.allowed)
            yield Gap(
                text=f"{', '.join(map(printable, since))} was allowed after the {name} test ran;"
                " run the test again with it allowed.",
                measurement=f"`forensics investigate ... --resume {terms}`.",
                cost="the runs of this family once more",
            )
            continue
        known = {
            row.source: f"{row.said}, {row.source}" if row.said else row.source for row in rows
        }
        listed = ", ".join(str(known[one]) for one in named)
        cure, free = cure_of(test, *named), "no new runs to say so"
        if needless:
            cure += _harm_of(name, view)
            free = "one more world for both sides"
        told = test.found or f"runs through {test.excludes}{{names}}"
        asks = told.endswith("?")
        names = (listed or "actions") if asks else f" ({listed})" if listed else ""
        yield Gap(
            text=(
                "More than a fifth of the gain that survives scrubbing"
                f" {told.format(names=names)}{'' if asks else '.'}{_by_rules(rows)}"
            ),
            measurement=f"{capital(cure)}.",
            cost=free,
        )


def _by_rules(rows: Sequence[Source]) -> str:
    """What is known of the lines of code among these sources, a sentence each. A kind of action
    may be called `rule` too; it has no words.
    """
    rules = (row for row in rows if row.said and (row.source or "").startswith(RULE))
    told = (row.reason.rpartition(": ")[0] for row in rules)
    return "".join(f" {one}." for one in told)


def _allowed_since(name: str, view: View) -> tuple[str, ...]:
    """What is allowed by now, and was not left out when this was measured."""
    terms = view.terms
    about = (
        one.about.split(JOINED)
        for one in view.findings
        if one.question.startswith(f"{name}.") and one.about and terms.exempt(one)
    )
    kinds = {kind for kinds in about for kind in kinds if kind in terms.allowed}
    return tuple(sorted(kinds)) if name in terms.on_terms else ()


def _harm_of(name: str, view: View) -> str:
    """What keeps a find from being an accusation: the alteration may do harm."""
    placebo = view.evidence(f"{name}.placebo_over_bar")
    if placebo is None or not reaches_above_zero(placebo):
        return ""
    return (
        f"; that {name} does harm by itself is not excluded: what it takes from the policy"
        f" before training, minus a fifth of the gain, is {in_points(placebo)}"
    )


def _by_regrading(view: View, kind: str) -> bool:
    """Whether a shortcut is one because its wins do not stand: nothing that could be allowed."""
    answer = view.all_evidence(SHORTCUT).get(kind)
    return answer is not None and "wins_lost" in answer.diagnostics


def loosely_carried(judged: Judgement) -> Iterator[Gap]:
    """What other sources carry, known too loosely to say that it is at most a fifth."""
    if judged.ruling.clause.id != "carried-too-wide":
        return
    for test in judged.rule.gain_tests:
        evidence = judged.view.evidence(test.asked)
        if evidence is None or standing(test, judged.view) != "loose":
            continue
        if test.kind != "declared":
            yield Gap(
                text=(
                    f"What {test.loose or test.excludes} carry may exceed a fifth of"
                    f" the gain that survives scrubbing ({test.name}): the difference is"
                    f" {in_points(evidence)}."
                ),
                measurement=more_runs(evidence),
                cost=clearing_cost(evidence, judged.view),
            )


def answered_yes(view: View, question: str) -> list[str]:
    """What a yes-or-no question is answered with yes about."""
    return sorted(
        about or "an action"
        for about, e in view.all_evidence(question).items()
        if e.estimate >= MOST
    )


def reaches_above_zero(evidence: Evidence) -> bool:
    """Whether the interval holds a number above zero."""
    return evidence.interval is not None and evidence.interval.high > 0
