"""Diagnostic gaps: what could not be told apart, which measurement would tell,
and what it would cost (`measurement_cost`).
"""

from collections.abc import Iterator

from forensics.phrases import capital, percent, plural, point_range, points, printable
from forensics.records import Evidence, Undefined
from forensics.records.verdict import Gap
from forensics.verdict.measurement_cost import cost
from forensics.verdict.rule import (
    ASSUMED,
    G0,
    MOST,
    NO_SKILL,
    OVER,
    PLACEBO,
    REFUSED,
    REGRADED,
    SHORTCUT,
    THROUGH,
    WINS,
    Family,
    G,
)
from forensics.verdict.run_gaps import LONGEST_REASON, lost_runs, seeds, silent_runs, unused_terms
from forensics.verdict.sentences import IN_WORDS, RESTS_ON_ASSUMPTION
from forensics.verdict.sources import cure_of, sources_of
from forensics.verdict.standing import scrubbed, standing
from forensics.verdict.view import CARRIED, JOINED, Judgement, Ruling, View, statistic

RERUN = "Run both checkpoints with the shortcuts scrubbed: `forensics investigate`."
RERUN_COST = "one run of both sides in the open and in the scrubbed world"


def named(judged: Judgement) -> tuple[Gap, ...]:
    """Everything that could not be told apart, the most pressing first, nothing twice."""
    first: dict[str, Gap] = {}
    for tell in FROM_LOGS if judged.bounded else FROM_RUNS:
        for gap in tell(judged):
            first.setdefault(gap.text, gap)
    return tuple(first.values())


def missing(
    judged: Judgement, view: View | None = None, ruling: Ruling | None = None
) -> Iterator[Gap]:
    """What nobody measured, with the cure that the instrument itself named, and
    how to accept it.
    """
    view, ruling = view or judged.view, ruling or judged.ruling
    for question in dict.fromkeys(condition.question for condition in ruling.unknown):
        waivable = ruling.clause.label == "genuine"
        yield _unanswered(view, question, judged.rule.family_of(question) if waivable else None)


def _unanswered(view: View, question: str, family: Family | None) -> Gap:
    name, answers = view.name(question), view.answers(question)
    accept = (
        f" Or accept that it is not tested: `--accept {family.name}`." if family is not None else ""
    )
    for answer in answers.values():
        if isinstance(answer, Undefined):
            reason, cure = (
                printable(text, LONGEST_REASON) for text in (answer.reason, answer.cure)
            )
            return Gap(text=reason, measurement=cure + accept, cost=f"one answer to `{name}`")
    if answers:
        text = f"`{name}` has no interval at the level of the rule ({100 * view.level:g} %)."
        return Gap(text=text, measurement="Measure it again at that level.", cost="no new runs")
    if question == REFUSED and view.terms.allowed:
        allow = " ".join(f"--allow {printable(kind)}" for kind in view.terms.allowed)
        return Gap(
            text=(
                "All other kinds of action were not refused together with"
                f" {printable(view.terms.key or '')} allowed."
            ),
            measurement=f"`forensics investigate ... --resume {allow}`." + accept,
            cost="one more world for both sides",
        )
    return Gap(
        text=f"`{name}` was not measured.",
        measurement=f"Run an instrument that answers `{name}`." + accept,
        cost="one run of that instrument",
    )


def too_wide(judged: Judgement) -> Iterator[Gap]:
    """The gain or its genuine part (from logs: under the assumption) known too loosely."""
    view, widest = judged.view, judged.rule.widest
    looked_at = (
        {G: "The gain", ASSUMED[G0]: "The genuine part under the assumption"}
        if judged.bounded
        else {G: IN_WORDS[G], G0: IN_WORDS[G0]}
    )
    for question, name in looked_at.items():
        evidence = scrubbed(view, question)
        width = statistic(evidence, "half_width", view.level)
        if evidence is not None and width is not None and width > widest:
            yield Gap(
                text=(
                    f"{name} is known only to {100 * width:.1f} points either way; the rule asks"
                    f" for {100 * widest:g}."
                ),
                measurement="Logs of more tasks." if judged.bounded else _more_runs(evidence),
                cost=cost(evidence, widest),
            )


def unsettled(judged: Judgement) -> Iterator[Gap]:
    """Comparisons of the rule whose outcome the intervals leave open, the cheapest first."""
    if judged.ruling.clause.id != "unsettled":
        return
    straddling = []
    for question, value in judged.rule.boundaries:
        evidence = judged.view.evidence(question)
        interval = evidence and evidence.interval
        if evidence and interval and interval.low < value < interval.high:
            distance = abs(evidence.estimate - value)
            ratio = interval.half_width / max(distance, 1e-12)
            straddling.append((ratio, question, value, evidence, distance))
    for _, question, value, evidence, distance in sorted(straddling, key=lambda row: row[:3]):
        yield Gap(
            text=(
                f"{IN_WORDS[question]} is {_points(evidence)}, which leaves open on which side of"
                f" {100 * value:g} it lies."
            ),
            measurement=_more_runs(evidence),
            cost=cost(evidence, distance),
        )


