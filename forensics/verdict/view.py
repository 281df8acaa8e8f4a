"""Reading findings by their question, and judging conditions in three values: true, false,
unknown. How a gain test stands: whether it had anything to test, was tested, found something, or
is accepted untested.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR
from forensics.records import Evidence, Interval, Undefined, content_hash
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Estimate, Label
from forensics.verdict.rule import (
    EXPLAINED,
    G0,
    MOST,
    NO_CHANNEL,
    OVER,
    PLACEBO,
    REFUSED,
    THROUGH,
    UNDER,
    WINS,
    Clause,
    Condition,
    G,
    P,
    Rule,
)

Standing = Literal["cleared", "found", "loose", "not-applicable", "accepted", "not-tested"]
NO_SHORTCUT = "The world declares no shortcut."
NOTHING_LEFT = "No gain survives scrubbing."
OPEN = ("found", "loose", "not-tested")  # may carry more than a fifth
_OF_G = {G0: 1.0, P: 0.0, OVER: -PHANTOM_BAR, UNDER: -GENUINE_BAR, PLACEBO: -GENUINE_BAR}
RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ABSENT: Mapping[str, bool | None] = {"unknown": None, "fails": False}
BY_KIND = ("refusal", "ablation")  # layers whose answers are about kinds of action
VANISHING = f"{WINS}.vanishing"
CARRIED = "refusal.carried"
JOINED = " + "  # between the kinds that one answer is about
Answers = dict[str | None, Evidence | Undefined]


@dataclass(frozen=True)
class Terms:
    """What the reader takes upon themselves: `allowed` kinds of action,
    `accepted` tests that were not made. `on_terms`: the tests that leave out what is
    allowed while they measure.
    """

    allowed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    on_terms: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """What an answer on all kinds that are not allowed is about: the kinds that are."""
        return JOINED.join(self.allowed) or None

    @property
    def keys(self) -> tuple[str | None, ...]:
        """The same, and without the allowed fields (`look:paper:price`), which are no kinds."""
        return self.key, JOINED.join(one for one in self.allowed if ":" not in one) or None

    def exempt(self, finding: Evidence | Undefined) -> bool:
        """Whether an answer does not count: it is about something that is allowed,
        or it left out while it was measured what is not allowed here.
        """
        apart = finding.question.split(".")[0] in self.on_terms
        if (finding.layer in BY_KIND or apart) and self._covers(finding.about):
            return True
        measured = finding.provenance.inputs.get("allowed")
        return apart and measured not in (None, content_hash(list(self.allowed)))

    def _covers(self, about: str | None) -> bool:
        """Whether an answer about kinds of action involves an allowed one."""
        return about is not None and not set(self.allowed).isdisjoint(about.split(JOINED))


class View:
    """Findings by question and by what they are about; the order in which they
    came does not matter.

    Where two instruments answer the same, the wider interval speaks (of what
    sources carry, the one that reaches higher), and any number before none.
    `twins` replaces questions by others (the plain decomposition by the one
    with breakage imputed). Of the answers about kinds of action those count
    that fit the `terms`: nothing about an allowed kind, and the joint one that
    leaves these out.
    """

    def __init__(
        self,
        findings: Iterable[Evidence | Undefined],
        level: float,
        twins: Mapping[str, str] = {},
        terms: Terms = Terms(),
    ) -> None:
        self.findings = sorted(findings, key=_caution)
        self.level = level
        self.twins = dict(twins)
        self.terms = terms
        self._answers: dict[str, Answers] = {}
        for finding in self.findings:
            about = finding.about
            if finding.question == REFUSED:
                if about not in terms.keys and not (
                    isinstance(finding, Undefined) and about is None
                ):  # no action could be refused for it, whatever is allowed
                    continue
                about = None
            elif terms.exempt(finding):
                continue
            question = finding.question
            # wins that vanish with a channel scrubbed are no chain of evidence: the rule
            # reads the same scrubbing already, and asks for its placebo
            if question == WINS and isinstance(finding, Evidence):
                question = VANISHING if finding.diagnostics.get("by") == "scrubbing" else WINS
            self._answers.setdefault(question, {}).setdefault(about, finding)

    def name(self, question: str) -> str:
        """The question that stands for this one here."""
        return self.twins.get(question, question)

    def answers(self, question: str) -> Answers:
        """Every answer to a question, by what it is about."""
        return self._answers.get(self.name(question), {})

    def evidence(self, question: str) -> Evidence | None:
        """The number that answers a question, about nothing in particular."""
        answer = self.answers(question).get(None)
        return answer if isinstance(answer, Evidence) else None

    def wins(self) -> dict[str | None, Evidence]:
        """Shares of the wins by channel, from chains of evidence or from what
        vanishes with the channel scrubbed.
        """
        return self.all_evidence(VANISHING) | self.all_evidence(WINS)

    def all_evidence(self, question: str) -> dict[str | None, Evidence]:
        """Every number that answers a question, ordered by what it is about."""
        known = {
            about: answer
            for about, answer in self.answers(question).items()
            if isinstance(answer, Evidence)
        }
        return dict(sorted(known.items(), key=lambda item: item[0] or ""))


def _caution(finding: Evidence | Undefined) -> tuple[bool, float, str]:
    interval = finding.interval if isinstance(finding, Evidence) else None
    if interval and finding.question.endswith(".over_bar"):
        return False, -interval.high, finding.id
    return isinstance(finding, Undefined), -(interval.half_width if interval else 0.0), finding.id


def statistic(answer: Evidence | Undefined | None, name: str, level: float) -> float | None:
    """A number of an answer; `None` where it is missing or its interval is at a
    lower level than the rule's. `answered` is 1 where it is not.
    """
    if not isinstance(answer, Evidence):
        return None
    if name == "estimate":
        return answer.estimate
    if answer.interval is None or answer.interval.level < level:
        return None
    if name == "answered":
        return 1.0
    if name == "carried_low":
        carried = answer.diagnostics.get(name)
        return carried if isinstance(carried, float) else None
    return float(getattr(answer.interval, name))


def estimate_of(evidence: Evidence | None) -> Estimate | None:
    """A number as `case.json` states it; `None` where it or its interval is missing."""
    if evidence is None or evidence.interval is None:
        return None
    interval = evidence.interval
    return Estimate(
        estimate=evidence.estimate, low=interval.low, high=interval.high, level=interval.level
    )


def judge(condition: Condition, view: View) -> bool | None:
    """Whether a condition holds; `None` if a missing answer decides."""
    answers = view.answers(condition.question)
    if condition.over == "one" or (condition.over == "sum" and None in answers):
        answers = {None: answers[None]} if None in answers else {}
    values = [statistic(answer, condition.statistic, view.level) for answer in answers.values()]
    known = [value for value in values if value is not None]
    relation, missing = RELATIONS[condition.relation], len(known) < len(values) or not values
    truths: list[bool | None] = [relation(value, condition.value) for value in known]
    if condition.over == "sum" and known:
        holds = relation(sum(known), condition.value)
        return (
            holds if holds or not missing else ABSENT[condition.absent]
        )  # a missing share could only add
    if missing:
        truths.append(ABSENT[condition.absent])
    return any_of(truths)


def all_of(truths: Iterable[bool | None]) -> bool | None:
    """False if one is false, else unknown if one is unknown."""
    seen = list(truths)
    return False if False in seen else None if None in seen else True


def any_of(truths: Iterable[bool | None]) -> bool | None:
    """True if one is true, else unknown if one is unknown."""
    seen = list(truths)
    return True if True in seen else None if None in seen else False


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """The clause that decided and its label. `unknown`: conditions that nobody
    measured and that the label hangs on; the label is then `undetermined`.
    """

    clause: Clause
    label: Label
    unknown: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a rule makes of findings: on the plain decomposition (`ruling`) and on
    its twin (`second`). `bounded`: bounds from logs stand for a scrubbed world.
    """

    view: View
    rule: Rule
    ruling: Ruling
    second: Ruling
    bounded: bool

    @property
    def label(self) -> Label:
        """The label of both; `undetermined` where they differ."""
        return self.ruling.label if self.ruling.label == self.second.label else "undetermined"


