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
"""

from collections.abc import Iterable, Sequence

from forensics.phrases import printable
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.verdict import ReasonCode
from forensics.verdict import gaps
from forensics.verdict.parts import parts
from forensics.verdict.rule import (
    ASSUMED,
    G0,
    THROUGH,
    G,
    P,
    Rule,
    for_logs,
    standard_rule,
)
from forensics.verdict.sentences import reasons, sentence
from forensics.verdict.source_gaps import answered_yes
from forensics.verdict.sources import sources
from forensics.verdict.status import as_scrubbed, scrubbed, standing
from forensics.verdict.view import Judgement, Terms, View, estimate_of, walk

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
    listed, named = sources(view, rule), gaps.named(judged)
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
        sentence=sentence(judged, named, listed),
        reasons=reasons(judged),
        gaps=named,
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
