"""What a gain may run through, row by row: what was tested and with which
limit, what was not, and what the reader can do about it.

One row for each channel that was scrubbed, each source that a family looked at
by itself, and each family as a whole. Where no genuine part is left there is
nothing that a further source could carry.
"""

from collections.abc import Iterable, Iterator

from forensics.layers.decomposition import GENUINE_BAR
from forensics.phrases import allow_flags, printable
from forensics.records import Evidence, Undefined
from forensics.records.verdict import Estimate, Source
from forensics.verdict.measurement_cost import cost
from forensics.verdict.rule import G0, NOT_SHORTCUTS, REFUSED, Family, G, Rule
from forensics.verdict.status import nothing_to_test, standing
from forensics.verdict.view import JOINED, View, estimate_of

SHARES = {"scrubbing": "gain.channel", "elicitation": "elicitation.unlocked"}
NOT_BUILT = "This version has no such test."
NO_CHANNEL = "No shortcut of the world was scrubbed."
POWER = 1.6538  # (1.96 + 1.2816) / 1.96: a half-width at 95 % times this is seen with power .9
LONGEST = 300
JOB = "if it is part of the job, {allow}; if not, declare it as a channel"
TODO = {  # where a source of the family carries more than a fifth
    "scrubbing": "close it where policies are trained and scored",
    "refusal": JOB,
    "exchange": JOB,
    "regrading": "read the wins that are lost, and mend the grader",
    "renaming": "declare it as a channel, or mend the tasks that give it away",
    "sufficiency": "if it is the question itself, declare it so; " + JOB,
    "blind-play": "vary the tasks, so that nothing wins without reading them",
    "audit": "mend the grader",
    "variants": "measure on tasks that are drawn anew",
    "memory": "measure on tasks that training has not seen",
}


HELD = {  # how much of the gain, in a family that found something
    "refusal": "need actions that nobody allowed",
    "regrading": "do not stand when hand-ins are graded again",
    "exchange": "need what was shown",
    "renaming": "go away when what no skill needs is renamed",
    "sufficiency": "are there with one field alone",
    "blind-play": "are there without reading the task",
    "audit": "are won by hand-ins that should not win",
    "variants": "do not carry over to tasks drawn anew",
    "memory": "are on tasks that training saw",
}
HELD_BY = {  # the same with its names
    "exchange": "need what {names} showed",
    "sufficiency": "are there with {names} alone",
}
NAMED = 2  # sources at most, in the headline


def shares_of(family: str) -> str:
    """The question on what each source of a family carries."""
    return SHARES.get(family, f"{family}.carried")


def sources(view: View, rule: Rule) -> tuple[Source, ...]:
    """Every row, in the order of the rule's families."""
    return tuple(row for family in rule.families for row in sources_of(family, view))


def held_by(family: Family, listed: tuple[Source, ...]) -> str:
    """How much of the gain hangs on what the family found, with the names of what surely
    carries more than a fifth of it.
    """
    held = HELD.get(family.name, f"run through {family.excludes}")
    named = smallest([one.source for one in listed if one.family == family.name and one.todo])
    if not named:
        return held
    shown = [f"`{printable(one, 100)}`" for one in named[:NAMED]]
    shown += [f"{len(named) - NAMED:,} more"] if len(named) > NAMED else []
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    by_name = HELD_BY.get(family.name)
    return by_name.format(names=names) if by_name else f"{held}: {names}"


def smallest(named: Iterable[str | None]) -> list[str]:
    """Those that have a name; of several together, none that stands there by itself."""
    found = [one for one in named if one]
    alone = {one for one in found if JOINED not in one}
    return [one for one in found if one in alone or alone.isdisjoint(one.split(JOINED))]


def open_families(listed: tuple[Source, ...]) -> tuple[str, ...]:
    """The families of which something was neither tested nor accepted, in order."""
    return tuple(
        dict.fromkeys(row.family for row in listed if row.status in ("not-tested", "accepted"))
    )


def sources_of(family: Family, view: View) -> Iterator[Source]:
    """The rows of one family."""
    name = family.name
    if not family.questions:
        yield Source(family=name, status="not-tested", reason=NOT_BUILT)
        return
    if (reason := nothing_to_test(family, view)) is not None:
        yield Source(family=name, status="not-applicable", reason=printable(reason, LONGEST))
        return
    if name == "refusal":
        yield from _exempt(view)
    answers = view.answers(shares_of(name))
    if name == "scrubbing" and not any(isinstance(one, Evidence) for one in answers.values()):
        yield _scrubbed_as_a_whole(family, view)
        return
    for about in sorted(about for about in answers if about is not None):
        yield _row(family, answers[about], view, about)
    if name != "scrubbing":
        yield _whole(family, view)


