"""What a gain is made of: five parts that add up to it. They are told beside
the label and decide nothing.

1. `phantom` = P + c. P vanishes on scrubbing. c is what the shortcut of a *needless* gain test
   carries of the rest: the largest, where its placebo holds, it is surely there (lower end
   above zero) and not cleared. All tests are measured in the scrubbed world, so that P and c
   have nothing in common; two may show one and the same shortcut, so only one counts.
2. `unlocked` = what the policy before training could do if it was asked in another
   way, or what a coin for a reward brings as well, whichever is more; from zero to
   what is left.
3. `sampling` = what the policy before training reaches when it is drawn at another
   temperature, greedily for one; from zero to what is left. RL sharpens whatever else it
   does (2504.13837), so it stands by itself and is no objection to `genuine`.
4. `open` = all that is left where a test was not made; else the most that one
   of the others may carry, its upper end less c: one that found something or
   cannot tell, and is neither allowed nor accepted.
5. `learned` = gain - phantom - unlocked - sampling - open. Where skill was lost it is
   negative, and nothing is left for the three before it.

A part that was not measured is `None`. The ends of a sum are the sums of the ends,
which is wider than 95 %; `open` reaches from zero.
"""

from collections.abc import Iterable, Iterator

from forensics.layers.decomposition import GENUINE_BAR
from forensics.records import Evidence
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Estimate, Parts
from forensics.verdict.rule import G0, G, P, Rule
from forensics.verdict.sources import together
from forensics.verdict.view import View, estimate_of, found_by, standing, statistic

Ends = tuple[float, float, float]  # estimate, low, high
NOTHING: Ends = (0.0, 0.0, 0.0)


def parts(view: View, rule: Rule) -> Parts | None:
    """The parts; `None` without a gain."""
    total, genuine = estimate_of(view.evidence(G)), estimate_of(view.evidence(G0))
    if total is None:
        return None
    if genuine is None:
        declared = [test for test in rule.gain_tests if test.kind == "declared"]
        if any(t.name not in view.terms.accepted or found_by(t, view) for t in declared):
            return Parts(open=total)
        genuine = total  # nobody asks what scrubbing would take
    vanished, carried = _ends(estimate_of(view.evidence(P))), shown_phantom(view, rule)
    phantom = None if vanished is None and carried is None else _sum(vanished, carried)
    left = total.estimate - (phantom or NOTHING)[0]
    asides = [test for test in rule.gain_tests if test.kind == "aside"]
    unlocked = _within(_most(view.evidence(one.shared) for one in asides), max(left, 0.0))
    left -= (unlocked or NOTHING)[0]
    drawn = _most(view.all_evidence(one.shared).get(one.sampling) for one in asides if one.sampling)
    sampling = _within(drawn, max(left, 0.0))
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
    """The most that a needless test shows; `None` where none does."""
    shown = (carried_by(test, view) for test in rule.gain_tests if accuses(test, view))
    return max((carried for carried in shown if carried is not None), default=None)


def accuses(test: GainTest, view: View) -> bool:
    """Whether what a test's sources carry is phantom: all that the rule asks is answered."""
    answered = all(view.evidence(question) is not None for question in test.questions)
    if test.kind != "needless" or not answered:
        return False
    if standing(test, view) not in ("found", "loose"):
        return False
    carried = carried_by(test, view)
    placebo = statistic(view.evidence(f"{test.name}.placebo_over_bar"), "high", view.level)
    return carried is not None and carried[1] > 0 and placebo is not None and placebo <= 0


def carried_by(test: GainTest, view: View) -> Ends | None:
    """What all sources of a test carry together: what it says itself, else
    its answer about the bar plus a fifth of the genuine part.
    """
    whole = view.evidence(test.asked)
    if said := _ends(estimate_of(view.evidence(test.shared)) or together(whole, view)):
        return said
    over, genuine = _ends(estimate_of(whole)), view.evidence(G0)
    if over is None or genuine is None:
        return None
    bar = GENUINE_BAR * genuine.estimate
    return over[0] + bar, over[1] + bar, over[2] + bar


def _most(answers: Iterable[Evidence | None]) -> Ends | None:
    return max(_known(estimate_of(answer) for answer in answers), default=None)


def most_open(view: View, rule: Rule, phantom: float, left: float) -> float:
    """What sources may carry at most that are neither cleared nor shown to be phantom."""
    most = 0.0
    for test in rule.gain_tests:
        stands = standing(test, view)
        if stands == "not-tested":
            return left
        counted = test.kind == "declared" or accuses(test, view)
        if stands in ("found", "loose") and not counted:
            carried = carried_by(test, view)
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