def walk(view: View, rule: Rule) -> Ruling:
    """The first clause that holds; a clause that might hold stops the walk,
    because it might decide otherwise.
    """
    for clause in rule.clauses:
        judged = _alternatives(clause, view, rule)
        holds = any_of(map(all_of, judged))
        if holds is not False and _kept_from(clause, view, rule):
            continue
        if holds:
            return Ruling(clause=clause, label=clause.label)
        if holds is None:
            # the conditions without an answer, in alternatives that are not already false
            unknown = dict.fromkeys(
                condition
                for choice, answers in zip(clause.when, judged, strict=True)
                if all_of(answers) is None
                for condition, answer in zip(choice, answers, strict=True)
                if answer is None
            )
            return Ruling(clause=clause, label="undetermined", unknown=tuple(unknown))
    raise AssertionError("the last clause of a rule always holds")


def _alternatives(clause: Clause, view: View, rule: Rule) -> list[list[bool | None]]:
    return [
        [_judged(condition, clause, view, rule) for condition in choice] for choice in clause.when
    ]


def _kept_from(clause: Clause, view: View, rule: Rule) -> bool:
    """Whether something that the clause names in `unless` surely holds."""
    for one in clause.unless:
        if isinstance(one, str):
            named = next(other for other in rule.clauses if other.id == one)
            answers = _alternatives(named, view, rule)
        else:
            answers = [[_judged(condition, clause, view, rule) for condition in one]]
        if any_of(map(all_of, answers)):
            return True
    return False