def broken(judged: Judgement) -> Iterator[Gap]:
    """The label turns on whether broken scrubbed runs count as failures."""
    view, ruling, second = judged.view, judged.ruling, judged.second
    if ruling.label == second.label:
        return
    twins = View(view.findings, judged.rule.level, dict(judged.rule.imputed), view.terms)
    unanswered = list(missing(judged, twins, second))
    yield from unanswered
    if unanswered:
        return
    breakage = view.evidence("breakage")
    how_often = (
        f" ({points(breakage.estimate, 1)} points more after training than before)"
        if breakage
        else ""
    )
    yield Gap(
        text=(
            f"Scrubbed runs that never hand in{how_often} decide the label: {ruling.label} if"
            f" they count as lost skill, {second.label} if they are imputed at the before"
            " policy's rate."
        ),
        measurement=(
            "Scrub in a way that disturbs the policy less, so that the scrubbed world is closer"
            " to what it was trained in."
        ),
        cost=f"about {plural(breakage.n, 'episode')}" if breakage else "one run of both sides",
    )


def harm(judged: Judgement) -> Iterator[Gap]:
    """What vanishes on scrubbing may be harm that scrubbing does: its placebo
    lost something too.
    """
    over, placebo = _surely_over(judged.view), judged.view.evidence(PLACEBO)
    if over and judged.ruling.label != "phantom" and placebo and _reaches_above_zero(placebo):
        yield Gap(
            text=(
                "At least four fifths of the gain vanish on scrubbing, but scrubbing may do harm"
                " by itself: what it takes from the policy before training, minus a fifth of the"
                f" gain, is {_points(placebo)}."
            ),
            measurement=(
                "More held-out tasks where that is too wide; else a replacement that disturbs less,"
                " or a chain of evidence for the wins."
            ),
            cost=cost(placebo, max(-placebo.estimate, 0.0)),
        )


def unexplained(judged: Judgement) -> Iterator[Gap]:
    """What scrubbing shows but no chain of evidence explains."""
    shares = judged.view.all_evidence(WINS)
    if _surely_over(judged.view) and judged.ruling.clause.id in ("mixed", "unsettled"):
        yield Gap(
            text=(
                "At least four fifths of the gain vanish on scrubbing, but only"
                f" {percent(sum(e.estimate for e in shares.values()))} of the wins are credited to"
                " a channel."
            ),
            measurement=(
                "Read the wins that no channel explains, and declare what they use as a channel."
            ),
            cost="no new runs to read them, one more world for both sides for each new channel",
        )


def _surely_over(view: View) -> bool:
    """Whether at least four fifths of the gain surely vanish on scrubbing."""
    low = statistic(view.evidence(OVER), "low", view.level)
    return low is not None and low >= 0


def _reaches_above_zero(evidence: Evidence) -> bool:
    return evidence.interval is not None and evidence.interval.high > 0


def _points(evidence: Evidence) -> str:
    """A number in points with its interval, which it must have."""
    assert evidence.interval is not None
    span = point_range(evidence.interval.low, evidence.interval.high, 1)
    return f"{points(evidence.estimate, 1)} points ({span})"


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
        name = printable(kind)
        held = ", whose output held the answer" if kind in shortcuts else ""
        allow = " ".join(f"--allow {part}" for part in name.split(JOINED))
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


LOOSE = {
    "refusal": "actions that nobody allowed",
    "regrading": "wins that do not stand again",
    "blind-play": "runs that read nothing",
}
FOUND = {  # what a family shows where it found something
    "refusal": "runs through {names} that nobody allowed: is that part of the job?",
    "exchange": "runs through what {names} showed: is that part of the job?",
    "variants": "does not carry over to tasks that were drawn anew{names}",
    "memory": "is on tasks that training saw or nearly saw{names}",
    "renaming": "goes away when what no skill needs is renamed or reordered{names}",
    "sufficiency": "is there with one field of a task alone{names}",
    "blind-play": "is there without reading the task{names}",
    "audit": "is what hand-ins win that should not{names}",
}


