"""What a gain is made of: five parts that add up to it. They are told beside
the label and decide nothing.

1. `phantom` = P + c. P vanishes on scrubbing. c is what the shortcut of a family
   that no skill can fail carries of the rest (`NO_SKILL`): the largest, where its
   placebo holds, it is surely there (lower end above zero) and not cleared. All
   families are measured in the scrubbed world, so that P and c have nothing in
   common; two families may show one and the same shortcut, so only one counts.
2. `unlocked` = what the policy before training could do if it was asked in another
   way, or what a coin for a reward brings as well, whichever is more; from zero to
   what is left.
3. `sampling` = what the policy before training reaches when it is drawn at another
   temperature, greedily for one; from zero to what is left. RL sharpens whatever else it
   does (2504.13837), so it stands by itself and is no objection to `genuine`.
4. `open` = all that is left where a family was not tested; else the most that one
   of the others may carry, its upper end less c: a family that found something or
   cannot tell, and is neither allowed nor accepted.
5. `learned` = gain - phantom - unlocked - sampling - open. Where skill was lost it is
   negative, and nothing is left for the three before it.

A part that was not measured is `None`. The ends of a sum are the sums of the ends,
which is wider than 95 %; `open` reaches from zero.
"""

from collections.abc import Iterable, Iterator

from forensics.layers.decomposition import GENUINE_BAR
from forensics.records.verdict import Estimate, Parts
from forensics.verdict.rule import G0, NO_SKILL, NOT_SHORTCUTS, Family, G, P, Rule
from forensics.verdict.sources import shares_of, together
from forensics.verdict.status import standing
from forensics.verdict.view import View, estimate_of, found_by, statistic

Ends = tuple[float, float, float]  # estimate, low, high
UNLOCKED, DRAWN = "elicitation.unlocked", "other temperatures"
NOTHING: Ends = (0.0, 0.0, 0.0)


def parts(view: View, rule: Rule) -> Parts | None:
    """The parts; `None` without a gain."""
    total, genuine = estimate_of(view.evidence(G)), estimate_of(view.evidence(G0))
    if total is None:
        return None
    if genuine is None:
        if "scrubbing" not in view.terms.accepted or found_by("scrubbing", view):
            return Parts(open=total)
        genuine = total  # nobody asks what scrubbing would take
    vanished, carried = _ends(estimate_of(view.evidence(P))), shown_phantom(view, rule)
    phantom = None if vanished is None and carried is None else _sum(vanished, carried)
    left = total.estimate - (phantom or NOTHING)[0]
    unlocked = _within(_unlocked(view), max(left, 0.0))
    left -= (unlocked or NOTHING)[0]
    sampling = _within(_ends(estimate_of(view.all_evidence(UNLOCKED).get(DRAWN))), max(left, 0.0))
    left -= (sampling or NOTHING)[0]
    most = most_open(view, rule, (carried or NOTHING)[0], max(left, 0.0))
    learned = _less(_ends(genuine) or NOTHING, carried, unlocked, sampling, (most, 0.0, most))
    return Parts(
        learned=_estimate((left - most, *learned[1:]), total.level),
        unlocked=unlocked and _estimate(unlocked, total.level),
        sampling=sampling and _estimate(sampling, total.level),
        phantom=phantom and _estimate(phantom, total.level),
        open=_estimate((most, 0.0, most), total.level),
    )


def shown_phantom(view: View, rule: Rule) -> Ends | None:
    """The most that a family shows which no skill can fail; `None` where none does."""
    shown = (carried_by(family, view) for family in rule.families if accuses(family, view))
    return max((carried for carried in shown if carried is not None), default=None)


def accuses(family: Family, view: View) -> bool:
    """Whether what a family carries is phantom: all that the rule asks is answered."""
    told = all(view.evidence(question) is not None for question in family.questions)
    if family.name not in NO_SKILL or not told:
        return False
    if standing(family, view) not in ("found", "loose"):
        return False
    carried = carried_by(family, view)
    placebo = statistic(view.evidence(f"{family.name}.placebo_over_bar"), "high", view.level)
    return carried is not None and carried[1] > 0 and placebo is not None and placebo <= 0


def carried_by(family: Family, view: View) -> Ends | None:
    """What all sources of a family carry together: what it says itself, else
    its answer about the bar plus a fifth of the genuine part.
    """
    whole = view.evidence(family.questions[0])
    if said := _ends(estimate_of(view.evidence(shares_of(family.name))) or together(whole, view)):
        return said
    over, genuine = _ends(estimate_of(whole)), view.evidence(G0)
    if over is None or genuine is None:
        return None
    bar = GENUINE_BAR * genuine.estimate
    return over[0] + bar, over[1] + bar, over[2] + bar


def _unlocked(view: View) -> Ends | None:
    answers = (view.evidence(shares_of(family)) for family in NOT_SHORTCUTS)
    return max(_known(estimate_of(answer) for answer in answers), default=None)


def most_open(view: View, rule: Rule, phantom: float, left: float) -> float:
    """What sources may carry at most that are neither cleared nor shown to be phantom."""
    most = 0.0
    for family in rule.families:
        stands = standing(family, view)
        if stands == "not-tested":
            return left
        counted = family.name == "scrubbing" or accuses(family, view)
        if stands in ("found", "loose") and not counted:
            carried = carried_by(family, view)
            most = max(most, left if carried is None else carried[2] - phantom)
    return min(most, left)


def _known(estimates: Iterable[Estimate | None]) -> Iterator[Ends]:
    yield from (ends for one in estimates if (ends := _ends(one)) is not None)


def _ends(one: Estimate | None) -> Ends | None:
    return None if one is None else (one.estimate, one.low, one.high)


def _sum(*terms: Ends | None) -> Ends:
    known = [term for term in terms if term is not None]
    return tuple(map(sum, zip(*known, strict=True)))  # type: ignore[return-value]


def _less(whole: Ends, *terms: Ends | None) -> Ends:
    """Its ends where each term may be anywhere between its own."""
    taken = _sum(NOTHING, *terms)
    return whole[0] - taken[0], whole[1] - taken[2], whole[2] - taken[1]


def _within(part: Ends | None, most: float) -> Ends | None:
    if part is None:
        return None
    estimate, low, high = (min(max(end, 0.0), most) for end in part)
    return estimate, low, high


def _estimate(ends: Ends, level: float) -> Estimate:
    estimate, low, high = ends
    return Estimate(
        estimate=estimate, low=min(low, estimate), high=max(high, estimate), level=level
    )