def _judged(condition: Condition, clause: Clause, view: View, rule: Rule) -> bool | None:
    """Whether a condition holds. For `genuine`, a gain test that had nothing to
    test, or was not made but accepted, is no obstacle; one that found something
    stays one, and so does a number at a lower level than the rule asks for.
    """
    holds = judge(condition, view)
    if holds is None and clause.label == "genuine" and view.evidence(condition.question) is None:
        test = rule.test_of(condition.question)
        if test is None:
            return None
        accepted = test.name in view.terms.accepted and not found_by(test, view)
        return True if accepted or exempt(test, view) else None
    return holds


def exempt(test: GainTest, view: View) -> str | None:
    """Why there was nothing to test, by the test's own word; `None` where there was."""
    for question in test.questions:
        answer = view.answers(question).get(None)
        if isinstance(answer, Evidence) and answer.diagnostics.get("applicable") is False:
            return answer.summary
        begins = test.exempt
        if isinstance(answer, Undefined) and begins and answer.reason.startswith(begins):
            return answer.reason
    return None


def found_by(test: GainTest, view: View) -> bool:
    """Whether a test found something, though the answer that the rule asks for is missing."""
    if test.kind == "declared":
        return channels_explain(view)
    if test.asked != REFUSED:
        return _carries_more(test, view)
    # more than a fifth through kinds none of which is allowed here, with others allowed
    jointly = (
        (statistic(finding, "low", view.level) or 0.0) > 0
        and set(view.terms.allowed) <= set((finding.about or "").split(JOINED))
        for finding in view.findings
        if finding.question == REFUSED
    )
    through = (one.estimate >= MOST for one in view.all_evidence(THROUGH).values())
    carried = (
        one.diagnostics.get("carries") is True for one in view.all_evidence(CARRIED).values()
    )
    return any(jointly) or any(through) or any(carried)


def channels_explain(view: View) -> bool:
    """Whether more than half of the wins came through known channels."""
    return any(
        judge(replace(EXPLAINED, question=question), view) is True for question in (WINS, VANISHING)
    )


def _carries_more(test: GainTest, view: View) -> bool:
    """Whether one source of a test surely carries more than a fifth of the gain."""
    whole = view.evidence(G0) or view.evidence(G)
    bar = GENUINE_BAR * max(whole.estimate, 0.0) if whole else 0.0
    lows = (
        statistic(one, "low", view.level)
        for one in view.all_evidence(f"{test.name}.carried").values()
    )
    return any(low is not None and low > bar for low in lows)


def standing(test: GainTest, view: View) -> Standing:
    """`loose`: tested, and neither surely at most a fifth nor surely more."""
    if nothing_to_test(test, view) is not None:
        return "not-applicable"
    answer = view.evidence(test.asked)
    low, high = (statistic(answer, end, view.level) for end in ("low", "high"))
    if low is None or high is None:
        if answer is None and found_by(test, view):
            return "found"
        return "accepted" if test.name in view.terms.accepted else "not-tested"
    if test.kind == "aside" or high <= 0:
        return "cleared"
    return "found" if low > 0 else "loose"


def nothing_to_test(test: GainTest, view: View) -> str | None:
    """Why a test had nothing to test, `None` where it had."""
    if test.kind == "declared":
        return NO_SHORTCUT if declares_none(view.findings, view) else None
    low = statistic(view.evidence(G0), "low", view.level)
    if low is not None and low <= 0:
        return NOTHING_LEFT
    return exempt(test, view)


def declares_none(findings: Iterable[Evidence | Undefined], view: View) -> bool:
    """Whether the world declares no channel, and no chain of evidence says otherwise."""
    said = any(
        one.question == G0 and isinstance(one, Undefined) and one.reason.startswith(NO_CHANNEL)
        for one in findings
    )
    return said and not channels_explain(view)


def as_scrubbed(findings: tuple[Evidence | Undefined, ...], level: float) -> Iterator[Evidence]:
    """What scrubbing would show in a world that declares no channel: nothing
    vanishes, and the genuine part is the gain. Nothing for any other world.
    """
    view = View(findings, level)
    whole = view.evidence(G)
    if whole is None or not declares_none(findings, view):
        return
    for question, factor in _OF_G.items():
        for name in (question, f"{question}_imputed"):
            yield _scaled(whole, name, factor)


def scrubbed(view: View, question: str) -> Evidence | None:
    """An answer that scrubbing gave; `None` also where there was nothing to scrub."""
    answer = view.evidence(question)
    if answer is None or answer.diagnostics.get("applicable") is False:
        return None
    return answer


def _scaled(whole: Evidence, question: str, factor: float) -> Evidence:
    interval = whole.interval
    if interval is not None:
        low, high = sorted((factor * interval.low, factor * interval.high))
        interval = Interval(low=low, high=high, level=interval.level)
    told = whole.diagnostics | {"applicable": False}
    changed = {"question": question, "estimate": factor * whole.estimate, "interval": interval}
    return whole.model_copy(update=changed | {"diagnostics": told, "artifacts": ()})
