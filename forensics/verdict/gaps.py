"""Diagnostic gaps: what could not be told apart, which measurement would tell,
and what it would cost.
"""

from collections.abc import Iterator
from math import ceil, floor, log10, sqrt

from forensics.records import Evidence, Gap, Undefined
from forensics.statistics import t_quantile
from forensics.verdict.rule import (
    ASSUMED,
    G0,
    MOST,
    OVER,
    PLACEBO,
    REFUSED,
    REGRADED,
    SHORTCUT,
    THROUGH,
    WINS,
    Family,
    G,
    Rule,
)
from forensics.verdict.sentences import IN_WORDS, RESTS_ON_ASSUMPTION
from forensics.verdict.view import CARRIED, JOINED, Ruling, View, statistic
from forensics.wording import percent, plural, point_range, points, printable

OUT_OF_REACH = 100  # times the tasks at hand
MOST_SEEDS = 30
LOST_SHARE = 0.05
LONGEST_REASON = 300


def named(
    view: View, ruling: Ruling, second: Ruling, rule: Rule, *, bounded: bool
) -> tuple[Gap, ...]:
    """Everything that could not be told apart, the most pressing first, nothing twice."""
    found = (
        _of_logs(view, ruling, second, rule) if bounded else _of_runs(view, ruling, second, rule)
    )
    first: dict[str, Gap] = {}
    for gap in found:
        first.setdefault(gap.text, gap)
    return tuple(first.values())


def _of_runs(view: View, ruling: Ruling, second: Ruling, rule: Rule) -> Iterator[Gap]:
    imputed = View(view.findings, rule.level, dict(rule.imputed), view.terms)
    yield from not_allowed(view)
    yield from harm(view, ruling)
    yield from missing(view, ruling, rule)
    yield from too_wide(view, rule)
    if ruling.clause.id == "carried-too-wide":
        yield from loosely_carried(view)
    if ruling.clause.id == "unsettled":
        yield from unsettled(view, rule)
    if ruling.label != second.label:
        yield from missing(imputed, second, rule) or breakage(view, ruling, second)
    yield from unexplained(view, ruling)
    yield from unused_terms(view)
    yield from seeds(view)
    yield from lost_runs(view)
    yield from silent_runs(view)


def missing(view: View, ruling: Ruling, rule: Rule) -> list[Gap]:
    """What nobody measured, with the cure that the instrument itself named, and
    how to accept it.
    """
    waivable = ruling.clause.label == "genuine"
    asked = dict.fromkeys(condition.question for condition in ruling.unknown)
    return [
        _missing(view, question, rule.family_of(question) if waivable else None)
        for question in asked
    ]


def _missing(view: View, question: str, family: Family | None) -> Gap:
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


def too_wide(view: View, rule: Rule) -> Iterator[Gap]:
    """The gain or its genuine part known too loosely."""
    for question in (G, G0):
        evidence = view.evidence(question)
        width = statistic(evidence, "half_width", view.level)
        if evidence is not None and width is not None and width > rule.widest:
            yield Gap(
                text=(
                    f"{IN_WORDS[question]} is known only to {100 * width:.1f} points either way;"
                    f" the rule asks for {100 * rule.widest:g}."
                ),
                measurement=_means(evidence),
                cost=cost(evidence, rule.widest),
            )


def unsettled(view: View, rule: Rule) -> Iterator[Gap]:
    """Comparisons of the rule whose outcome the intervals leave open, the cheapest first."""
    straddling = []
    for question, value in rule.boundaries:
        evidence = view.evidence(question)
        if (
            evidence is None
            or evidence.interval is None
            or not evidence.interval.low < value < evidence.interval.high
        ):
            continue
        distance = abs(evidence.estimate - value)
        straddling.append(
            (
                evidence.interval.half_width / max(distance, 1e-12),
                question,
                value,
                evidence,
                distance,
            )
        )
    for _, question, value, evidence, distance in sorted(straddling, key=lambda row: row[:3]):
        assert evidence.interval is not None
        yield Gap(
            text=(
                f"{IN_WORDS[question]} is {points(evidence.estimate, 1)} points"
                f" ({point_range(evidence.interval.low, evidence.interval.high, 1)}), which leaves"
                f" open on which side of {100 * value:g} it lies."
            ),
            measurement=_means(evidence),
            cost=cost(evidence, distance),
        )


