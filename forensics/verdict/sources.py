"""What a gain may run through, row by row: what was tested and with which
limit, and what was not.

One row for each channel that was scrubbed, each kind of action that was looked
at and all of them together, regrading, and each family of tests that does not
exist yet. Where no genuine part is left there is nothing that a further source
could carry.
"""

from collections.abc import Iterator

from forensics.phrases import printable
from forensics.records import Evidence, Undefined
from forensics.records.verdict import Estimate, Source
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
    name = family.name
    if name not in SHARES:
        yield Source(family=name, status="not-tested", reason=NOT_BUILT)
        return
    low = statistic(view.evidence(G0), "low", view.level)
    if name != "scrubbing" and low is not None and low <= 0:
        yield Source(family=name, status="not-applicable", reason="No gain survives scrubbing.")
        return
    if name == "refusal":
        yield from _exempt(view)
    answers = sorted(view.answers(SHARES[name]).items(), key=lambda item: item[0] or "")
    tested = any(isinstance(answer, Evidence) for _, answer in answers)
    if name == "scrubbing" and not tested:  # its parts by channel are not there
        row = _row(family, view.answers(G0).get(None), view, otherwise=NO_CHANNEL)
        yield row.model_copy(update={"carried": None, "detects": None})
        return
    for about, answer in answers:
        yield _row(family, answer, view, source=None if about is None else printable(about))
    whole = view.evidence(family.questions[-1])
    if name == "refusal" or not answers:
        row = _row(family, whole, view, otherwise=_why(family, view))
        yield row.model_copy(update={"carried": _together(whole, view)})


def _row(
    family: Family,
    answer: Evidence | Undefined | None,
    view: View,
    *,
    source: str | None = None,
    otherwise: str = "",
) -> Source:
    """What one answer says of a source, or of the family as a whole."""
    if isinstance(answer, Evidence):
        return Source(
            family=family.name,
            source=source,
            status="tested",
            carried=estimate_of(answer),
            detects=_detects(answer, view),
            reason=printable(answer.summary, LONGEST),
        )
    return Source(
        family=family.name,
        source=source,
        status="accepted" if family.name in view.terms.accepted else "not-tested",
        reason=printable(otherwise if answer is None else answer.reason, LONGEST),
    )


def _together(whole: Evidence | None, view: View) -> Estimate | None:
    """What all sources of a family carry together, beside the answer that the rule reads."""
    told = {} if whole is None else whole.diagnostics
    ends = {end: told.get(f"carried_{end}") for end in ("low", "high")}
    numbers = {"estimate": told.get("carried"), **ends}
    if not all(isinstance(number, float) for number in numbers.values()):
        return None
    return Estimate.model_validate({**numbers, "level": view.level})


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
