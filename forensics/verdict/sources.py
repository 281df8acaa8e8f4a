"""What a gain may run through, row by row: what was tested and with which
limit, and what was not.

One row for each channel that was scrubbed, each kind of action that was looked
at and all of them together, regrading, and each family of tests that does not
exist yet. Where no genuine part is left there is nothing that a further source
could carry.
"""

from collections.abc import Iterator

from forensics.phrases import printable
from forensics.records import Estimate, Evidence, Source, Undefined
from forensics.records.verdict import SourceStatus
from forensics.verdict.rule import G0, REFUSED, Family, G, Rule
from forensics.verdict.view import View, estimate_of, statistic

SHARES = {
    "scrubbing": "gain.channel",
    "refusal": "refusal.carried",
    "regrading": "regrading.carried",
}
NOT_BUILT = "This version has no such test."
NO_CHANNEL = "No shortcut of the world was scrubbed."
POWER = 1.6538  # (1.96 + 1.2816) / 1.96: a half-width at 95 % times this is seen with power .9
LONGEST = 300


def sources(view: View, rule: Rule) -> tuple[Source, ...]:
    """Every row, in the order of the rule's families."""
    return tuple(row for family in rule.families for row in _rows(family, view))


def open_families(listed: tuple[Source, ...]) -> tuple[str, ...]:
    """The families of which something was neither tested nor accepted, in order."""
    return tuple(
        dict.fromkeys(row.family for row in listed if row.status in ("not-tested", "accepted"))
    )


def _rows(family: Family, view: View) -> Iterator[Source]:
    if family.name not in SHARES:
        yield Source(family=family.name, status="not-tested", reason=NOT_BUILT)
        return
    missing: SourceStatus = "accepted" if family.name in view.terms.accepted else "not-tested"
    if family.name != "scrubbing" and _nothing_left(view):
        yield Source(
            family=family.name, status="not-applicable", reason="No gain survives scrubbing."
        )
        return
    if family.name == "refusal":
        yield from _exempt(view)
    answers = view.answers(SHARES[family.name])
    told = [
        _row(family.name, about, answer, view, missing)
        for about, answer in sorted(answers.items(), key=lambda item: item[0] or "")
    ]
    if family.name == "scrubbing" and not any(row.status == "tested" for row in told):
        told = [_scrubbed(view, missing)]
    yield from told
    whole = view.evidence(family.questions[-1])
    if family.name == "refusal" or (not told and whole is not None):
        yield _whole(family, view, whole, missing)
    elif not told:
        yield Source(family=family.name, status=missing, reason=_why(family, view))


def _whole(family: Family, view: View, whole: Evidence | None, missing: SourceStatus) -> Source:
    """The family as a whole, by the answer that the rule reads: what all of its
    sources carry together.
    """
    if whole is None:
        return Source(family=family.name, status=missing, reason=_why(family, view))
    ends = [whole.diagnostics.get(f"carried{end}") for end in ("", "_low", "_high")]
    numbers = [end for end in ends if isinstance(end, float)]
    together = (
        Estimate(estimate=numbers[0], low=numbers[1], high=numbers[2], level=view.level)
        if all(isinstance(end, float) for end in ends)
        else None
    )
    return Source(
        family=family.name,
        status="tested",
        carried=together,
        detects=_detects(whole, view),
        reason=printable(whole.summary, LONGEST),
    )


def _row(
    family: str, about: str | None, answer: Evidence | Undefined, view: View, missing: SourceStatus
) -> Source:
    source = None if about is None else printable(about)
    if isinstance(answer, Undefined):
        return Source(
            family=family, source=source, status=missing, reason=printable(answer.reason, LONGEST)
        )
    return Source(
        family=family,
        source=source,
        status="tested",
        carried=estimate_of(answer),
        detects=_detects(answer, view),
        reason=printable(answer.summary, LONGEST),
    )


def _scrubbed(view: View, missing: SourceStatus) -> Source:
    """Scrubbing as a whole, where its parts by channel are not there."""
    genuine = view.answers(G0).get(None)
    if isinstance(genuine, Evidence):
        return Source(
            family="scrubbing", status="tested", reason=printable(genuine.summary, LONGEST)
        )
    reason = NO_CHANNEL if genuine is None else genuine.reason
    return Source(family="scrubbing", status=missing, reason=printable(reason, LONGEST))


def _exempt(view: View) -> Iterator[Source]:
    """Kinds of action that an honest solver needs by the environment's word,
    and those that the reader allows.
    """
    joint = view.answers(REFUSED).get(None)
    needed = joint.diagnostics.get("needed") if isinstance(joint, Evidence) else None
    for kind in needed.split(", ") if isinstance(needed, str) and needed else ():
        yield Source(
            family="refusal",
            source=printable(kind),
            status="not-applicable",
            reason="The environment says that an honest solver needs it.",
        )
    for kind in view.terms.allowed:
        yield Source(
            family="refusal",
            source=printable(kind),
            status="allowed",
            reason="The reader allows it.",
        )


def _nothing_left(view: View) -> bool:
    """Whether the genuine part was measured and is not surely above zero."""
    low = statistic(view.evidence(G0), "low", view.level)
    return low is not None and low <= 0


def _why(family: Family, view: View) -> str:
    for question in (*family.questions, SHARES[family.name]):
        for answer in view.answers(question).values():
            if isinstance(answer, Undefined):
                return printable(answer.reason, LONGEST)
    return "No instrument answered it."


def _detects(evidence: Evidence, view: View) -> float | None:
    """The share of the gain that the test would have seen with power .9: what
    it says itself, else by its interval.
    """
    own = evidence.diagnostics.get("detects")
    if isinstance(own, float):
        return own
    whole = view.evidence(G0) or view.evidence(G)
    if evidence.interval is None or whole is None or whole.estimate <= 0:
        return None
    return min(POWER * evidence.interval.half_width / whole.estimate, 1.0)