def breakage(view: View, ruling: Ruling, second: Ruling) -> list[Gap]:
    """The label turns on whether broken scrubbed runs count as failures."""
    broken = view.evidence("breakage")
    how_often = (
        f" ({points(broken.estimate, 1)} points more after training than before)" if broken else ""
    )
    return [
        Gap(
            text=(
                f"Scrubbed runs that never hand in{how_often} decide the label: {ruling.label} if"
                f" they count as lost skill, {second.label} if they are imputed at the before"
                " policy's rate."
            ),
            measurement=(
                "Scrub in a way that disturbs the policy less, so that the scrubbed world is closer"
                " to what it was trained in."
            ),
            cost=f"about {plural(broken.n, 'episode')}" if broken else "one run of both sides",
        )
    ]


def harm(view: View, ruling: Ruling) -> Iterator[Gap]:
    """What vanishes on scrubbing may be harm that scrubbing does: its placebo
    lost something too.
    """
    over, placebo = statistic(view.evidence(OVER), "low", view.level), view.evidence(PLACEBO)
    if (
        over is None
        or over < 0
        or ruling.label == "phantom"
        or placebo is None
        or placebo.interval is None
    ):
        return
    if placebo.interval.high > 0:
        yield Gap(
            text=(
                "At least four fifths of the gain vanish on scrubbing, but scrubbing may do harm"
                " by itself: what it takes from the policy before training, minus a fifth of the"
                f" gain, is {points(placebo.estimate, 1)} points"
                f" ({point_range(placebo.interval.low, placebo.interval.high, 1)})."
            ),
            measurement=(
                "More held-out tasks where that is too wide; else a replacement that disturbs less,"
                " or a chain of evidence for the wins."
            ),
            cost=cost(placebo, max(-placebo.estimate, 0.0)),
        )


def unexplained(view: View, ruling: Ruling) -> Iterator[Gap]:
    """What scrubbing shows but no chain of evidence explains."""
    over = statistic(view.evidence(OVER), "low", view.level)
    shares = view.all_evidence(WINS)
    if over is not None and over >= 0 and ruling.clause.id in ("mixed", "unsettled"):
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


def not_allowed(view: View) -> Iterator[Gap]:
    """What more than a fifth of the surviving gain runs through, without
    anybody having allowed it.
    """
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


def _by_regrading(view: View, kind: str) -> bool:
    """Whether a shortcut is one because its wins do not stand: nothing that could be allowed."""
    answer = view.all_evidence(SHORTCUT).get(kind)
    return answer is not None and "wins_lost" in answer.diagnostics


def loosely_carried(view: View) -> Iterator[Gap]:
    """What other sources carry, known too loosely to say that it is at most a fifth."""
    for question, what in (
        (REFUSED, "actions that nobody allowed"),
        (REGRADED, "wins that do not stand again"),
    ):
        evidence = view.evidence(question)
        if evidence is None or evidence.interval is None or evidence.interval.high <= 0:
            continue
        yield Gap(
            text=(
                f"What {what} carry may exceed a fifth of the gain that survives scrubbing: the"
                f" difference is {points(evidence.estimate, 1)} points"
                f" ({point_range(evidence.interval.low, evidence.interval.high, 1)})."
            ),
            measurement=_means(evidence),
            cost=cost(evidence, max(-evidence.estimate, 0.0)),
        )


def unused_terms(view: View) -> Iterator[Gap]:
    """An allowed kind that no run tried: mistyped, or out of place."""
    joint = view.answers(REFUSED).get(None)
    tried = joint.diagnostics.get("tried") if isinstance(joint, Evidence) else None
    if isinstance(tried, str):
        for kind in view.terms.allowed:
            if kind not in tried.split(", "):
                yield Gap(
                    text=f"{printable(kind)} is allowed, but no run tried it.",
                    measurement=(
                        f"Look how it is spelt; the runs tried {printable(tried, LONGEST_REASON)}."
                    ),
                    cost="no new runs",
                )


