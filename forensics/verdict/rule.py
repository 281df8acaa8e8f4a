"""The rule as data: clauses in order, each a choice of conditions on answers to questions.

A clause holds if all conditions of one of its alternatives hold. Conditions name the *question* that an
answer belongs to, never the method that gave it. The whole rule is hashed into every verdict, so a changed
bar is another rule.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR
from forensics.records import content_hash
from forensics.records.verdict import Label

MARGIN, WIDEST, MOST = 0.02, 0.05, 0.5
Statistic = Literal["estimate", "low", "high", "half_width"]
Relation = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`statistic` of the answer to `question`, compared with `value`.

    `over`: `one` takes the answer about nothing in particular; `any` and `every` range over all answers; `sum`
    adds the statistic over what the answers are about, unless one answer covers all of it.
    `absent`: what a missing or undefined answer makes of the condition.
    """

    question: str
    statistic: Statistic
    relation: Relation
    value: float
    over: Literal["one", "any", "every", "sum"] = "one"
    absent: Literal["unknown", "fails", "holds"] = "unknown"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """`label` if one of the alternatives in `when` holds in full. An empty alternative always holds."""

    id: str
    label: Label
    text: str
    when: tuple[tuple[Condition, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Clauses in order; the first that holds decides.

    `level` of the intervals it reads; `margin`: a part must exceed it to count; `widest`: half-width that the
    gain and its genuine part may have. `imputed`: questions and their twins with breakage imputed; both must
    give one label. `boundaries`: comparisons (question, value) that would settle an unsettled case.
    """

    version: int
    level: float
    margin: float
    widest: float
    phantom_bar: float
    genuine_bar: float
    clauses: tuple[Clause, ...]
    imputed: tuple[tuple[str, str], ...]
    boundaries: tuple[tuple[str, float], ...]

    @property
    def identity(self) -> str:
        """The hash of everything the rule says."""
        return content_hash(asdict(self))


G, G0, P = "gain.total", "gain.genuine", "gain.phantom"
OVER, UNDER = "gain.phantom_over_bar", "gain.phantom_under_bar"
ECHO, COLLAPSE = "behaviour.echo_trap", "behaviour.collapse"
WINS, SHORTCUT, THROUGH = "behaviour.channel_wins", "ablation.shortcut", "ablation.runs_through"


def _is(question: str, statistic: Statistic, relation: Relation, value: float) -> Condition:
    return Condition(question=question, statistic=statistic, relation=relation, value=value)


def _contains_zero(question: str) -> tuple[Condition, Condition]:
    return _is(question, "low", "<=", 0.0), _is(question, "high", ">=", 0.0)


def _shown(question: str) -> Condition:
    return Condition(question=question, statistic="estimate", relation=">=", value=MOST, over="any")


_NO_SHORTCUT = Condition(
    question=SHORTCUT, statistic="estimate", relation="<", value=MOST, over="every", absent="holds"
)
_SHORTCUT = Condition(question=SHORTCUT, statistic="estimate", relation=">=", value=MOST, over="any", absent="fails")
_CHAIN = Condition(question=WINS, statistic="low", relation=">", value=MOST, over="sum")

RULE_1 = Rule(
    version=1,
    level=0.95,
    margin=MARGIN,
    widest=WIDEST,
    phantom_bar=PHANTOM_BAR,
    genuine_bar=GENUINE_BAR,
    clauses=(
        Clause(
            id="degenerate", label="degenerate",
            text="the policy fell into an echo trap or collapsed",
            when=((_shown(ECHO),), (_shown(COLLAPSE),)),
        ),
        Clause(
            id="too-wide", label="undetermined",
            text="the interval of the gain or of its genuine part reaches further than 5 points to either side",
            when=(
                (_is(G, "half_width", ">", WIDEST),),
                # a genuine part that was not measured at all is left to the clauses that need it
                (Condition(question=G0, statistic="half_width", relation=">", value=WIDEST, absent="fails"),),
            ),
        ),
        Clause(
            id="regression", label="regression",
            text="the interval of the gain lies below zero",
            when=((_is(G, "high", "<", 0.0),),),
        ),
        Clause(
            id="noise", label="noise",
            text="the intervals of the gain and of its genuine part both contain zero",
            when=((*_contains_zero(G), *_contains_zero(G0)),),
        ),
        Clause(
            id="cancelling", label="mixed",
            text="the interval of the gain contains zero, that of its genuine part does not: the parts cancel",
            when=((*_contains_zero(G), _is(G0, "low", ">", 0.0)), (*_contains_zero(G), _is(G0, "high", "<", 0.0))),
        ),
        Clause(
            id="genuine", label="genuine",
            text="the genuine part exceeds 2 points, at most a fifth of the gain vanishes on scrubbing, and no "
            "shortcut was found by action ablation",
            when=((_is(G0, "low", ">", MARGIN), _is(UNDER, "high", "<=", 0.0), _NO_SHORTCUT),),
        ),
        Clause(
            id="phantom", label="phantom",
            text="at least four fifths of the gain vanish on scrubbing, and a chain of evidence explains it: the "
            "shares of wins credited to the channels exceed one half together, or action ablation found a shortcut",
            when=((_is(OVER, "low", ">=", 0.0), _CHAIN), (_is(OVER, "low", ">=", 0.0), _SHORTCUT)),
        ),
        Clause(
            id="mixed", label="mixed",
            text="the genuine and the phantom part both exceed 2 points",
            when=((_is(G0, "low", ">", MARGIN), _is(P, "low", ">", MARGIN)),),
        ),
        Clause(
            id="unsettled", label="undetermined",
            text="no earlier clause holds with the certainty that the rule asks for",
            when=((),),
        ),
    ),
    imputed=tuple((question, f"{question}_imputed") for question in (G0, P, OVER, UNDER)),
    boundaries=((G0, MARGIN), (UNDER, 0.0), (OVER, 0.0), (P, MARGIN)),
)
