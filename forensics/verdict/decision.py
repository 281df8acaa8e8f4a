"""From findings to a verdict, for re-runs and for logs. Pure: the same findings
in any order give the same bytes.

1. Take the rule, the standard one or one's own: as it is for a re-run, or the
   same clauses as logs can answer them.
2. Walk the clauses on the plain decomposition and again on its twin (breakage
   imputed; from logs: the rival assumption). One label from both is the label;
   two different ones are `undetermined`, with that gap.
3. Say why in a code where it is undetermined, in a sentence, in reasons with
   their numbers; list every source that was tested and every gain test that was
   not made; name every gap with what would close it.

What the reader takes upon themselves changes the findings that count (`View`)
and is written into the verdict: `allowed` kinds of action are part of the job,
`accepted` gain tests need not have been made.

Diagnostic gaps: what could not be told apart, which measurement would tell,
and what it would cost (`measurement_cost`). First what the answers leave open, then
what the runs do: training noise that one run does not show, runs that were lost or
silent, terms that nothing touched. Those about gain tests are in `source_gaps`.
"""

from collections.abc import Iterable, Iterator, Sequence

from forensics.phrases import allow_flags, joined, percent, plural, point_range, points, printable
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Gap, ReasonCode
from forensics.verdict.parts import parts
from forensics.verdict.rule import (
    ASSUMED,
    G0,
    OVER,
    PLACEBO,
    REFUSED,
    THROUGH,
    WINS,
    G,
    P,
    Rule,
    for_logs,
    standard_rule,
)
from forensics.verdict.sentences import (
    IN_WORDS,
    LOST_SHARE,
    RESTS_ON_ASSUMPTION,
    lost_shares,
    reasons,
    sentence,
    stated,
)
from forensics.verdict.source_gaps import (
    answered_yes,
    found_elsewhere,
    loosely_carried,
    not_allowed,
    reaches_above_zero,
    rest_open,
)
from forensics.verdict.sources import (
    NAMED,
    cost,
    in_points,
    more_runs,
    smallest,
    sources,
    sources_of,
)
from forensics.verdict.view import (
    JOINED,
    Judgement,
    Ruling,
    Terms,
    View,
    as_scrubbed,
    estimate_of,
    scrubbed,
    standing,
    statistic,
    walk,
)

RERUN = "Run both checkpoints with the shortcuts scrubbed: `forensics investigate`."
RERUN_COST = "one run of both sides in the open and in the scrubbed world"
APART = ("prompt", "rule")  # what stands before a field of the prompt, or a line of code
LONGEST_REASON = 300


def named_gaps(judged: Judgement) -> tuple[Gap, ...]:
    """Everything that could not be told apart, the most pressing first, nothing twice."""
    first: dict[str, Gap] = {}
    for tell in FROM_LOGS if judged.bounded else FROM_RUNS:
        for gap in tell(judged):
            first.setdefault(gap.text, gap)
    return tuple(first.values())


def closed(judged: Judgement) -> Iterator[Gap]:
    """A settled phantom: what a person measures next is no more of the same."""
    if judged.label != "phantom":
        return
    found = (one for test in judged.rule.gain_tests for one in sources_of(test, judged.view))
    rows = {one.source: one for one in found if one.todo and one.status == "tested"}
    named = [rows[one].told for one in smallest(rows)][:NAMED]
    yield Gap(
        text="What the same training learns without the shortcut was not measured.",
        measurement=(
            f"Close {joined(named, 'what carries the gain')} in the world that trains and scores,"
            " train again, and investigate that checkpoint."
        ),
        cost="one training run and one case",
    )


def missing(
    judged: Judgement, view: View | None = None, ruling: Ruling | None = None
) -> Iterator[Gap]:
    """What nobody measured, with the cure that the instrument itself named, and
    how to accept it.
    """
    view, ruling = view or judged.view, ruling or judged.ruling
    for question in dict.fromkeys(condition.question for condition in ruling.unknown):
        waivable = ruling.clause.label == "genuine"
        yield _unanswered(view, question, judged.rule.test_of(question) if waivable else None)