def answered_yes(view: View, question: str) -> list[str]:
    """What a yes-or-no question is answered with yes about."""
    return sorted(
        about or "an action"
        for about, e in view.all_evidence(question).items()
        if e.estimate >= MOST
    )


def seeds(view: View) -> Iterator[Gap]:
    """One training run says nothing about the next."""
    gain = view.evidence(G)
    if gain is not None and gain.diagnostics.get("seeds") == 1:
        yield Gap(
            text=(
                "Training noise was not measured: there is one training run, so the verdict is"
                " about this checkpoint, not about the recipe."
            ),
            measurement=(
                "Train the same recipe with other seeds and give each as another `--after`."
            ),
            cost=(
                "about 4 more training runs (with fewer than 3 in all the intervals become too wide"
                " to use)"
            ),
        )


def lost_runs(view: View) -> Iterator[Gap]:
    """Many runs without a score."""
    gain = view.evidence(G)
    lost = None if gain is None else gain.diagnostics.get("runs_dropped")
    if gain is not None and isinstance(lost, int) and lost > LOST_SHARE * (gain.n + lost):
        yield Gap(
            text=(
                f"{plural(lost, 'run')} errored or had no score and were left out; if that depends"
                " on the policy, the scores are biased."
            ),
            measurement="Find out why they errored and run them again.",
            cost=plural(lost, "episode"),
        )


def silent_runs(view: View) -> Iterator[Gap]:
    """Runs that the token budget kept from acting or cut off; where there are
    too many the gain is not measured.
    """
    before, after = (_share_told(view, f"never_acted_{side}") for side in ("before", "after"))
    if before or after:
        yield Gap(
            text=(
                f"{percent(before)} of the runs before training and {percent(after)} of those after"
                " it never acted, as where a prompt leaves no room for an action; they count as"
                " lost."
            ),
            measurement=(
                "Raise `--max-tokens` above the longest prompt, or leave the longest tasks out."
            ),
            cost="one run of both sides",
        )
    before, after = (_share_told(view, f"cut_off_{side}") for side in ("before", "after"))
    if max(before, after) > LOST_SHARE:
        yield Gap(
            text=(
                f"{percent(before)} of the runs before training and {percent(after)} of those after"
                " it were cut off by the token budget, in the world where most were; they count as"
                " lost."
            ),
            measurement="Raise `--max-tokens`.",
            cost="one run of both sides",
        )


def _share_told(view: View, name: str) -> float:
    gain = view.evidence(G)
    value = None if gain is None else gain.diagnostics.get(name)
    return value if isinstance(value, float) else 0.0


def _means(evidence: Evidence) -> str:
    return (
        "More held-out tasks."
        if evidence.diagnostics.get("seeds") in (None, 1)
        else "More training seeds or tasks."
    )


def cost(evidence: Evidence, target: float) -> str:
    """What brings the half-width down to `target`: tasks with one seed, seeds
    as well with several.

    The part over tasks shrinks with the root of their number; the training part
    with the root of the number of seeds and with the t quantile of their
    degrees of freedom.
    """
    width = evidence.interval.half_width if evidence.interval else None
    deviation, count = evidence.diagnostics.get("seed_deviation"), evidence.diagnostics.get("seeds")
    if width is None or target <= 0:
        return "cannot be said from what was measured"
    if not isinstance(deviation, float) or not isinstance(count, int):
        return _more_tasks(evidence.clusters, (width / target) ** 2)
    level = evidence.interval.level if evidence.interval else 0.95
    training = t_quantile(level, count - 1) * deviation / sqrt(count)
    by_tasks = max(width**2 - training**2, 0.0)
    room = target**2 - by_tasks if by_tasks < target**2 / 2 else target**2 / 2
    needed = _seeds_for(deviation, sqrt(room), level)
    wanted = [] if needed is not None and needed <= count else [_more_seeds(needed, count)]
    if by_tasks > target**2 / 2:
        wanted.append(_more_tasks(evidence.clusters, by_tasks / (target**2 / 2)))
    return " and ".join(wanted) or "about 1 more training seed"