def found_elsewhere(judged: Judgement) -> Iterator[Gap]:
    """What the families beside refusal and regrading found, where it did not
    decide the label.
    """
    view = judged.view
    for family in judged.rule.families:
        name, told = family.name, FOUND.get(family.name)
        decided = name in NO_SKILL and judged.label in ("phantom", "mixed")
        if told is None or decided or standing(family, view) != "found":
            continue
        named = [row.source for row in sources_of(family, view) if row.source and row.todo]
        if name == "refusal" and named:
            continue  # `not_allowed` names them
        listed = ", ".join(named)
        cure, free = cure_of(name, listed or None), "no new runs to say so"
        if name in NO_SKILL:
            cure += _harm_of(name, view)
            free = "one more world for both sides"
        asks = told.endswith("?")
        names = (listed or "actions") if asks else f" ({listed})" if listed else ""
        yield Gap(
            text=(
                "More than a fifth of the gain that survives scrubbing"
                f" {told.format(names=names)}{'' if asks else '.'}"
            ),
            measurement=f"{capital(cure)}.",
            cost=free,
        )


def _harm_of(family: str, view: View) -> str:
    """What keeps a find from being an accusation: the alteration may do harm."""
    placebo = view.evidence(f"{family}.placebo_over_bar")
    if placebo is None or not _reaches_above_zero(placebo):
        return ""
    return (
        f"; that {family} does harm by itself is not excluded: what it takes from the policy"
        f" before training, minus a fifth of the gain, is {_points(placebo)}"
    )


def _by_regrading(view: View, kind: str) -> bool:
    """Whether a shortcut is one because its wins do not stand: nothing that could be allowed."""
    answer = view.all_evidence(SHORTCUT).get(kind)
    return answer is not None and "wins_lost" in answer.diagnostics


def loosely_carried(judged: Judgement) -> Iterator[Gap]:
    """What other sources carry, known too loosely to say that it is at most a fifth."""
    if judged.ruling.clause.id != "carried-too-wide":
        return
    for family in judged.rule.families:
        evidence = judged.view.evidence(family.questions[0]) if family.questions else None
        if evidence is None or standing(family, judged.view) != "loose":
            continue
        if family.name != "scrubbing":
            yield Gap(
                text=(
                    f"What {LOOSE.get(family.name, family.excludes)} carry may exceed a fifth of"
                    f" the gain that survives scrubbing ({family.name}): the difference is"
                    f" {_points(evidence)}."
                ),
                measurement=_more_runs(evidence),
                cost=cost(evidence, max(-evidence.estimate, 0.0)),
            )


def answered_yes(view: View, question: str) -> list[str]:
    """What a yes-or-no question is answered with yes about."""
    return sorted(
        about or "an action"
        for about, e in view.all_evidence(question).items()
        if e.estimate >= MOST
    )


def _more_runs(evidence: Evidence) -> str:
    return (
        "More held-out tasks."
        if evidence.diagnostics.get("seeds") in (None, 1)
        else "More training seeds or tasks."
    )


def rivals(judged: Judgement) -> Iterator[Gap]:
    """From logs: the label turns on what a credited win would have been worth
    without the shortcut.
    """
    if judged.ruling.label != judged.second.label:
        yield Gap(
            text=(
                "What credited wins are worth without the shortcut decides the label:"
                f" {judged.ruling.label} if they would have gone as the before policy's other runs"
                f" did, {judged.second.label} if as their own policy's other runs did."
            ),
            measurement=RERUN,
            cost=RERUN_COST,
        )


def doubt(judged: Judgement) -> Iterator[Gap]:
    """From logs: attempts that leave open whether the gain is genuine, where the
    credited wins alone would not.
    """
    outer, inner = judged.view.evidence(G0), judged.view.evidence(f"{G0}_inner")
    if judged.ruling.clause.id != "unsettled" or not (outer and inner):
        return
    if outer.interval and inner.interval and outer.interval.low < inner.interval.low:
        yield Gap(
            text=(
                "Wins that tried a shortcut, without a chain of evidence that it made them, widen"
                f" the genuine part from {point_range(inner.interval.low, inner.interval.high, 1)}"
                f" points to {point_range(outer.interval.low, outer.interval.high, 1)}."
            ),
            measurement="Read these wins, which findings.jsonl lists.",
            cost="no new runs",
        )


def not_run(judged: Judgement) -> Iterator[Gap]:
    """From logs: a label that rests on an assumption, which a re-run would test."""
    rests = judged.label in (*RESTS_ON_ASSUMPTION, "undetermined")
    if rests and judged.view.evidence(G) is not None:
        yield Gap(
            text=(
                "Logs bound the genuine part; what wins through a shortcut are worth without it was"
                " not run."
            ),
            measurement=RERUN,
            cost=RERUN_COST,
        )


FROM_RUNS = (
    not_allowed,
    found_elsewhere,
    harm,
    missing,
    too_wide,
    loosely_carried,
    unsettled,
    broken,
    unexplained,
    unused_terms,
    seeds,
    lost_runs,
    silent_runs,
)
FROM_LOGS = (rivals, missing, too_wide, doubt, not_run, seeds, lost_runs)