def _unanswered(view: View, question: str, test: GainTest | None) -> Gap:
    name, answers = view.name(question), view.answers(question)
    accept = f" Or accept that it is not tested: `--accept {test.name}`." if test else ""
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
        allow = allow_flags(view.terms.allowed)
        return Gap(
            text=(f"No run refused every kind of action except {printable(view.terms.key or '')}."),
            measurement=f"`forensics investigate ... --resume {allow}`." + accept,
            cost="one more world for both sides",
        )
    left_out = test is not None and not any(map(view.answers, test.questions))
    return Gap(
        text=f"The gain test {test.name} was left out."
        if test and left_out
        else f"`{name}` was not measured.",
        measurement="`forensics investigate ... --resume` without `--quick` or `--instruments`."
        + accept,
        cost="one run of what answers it",
    )


def too_wide(judged: Judgement) -> Iterator[Gap]:
    """The gain or its genuine part (from logs: under the assumption) known too loosely."""
    if judged.label != "undetermined":  # every value in the intervals gives that label
        return
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
                    f" for {100 * widest:g} where that leaves two labels open."
                ),
                measurement="Logs of more tasks." if judged.bounded else more_runs(evidence),
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
                f"{IN_WORDS[question]} is {in_points(evidence)}, which leaves open on which side of"
                f" {100 * value:g} it lies."
            ),
            measurement=more_runs(evidence),
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
    if over and judged.ruling.label != "phantom" and placebo and reaches_above_zero(placebo):
        yield Gap(
            text=(
                "At least four fifths of the gain vanish on scrubbing, but scrubbing may do harm"
                " by itself: what it takes from the policy before training, minus a fifth of the"
                f" gain, is {in_points(placebo)}."
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


def unused_terms(judged: Judgement) -> Iterator[Gap]:
    """An allowed kind that no run tried: mistyped, or out of place. Of a field
    (`prompt:hint`, `look:paper:price`) only the kind before it is known.
    """
    joint = judged.view.answers(REFUSED).get(None)
    tried = joint.diagnostics.get("tried") if isinstance(joint, Evidence) else None
    if isinstance(tried, str):
        known = {*tried.split(", "), *APART}
        for kind in judged.view.terms.allowed:
            parts = {part.split(":")[0] for part in kind.split(JOINED) if ":" in part} or {kind}
            if not parts <= known:
                yield Gap(
                    text=f"{printable(kind)} is allowed, but no run tried it.",
                    measurement=(
                        f"Look how it is spelt; the runs tried {printable(tried, LONGEST_REASON)}."
                    ),
                    cost="no new runs",
                )


def seeds(judged: Judgement) -> Iterator[Gap]:
    """One training run says nothing about the next."""
    gain = judged.view.evidence(G)
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


def lost_runs(judged: Judgement) -> Iterator[Gap]:
    """Many runs without a score."""
    gain = judged.view.evidence(G)
    lost = None if gain is None else gain.diagnostics.get("runs_dropped")
    if gain is None or not isinstance(lost, int):
        return
    if max(lost / max(gain.n + lost, 1), *lost_shares(judged.view)) > LOST_SHARE:
        yield Gap(
            text=(
                f"{plural(lost, 'run')} errored or had no score and were left out; if that depends"
                " on the policy, the scores are biased."
            ),
            measurement="Find out why they errored and run them again.",
            cost=plural(lost, "episode"),
        )


def silent_runs(judged: Judgement) -> Iterator[Gap]:
    """Runs that the token budget kept from acting or cut off; where there are
    too many the gain is not measured.
    """
    before, after = (stated(judged.view, f"never_acted_{side}") for side in ("before", "after"))
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
    before, after = (stated(judged.view, f"cut_off_{side}") for side in ("before", "after"))
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


FROM_RUNS = (
    closed,
    rest_open,
    not_allowed,
    found_elsewhere,
    harm,
    missing,
    lost_runs,
    too_wide,
    loosely_carried,
    unsettled,
    broken,
    unexplained,
    unused_terms,
    seeds,
    silent_runs,
)
FROM_LOGS = (rivals, missing, lost_runs, too_wide, doubt, not_run, seeds)


WEIGHED = ("score", "gain", "breakage", "behaviour", "ablation")  # beside the gain tests


def decide(
    findings: Iterable[Evidence | Undefined],
    rule: Rule | None = None,
    *,
    allowed: Sequence[str] = (),
    accepted: Sequence[str] = (),
) -> Verdict:
    """The verdict on findings. Missing evidence makes it `undetermined` with a
    gap, never an error.
    """
    told, rule = tuple(findings), rule or standard_rule()
    terms = Terms(
        allowed=tuple(sorted(set(allowed))),
        accepted=rule.accepted(accepted),
        on_terms=tuple(test.name for test in rule.gain_tests if test.on_terms),
    )
    weighed = {*WEIGHED, *(test.name for test in rule.gain_tests)}
    judged = _judged(told, rule, terms)
    view, rule, bounded, label = judged.view, judged.rule, judged.bounded, judged.label
    listed, open_gaps = sources(view, rule), named_gaps(judged)
    total = view.evidence(G)
    from_logs = total is not None and total.diagnostics.get("basis") == "logs alone"
    shares = {about: estimate_of(evidence) for about, evidence in view.wins().items()}
    return Verdict(
        label=label,
        reason_code=_reason_code(judged),
        basis="logs" if bounded or from_logs else "re-run",
        gain=estimate_of(total),
        genuine_gain=estimate_of(scrubbed(view, G0)),
        phantom_gain=estimate_of(scrubbed(view, P)),
        parts=parts(view, rule),
        score_before=estimate_of(view.evidence("score.before")),
        score_after=estimate_of(view.evidence("score.after")),
        share_of_wins_via_channel={
            printable(about): share
            for about, share in shares.items()
            if about is not None and share is not None
        },
        sources=listed,
        allowed=terms.allowed,
        accepted=terms.accepted,
        sentence=sentence(judged, open_gaps, listed),
        reasons=reasons(judged),
        gaps=open_gaps,
        decided_by=judged.ruling.clause.id
        if label == judged.ruling.label
        else ("assumptions" if bounded else "breakage"),
        rule=rule.identity_given(terms.allowed, terms.accepted),
        evidence=tuple(
            sorted(
                finding.id
                for finding in told
                if isinstance(finding, Evidence) and finding.question.split(".")[0] in weighed
            )
        ),
    )


def _judged(told: tuple[Evidence | Undefined, ...], rule: Rule, terms: Terms) -> Judgement:
    """The walk on both decompositions."""
    bounded = is_bounded(told)
    rule = for_logs(rule) if bounded else rule
    everything = (*told, *as_scrubbed(told, rule.level))
    view = View(everything, rule.level, terms=terms)
    declared = {test.name for test in rule.gain_tests if test.kind == "declared"}
    whole = {G0: G} if declared & {*terms.accepted} and view.evidence(G0) is None else {}
    return Judgement(
        view=view,
        rule=rule,
        ruling=walk(View(everything, rule.level, whole, terms), rule),
        second=walk(View(everything, rule.level, {**dict(rule.imputed), **whole}, terms), rule),
        bounded=bounded,
    )


def is_current(verdict: Verdict, rule: Rule | None = None) -> bool:
    """Whether a verdict was given by this rule (by default the standard one) as it is now."""
    rule = rule or standard_rule()
    return verdict.rule in {
        one.identity_given(verdict.allowed, verdict.accepted) for one in (rule, for_logs(rule))
    }


def is_bounded(findings: Iterable[Evidence | Undefined]) -> bool:
    """Whether bounds and an assumption stand for a scrubbed world: somebody
    asked logs for the genuine part.
    """
    return any(finding.question == ASSUMED[G0] for finding in findings)


def _reason_code(judged: Judgement) -> ReasonCode | None:
    """Why nothing is settled: something was found, a test is missing, intervals
    are too wide, or none of these, in this order.
    """
    ruling, rule = judged.ruling, judged.rule
    if judged.label != "undetermined":
        return None
    if ruling.clause.id == "source-not-allowed":
        return "source-not-allowed"
    if (ruling.unknown or ruling.clause.id == "too-wide") and _found(judged):
        return "source-not-allowed"  # more tasks would not settle what was found
    if any(
        rule.test_of(condition.question)
        for one in (ruling, judged.second)
        for condition in one.unknown
    ):
        return "family-not-tested"
    return "too-wide" if ruling.clause.id in ("too-wide", "carried-too-wide") else "unsettled"


def _found(judged: Judgement) -> bool:
    """Whether more than a fifth was shown to run through what nobody allowed."""
    return bool(answered_yes(judged.view, THROUGH)) or any(
        standing(test, judged.view) == "found"
        for test in judged.rule.gain_tests
        if test.kind != "declared"
    )