def _seeds_for(deviation: float, target: float, level: float) -> int | None:
    """The fewest seeds whose t interval is at most `target` to either side."""
    return next(
        (
            s
            for s in range(2, MOST_SEEDS + 1)
            if t_quantile(level, s - 1) * deviation / sqrt(s) <= target
        ),
        None,
    )


def _more_seeds(needed: int | None, count: int) -> str:
    if needed is None:
        return f"more than {MOST_SEEDS} training seeds: the runs of this recipe differ too much"
    return f"about {plural(needed - count, 'more training seed')}"


def _more_tasks(tasks: int, factor: float) -> str:
    if factor > OUT_OF_REACH:
        return (
            f"more than {OUT_OF_REACH} times the {plural(tasks, 'task')} at hand: too close to tell"
            " apart"
        )
    needed = _rounded_up(tasks * factor)
    return f"about {plural(max(needed - tasks, 1), 'more task')} ({needed:,} in all)"


def _rounded_up(number: float) -> int:
    """To two significant digits, upwards."""
    unit = int(10 ** max(floor(log10(max(number, 1))) - 1, 0))
    return ceil(number / unit) * unit


# -- from logs -------------------------------------------------------------------------

RERUN = "Run both checkpoints with the shortcuts scrubbed: `forensics investigate`."
RERUN_COST = "one run of both sides in the open and in the scrubbed world"


def _of_logs(view: View, ruling: Ruling, second: Ruling, rule: Rule) -> Iterator[Gap]:
    label = ruling.label if ruling.label == second.label else "undetermined"
    yield from _rivals(ruling, second)
    yield from missing(view, ruling, rule)
    yield from _loose_bounds(view, rule)
    yield from _doubt(view, ruling)
    if label in (*RESTS_ON_ASSUMPTION, "undetermined") and view.evidence(G) is not None:
        yield Gap(
            text=(
                "Logs bound the genuine part; what wins through a shortcut are worth without it was"
                " not run."
            ),
            measurement=RERUN,
            cost=RERUN_COST,
        )
    yield from seeds(view)
    yield from lost_runs(view)


def _rivals(ruling: Ruling, second: Ruling) -> Iterator[Gap]:
    """The label turns on what a credited win would have been worth without the shortcut."""
    if ruling.label != second.label:
        yield Gap(
            text=(
                "What credited wins are worth without the shortcut decides the label:"
                f" {ruling.label} if they would have gone as the before policy's other runs did,"
                f" {second.label} if as their own policy's other runs did."
            ),
            measurement=RERUN,
            cost=RERUN_COST,
        )


def _loose_bounds(view: View, rule: Rule) -> Iterator[Gap]:
    """The gain, or its genuine part under the assumption, known too loosely."""
    for question, name in ((G, "The gain"), (ASSUMED[G0], "The genuine part under the assumption")):
        evidence = view.evidence(question)
        width = (
            None if evidence is None or evidence.interval is None else evidence.interval.half_width
        )
        if evidence is not None and width is not None and width > rule.widest:
            yield Gap(
                text=(
                    f"{name} is known only to {100 * width:.1f} points either way; the rule asks"
                    f" for {100 * rule.widest:g}."
                ),
                measurement="Logs of more tasks.",
                cost=cost(evidence, rule.widest),
            )


def _doubt(view: View, ruling: Ruling) -> Iterator[Gap]:
    """Attempts that leave open whether the gain is genuine, where the credited
    wins alone would not.
    """
    outer, inner = view.evidence(G0), view.evidence(f"{G0}_inner")
    if (
        ruling.clause.id != "unsettled"
        or outer is None
        or inner is None
        or not outer.interval
        or not inner.interval
    ):
        return
    if outer.interval.low < inner.interval.low:
        yield Gap(
            text=(
                "Wins that tried a shortcut, without a chain of evidence that it made them, widen"
                f" the genuine part from {point_range(inner.interval.low, inner.interval.high, 1)}"
                f" points to {point_range(outer.interval.low, outer.interval.high, 1)}."
            ),
            measurement="Read these wins, which findings.jsonl lists.",
            cost="no new runs",
        )
