"""From findings to a verdict. Pure: the same findings in any order give the same bytes.

1. Walk the clauses on the plain decomposition and again on the one with breakage imputed.
2. One label from both is the label; two different ones are `undetermined`, with the breakage gap.
3. Say it in a sentence, give the reasons with their numbers, and name every gap with what would close it.
"""

from collections.abc import Iterable
from typing import Literal

from forensics.records import Estimate, Evidence, Gap, Undefined, Verdict
from forensics.verdict import gaps
from forensics.verdict.rule import G0, RULE_1, WINS, G, P, Rule
from forensics.verdict.sentences import reasons, sentence
from forensics.verdict.view import Ruling, View, walk
from forensics.wording import printable

LAYERS_WEIGHED = ("score", "gain", "breakage", "behaviour", "ablation")


def decide(findings: Iterable[Evidence | Undefined], rule: Rule = RULE_1) -> Verdict:
    """The verdict on findings. Missing evidence makes it `undetermined` with a gap, never an error."""
    everything = tuple(findings)
    view, imputed = View(everything, rule.level), View(everything, rule.level, dict(rule.imputed))
    ruling, second = walk(view, rule), walk(imputed, rule)
    label = ruling.label if ruling.label == second.label else "undetermined"
    named = _gaps(view, imputed, ruling, second, rule)
    gain, genuine, phantom = (estimate_of(view.evidence(question)) for question in (G, G0, P))
    return Verdict(
        label=label, basis=_basis(view), gain=gain, genuine_gain=genuine, phantom_gain=phantom,
        score_before=estimate_of(view.evidence("score.before")), score_after=estimate_of(view.evidence("score.after")),
        share_of_wins_via_channel=_wins(view), sentence=sentence(label, view, named),
        reasons=reasons(label, view, ruling, second, rule), gaps=named,
        decided_by=ruling.clause.id if label == ruling.label else "breakage", rule=rule.identity,
        evidence=tuple(sorted(weighed.id for weighed in _weighed(view))),
    )


def _gaps(view: View, imputed: View, ruling: Ruling, second: Ruling, rule: Rule) -> tuple[Gap, ...]:
    """Everything that could not be told apart, the most pressing first, nothing twice."""
    named = [*gaps.undeclared(view, ruling), *gaps.missing(view, ruling), *gaps.too_wide(view, rule)]
    if ruling.clause.id == "unsettled":
        named += gaps.unsettled(view, rule)
    if ruling.label != second.label:
        named += gaps.missing(imputed, second) or gaps.breakage(view, ruling, second)
    named += [*gaps.unexplained(view, ruling), *gaps.allowed(view), *gaps.seeds(view)]
    named += [*gaps.lost_runs(view), *gaps.silent_runs(view)]
    first: dict[str, Gap] = {}
    for gap in named:
        first.setdefault(gap.text, gap)
    return tuple(first.values())


def estimate_of(evidence: Evidence | None) -> Estimate | None:
    """A number as `case.json` states it; `None` where it or its interval is missing."""
    if evidence is None or evidence.interval is None:
        return None
    interval = evidence.interval
    return Estimate(estimate=evidence.estimate, low=interval.low, high=interval.high, level=interval.level)


def _wins(view: View) -> dict[str, Estimate]:
    shares = {about: estimate_of(evidence) for about, evidence in view.all_evidence(WINS).items()}
    return {printable(about): share for about, share in shares.items() if about is not None and share is not None}


def _basis(view: View) -> Literal["re-run", "logs alone"]:
    gain = view.evidence(G)
    return "logs alone" if gain is not None and gain.diagnostics.get("basis") == "logs alone" else "re-run"


def _weighed(view: View) -> list[Evidence]:
    """The numbers that a rule may read."""
    return [
        finding for finding in view.findings
        if isinstance(finding, Evidence) and finding.question.split(".")[0] in LAYERS_WEIGHED
    ]