def _scrubbed_as_a_whole(family: Family, view: View) -> Source:
    """Where its parts by channel are not there."""
    row = _row(family, view.answers(G0).get(None), view, otherwise=NO_CHANNEL)
    return row.model_copy(update={"carried": None, "detects": None})


def _whole(family: Family, view: View) -> Source:
    """All sources of a family together."""
    carried, whole = view.evidence(shares_of(family.name)), view.evidence(family.questions[0])
    shown = carried if whole is None or carried is not None else whole
    row = _row(family, shown, view, otherwise=_why(family, view))
    if carried is None:
        row = row.model_copy(update={"carried": together(whole, view)})
    return row.model_copy(update={"todo": _todo(family, view)})


def _row(
    family: Family,
    answer: Evidence | Undefined | None,
    view: View,
    about: str | None = None,
    otherwise: str = "",
) -> Source:
    """What one answer says of a source, or of the family as a whole."""
    source = None if about is None else printable(about)
    if isinstance(answer, Evidence):
        return Source(
            family=family.name,
            source=source,
            status="tested",
            carried=estimate_of(answer),
            detects=_detects(answer, view),
            reason=printable(answer.summary, LONGEST),
            todo=cure_of(family.name, source)
            if source and _carries(family.name, answer, view)
            else "",
        )
    return Source(
        family=family.name,
        source=source,
        status="accepted" if family.name in view.terms.accepted else "not-tested",
        reason=printable(otherwise if answer is None else answer.reason, LONGEST),
        todo=""
        if answer is None or family.name in view.terms.accepted
        else _sentence_end(printable(answer.cure, LONGEST)),
    )


def _carries(family: str, answer: Evidence, view: View) -> bool:
    """Whether a source surely carries more than a fifth of what it is measured on."""
    if isinstance(told := answer.diagnostics.get("carries"), bool):
        return told
    whole = view.evidence(G if family == "scrubbing" else G0) or view.evidence(G)
    if whole is None or answer.interval is None or family in NOT_SHORTCUTS:
        return False
    return answer.interval.low > GENUINE_BAR * max(whole.estimate, 0.0)


def _todo(family: Family, view: View) -> str:
    """What there is to do about a family as a whole."""
    stands, name, asked = standing(family, view), family.name, family.questions[0]
    whole = view.evidence(asked)
    if stands == "found" or (stands == "loose" and whole is not None and whole.estimate >= 0):
        return cure_of(name)
    if stands == "loose" and whole is not None:
        return clearing_cost(whole, view).removeprefix("about ")
    if stands != "not-tested":
        return ""
    cures = [
        answer.cure
        for question in family.questions
        for answer in view.answers(question).values()
        if isinstance(answer, Undefined)
    ]
    cure = _sentence_end(printable(cures[0], LONGEST)) if cures else f"measure `{asked}`"
    return f"{cure}, or `--accept {name}`"


def clearing_cost(whole: Evidence, view: View) -> str:
    """What would clear a family that is known too loosely. Where its sources may
    carry nothing at all, it is what would do if they carry nothing: that their
    estimate fell on one side of zero is luck, and would be counted twice.
    """
    carried, genuine, total = together(whole, view), view.evidence(G0), view.evidence(G)
    room = -whole.estimate
    if carried is not None and genuine is not None and carried.low <= 0 <= carried.high:
        room = GENUINE_BAR * genuine.estimate
    return cost(whole, max(room, 0.0), total.clusters if total else 0)


def cure_of(family: str, *sources: str) -> str:
    """What to do about sources that carry more than a fifth (none named: all of the family)."""
    kinds = dict.fromkeys(kind for source in sources for kind in source.split(JOINED))
    allow = " ".join(f"`{allow_flags([kind])}`" for kind in kinds) or "allow it"
    return TODO.get(family, "").format(allow=allow)


def _sentence_end(text: str) -> str:
    return text.rstrip(". ")


def together(whole: Evidence | None, view: View) -> Estimate | None:
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
    for question in (*family.questions, shares_of(family.name)):
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
    scrubbing = evidence.question == SHARES["scrubbing"]
    whole = view.evidence(G if scrubbing else G0) or view.evidence(G)
    if evidence.interval is None or whole is None or whole.estimate <= 0:
        return None
    return min(POWER * evidence.interval.half_width / whole.estimate, 1.0)
