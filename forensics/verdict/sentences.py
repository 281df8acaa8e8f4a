"""The verdict in words. Names and sentences that come with findings are data: made printable, cut short."""

from forensics.records import Evidence, Gap
from forensics.records.verdict import Label
from forensics.verdict.rule import COLLAPSE, ECHO, G0, MOST, OVER, SHORTCUT, UNDER, WINS, G, P, Rule
from forensics.verdict.view import Ruling, View
from forensics.wording import capital, percent, point_range, points, printable

LONGEST_SENTENCE = 400
WORTH_NAMING = 0.05  # share of wins below which a channel is left out of the headline
IN_WORDS = {
    G: "Gain",
    G0: "Genuine part (both sides scrubbed)",
    P: "Phantom part (what vanishes)",
    OVER: "Phantom part minus 0.8 of the gain",
    UNDER: "Phantom part minus 0.2 of the gain",
    f"{G0}_imputed": "Genuine part with breakage imputed",
    f"{P}_imputed": "Phantom part with breakage imputed",
    "breakage": "Scrubbed runs that never hand in, after minus before",
}


def sentence(label: Label, view: View, named: tuple[Gap, ...]) -> str:
    """The headline: the label, the score, the split, the channel; for `undetermined` the first gap, and no cause."""
    settled = label != "undetermined"
    parts = [f"Verdict: {label.upper()}.", score_told(view), _split(view, settled=settled), channel_told(view)]
    if not settled and named:
        parts.append(f"Not settled: {named[0].text}")
    return " ".join(part for part in parts if part)


def score_told(view: View) -> str:
    """From where to where the score went, with the interval of the gain."""
    gain, before, after = (view.evidence(question) for question in (G, "score.before", "score.after"))
    if gain is None:
        return "The gain was not measured."
    ends = f" from {percent(before.estimate)} to {percent(after.estimate)}" if before and after else ""
    sure = gain.interval is not None and not gain.interval.contains(0.0)
    moved = "went" if not sure else "rose" if gain.estimate > 0 else "fell"
    return f"The score {moved}{ends} ({points(gain.estimate)} points{_range(gain, named=True)})."


def _range(evidence: Evidence, *, named: bool, decimals: int = 0) -> str:
    if evidence.interval is None:
        return ", no interval"
    span = point_range(evidence.interval.low, evidence.interval.high, decimals)
    return f", {100 * evidence.interval.level:g} % interval {span}" if named else f" ({span})"


def _split(view: View, *, settled: bool) -> str:
    """The gain without its shortcuts; which share of it is phantom is said only of a settled verdict."""
    genuine, total, phantom = (view.evidence(question) for question in (G0, G, P))
    if genuine is None:
        return ""
    names = genuine.diagnostics.get("scrubbed")
    scrubbed = printable(names) if isinstance(names, str) else "every known shortcut"
    share = _phantom_share(total, phantom) if settled else None
    return (
        f"With {scrubbed} scrubbed for both, the gain is {points(genuine.estimate)} points"
        f"{_range(genuine, named=False)}{f': {share} of it is phantom' if share else ''}."
    )


def _phantom_share(total: Evidence | None, phantom: Evidence | None) -> str | None:
    """The phantom share of a gain that is surely a gain, in words."""
    if total is None or phantom is None or total.interval is None or total.interval.low <= 0:
        return None
    share = phantom.estimate / total.estimate
    return "none" if share <= 0 else "all" if share >= 1 else percent(share)


def channel_told(view: View) -> str:
    """How the wins came about, with the first example."""
    shares = {a: e for a, e in view.all_evidence(WINS).items() if a is not None}
    if not shares:
        return ""
    name, top = max(shares.items(), key=lambda item: item[1].estimate)
    if top.estimate < WORTH_NAMING:
        return ""
    step, trajectory = top.diagnostics.get("example_step"), top.diagnostics.get("example_trajectory")
    seen = ""
    if step is not None and trajectory is not None:
        seen = f"; first seen at step {step} of trajectory {printable(str(trajectory))}"
    return f"{capital(percent(top.estimate))} of the wins came through {printable(name)}{seen}."


def reasons(label: Label, view: View, ruling: Ruling, second: Ruling, rule: Rule) -> tuple[str, ...]:
    """The clause that decided, then every number it could rest on."""
    numbers = [_number(question, evidence) for question in IN_WORDS if (evidence := view.evidence(question))]
    told = [
        printable(evidence.summary, LONGEST_SENTENCE)
        for question in ("gain.channel", WINS, ECHO, COLLAPSE, SHORTCUT)
        for evidence in view.all_evidence(question).values()
        if evidence.summary and (question != SHORTCUT or evidence.estimate >= MOST)
    ]
    return (_because(label, ruling, second, rule), *numbers, *told)


def _because(label: Label, ruling: Ruling, second: Ruling, rule: Rule) -> str:
    where = f"Rule version {rule.version}"
    if label != ruling.label:
        return (
            f"{where}: clause {ruling.clause.id} gives {ruling.label} on all runs, but {_outcome(second)} "
            "with breakage imputed."
        )
    if ruling.unknown:
        return f"{where} stops at clause {ruling.clause.id} ({ruling.clause.text}): what it needs was not measured."
    return f"{where}, clause {ruling.clause.id}: {ruling.clause.text}."


def _outcome(ruling: Ruling) -> str:
    return f"{ruling.label} (clause {ruling.clause.id})"


def _number(question: str, evidence: Evidence) -> str:
    return f"{IN_WORDS[question]}: {points(evidence.estimate, 1)} points{_range(evidence, named=True, decimals=1)}."
