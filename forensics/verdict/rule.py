"""The rule as data: clauses in order, each a choice of conditions on answers to
questions (`rule_3.toml`).

A clause holds if all conditions of one of its alternatives hold. Conditions
name the *question* that an answer belongs to, never the method that gave it.
The whole rule is hashed into every verdict, so a changed bar is another rule.

Version 2 fails closed. `genuine` takes a positive answer from every *family* of
tests that there is: what is tested carries at most a fifth of the gain, or
there was nothing to test, and that is said. What was not tested stops the walk
(`undetermined`), unless the reader accepts that family. A family without
questions does not exist yet: it is named in each verdict and blocks nothing.

Version 3 differs in one thing: a wide interval decides only where it leaves two labels open.

A find is not yet an accusation. Families of `NO_SKILL` alter what no skill
needs, so what vanishes there is phantom, if the alteration does the policy
before training no harm (its placebo). What the others find is needed, by a
shortcut or by a skill: at most `source-not-allowed`.

A rule of one's own has other thresholds, or other clauses, under a name of its
own, which each verdict by it says; only the standard rule has a number.
`case.json` states all of it, so that a case can be judged again.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from forensics.errors import UserError
from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR
from forensics.phrases import printable
from forensics.records import canonical_json, content_hash
from forensics.records.given_files import parse_toml, read_text
from forensics.records.record import first_error
from forensics.records.verdict import Label

MOST = 0.5  # from which a yes-or-no answer is yes, and a share is more than half
Statistic = Literal["estimate", "low", "high", "half_width", "carried_low", "answered"]
Relation = Literal["<", "<=", ">", ">="]

G, G0, P = "gain.total", "gain.genuine", "gain.phantom"
OVER, UNDER = "gain.phantom_over_bar", "gain.phantom_under_bar"
PLACEBO = "scrubbing.placebo_over_bar"
ECHO, COLLAPSE = "behaviour.echo_trap", "behaviour.collapse"
CUT_OFF = "behaviour.cut_off"
WINS, SHORTCUT, THROUGH = "behaviour.channel_wins", "ablation.shortcut", "ablation.runs_through"
REFUSED, REGRADED = "refusal.over_bar", "regrading.over_bar"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`statistic` of the answer to `question`, compared with `value`.

    `over`: `one` takes the answer about nothing in particular; `any` ranges
    over all answers; `sum` adds the statistic over what the answers are about,
    unless one answer covers all of it.
    `absent`: what a missing or undefined answer makes of the condition. It
    never makes one hold.
    """

    question: str
    statistic: Statistic
    relation: Relation
    value: float
    over: Literal["one", "any", "sum"] = "one"
    absent: Literal["unknown", "fails"] = "unknown"


@dataclass(frozen=True, kw_only=True)
class Clause:
    """`label` if one of the alternatives in `when` holds in full. An empty
    alternative always holds. `unless`: clauses, by their names, and alternatives of conditions
    one of which surely holding keeps the clause from holding.
    """

    id: str
    label: Label
    text: str
    when: tuple[tuple[Condition, ...], ...]
    unless: tuple[str | tuple[Condition, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Family:
    """A way to test sources of a gain. `questions`: what it answers, the one that
    clears it first (none: it is not built yet). `excludes`: what a gain might be
    where it was not tested. `exempt`: how the reason of a missing answer begins
    where there was nothing to test.
    """

    name: str
    excludes: str
    questions: tuple[str, ...] = ()
    exempt: str = ""


_CONDITION = re.compile(
    r"(?:(?P<over>any|sum) )?(?P<question>\S+) (?P<statistic>\w+) (?P<relation>[<>]=?)"
    r" (?P<value>[\w.]+)(?:, or (?P<absent>fails))?"
)
_STANDARD = tomllib.loads((files(__package__) / "rule_3.toml").read_text(encoding="utf-8"))
LOG_TEXTS = {one["id"]: one["logs"] for one in _STANDARD["clauses"] if "logs" in one}
FAMILIES = TypeAdapter(tuple[Family, ...]).validate_python(_STANDARD["families"])
TESTABLE = tuple(family.name for family in FAMILIES if family.questions)
NO_SKILL = tuple(
    family.name for family in FAMILIES if f"{family.name}.phantom_over_bar" in family.questions
)
NO_CHANNEL = next(family.exempt for family in FAMILIES if family.name == "scrubbing")
NOT_SHORTCUTS = ("elicitation", "placebo-training")  # parts of a gain beside the learned one
INTERVENTIONS = "interventions"  # for `--accept`: all that logs cannot give


def condition(text: str, **thresholds: float) -> Condition:
    """A condition as `rule_3.toml` writes it."""
    found = _CONDITION.fullmatch(text)
    assert found is not None, f"{text} is no condition"
    parts: dict[str, Any] = {name: part for name, part in found.groupdict().items() if part}
    value = parts.pop("value")
    return Condition(**parts, value=thresholds[value] if value in thresholds else float(value))


WINS_READ = "logs.wins_read answered > 0"
EXPLAINED = condition("sum behaviour.channel_wins low > 0.5")


def require_families(names: Iterable[str]) -> None:
    """Raises `UserError` for what cannot be accepted because there is no such test."""
    for name in names:
        if name not in (*TESTABLE, INTERVENTIONS):
            known = any(family.name == name for family in FAMILIES)
            why = "is not built yet and blocks nothing" if known else "is no family of tests"
            raise UserError(
                f"'{printable(name)}' {why}; accept one of: {', '.join(TESTABLE)}, or all of these"
                f" but scrubbing as '{INTERVENTIONS}'"
            )


def accepted_families(names: Iterable[str]) -> tuple[str, ...]:
    """The families that are accepted by these names, sorted, each once."""
    named = set(names)
    every = [name for name in TESTABLE if name != "scrubbing"] if INTERVENTIONS in named else []
    return tuple(sorted({*every, *named} - {INTERVENTIONS}))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Clauses in order; the first that holds decides.

    `level` of the intervals it reads; `margin`: a part must exceed it to count;
    `widest`: half-width that the gain and its genuine part may have. `imputed`:
    questions and their twins with breakage imputed (from logs: under the rival
    assumption); both must give one label. `boundaries`: comparisons (question,
    value) that would settle an unsettled case. `version`: a number for the
    standard rule, a name for any other.
    """

    version: int | str
    level: float
    margin: float
    widest: float
    phantom_bar: float
    genuine_bar: float
    clauses: tuple[Clause, ...]
    imputed: tuple[tuple[str, str], ...]
    boundaries: tuple[tuple[str, float], ...]
    families: tuple[Family, ...] = FAMILIES

    @cached_property
    def identity(self) -> str:
        """The hash of everything the rule says."""
        return content_hash(asdict(self))

    def identity_given(self, allowed: tuple[str, ...], accepted: tuple[str, ...]) -> str:
        """The hash of the rule and of what the reader took upon themselves."""
        return (
            content_hash([self.identity, list(allowed), list(accepted)])
            if allowed or accepted
            else self.identity
        )

    @property
    def is_standard(self) -> bool:
        """Whether this is the rule of this version, or what it makes of logs."""
        return self.identity in (RULE_3.identity, RULE_3_LOGS.identity)

    @property
    def title(self) -> str:
        """What reasons call it."""
        if self.is_standard:
            return f"Rule version {self.version}"
        return f"Rule '{printable(str(self.version))}' (not the standard one)"

    def family_of(self, question: str) -> Family | None:
        """The family that answers a question."""
        return next((family for family in self.families if question in family.questions), None)


def standard_rule(
    version: int | str, *, level: float = 0.95, margin: float = 0.02, widest: float = 0.05
) -> Rule:
    """The standard clauses with these thresholds."""
    bars = {"margin": margin, "widest": widest}
    names = {one["id"] for one in _STANDARD["clauses"]}
    clauses = tuple(
        Clause(
            id=one["id"],
            label=one["label"],
            text=one["text"].format(**in_points(bars)),
            when=tuple(tuple(condition(text, **bars) for text in choice) for choice in one["when"]),
            unless=tuple(
                choice[0]
                if choice[0] in names
                else tuple(condition(text, **bars) for text in choice)
                for choice in one.get("unless", ())
            ),
        )
        for one in _STANDARD["clauses"]
    )
    return Rule(
        version=version,
        level=level,
        margin=margin,
        widest=widest,
        phantom_bar=PHANTOM_BAR,
        genuine_bar=GENUINE_BAR,
        clauses=clauses,
        imputed=tuple((question, f"{question}_imputed") for question in (G0, P, OVER, UNDER)),
        boundaries=tuple((name, bars.get(at, at)) for name, at in _STANDARD["boundaries"]),
    )


def in_points(thresholds: Mapping[str, float]) -> dict[str, str]:
    """Thresholds as the texts of clauses name them."""
    return {name: f"{100 * value:g}" for name, value in thresholds.items()}


RULE_3 = standard_rule(3)
ASSUMED = {question: f"{question}_assumed" for question in (G0, P, OVER, UNDER)}


@lru_cache(maxsize=16)
def for_logs(rule: Rule) -> Rule:
    """The same clauses as logs can answer them, where bounds and a stated
    assumption take the place of a scrubbed world: `genuine` by the bounds, all
    else under the assumption. There is no placebo in logs, so that `phantom`
    takes a chain of evidence; `genuine` takes logs in which every win could be looked into,
    whatever is accepted.
    """
    bars = in_points({"margin": rule.margin, "widest": rule.widest})

    def clause(one: Clause) -> Clause:
        names = {} if one.id in ("genuine", "carried-too-wide") else ASSUMED

        def assumed(alternative: tuple[Condition, ...]) -> tuple[Condition, ...]:
            return tuple(
                replace(c, question=names.get(c.question, c.question)) for c in alternative
            )

        when = tuple(
            assumed(alternative)
            for alternative in one.when
            if all(c.question != PLACEBO for c in alternative)
        )
        unless = tuple(c if isinstance(c, str) else assumed(c) for c in one.unless)
        if one.id == "genuine":
            when = tuple((*alternative, condition(WINS_READ)) for alternative in when)
        text = LOG_TEXTS[one.id].format(**bars) if one.id in LOG_TEXTS else one.text
        return replace(one, text=text, when=when, unless=unless)

    return replace(
        rule,
        clauses=tuple(map(clause, rule.clauses)),
        imputed=tuple((assumed, f"{question}_rival") for question, assumed in ASSUMED.items()),
        boundaries=tuple((ASSUMED.get(name, name), value) for name, value in rule.boundaries),
        families=tuple(
            replace(family, questions=(*family.questions, *ASSUMED.values()))
            if G0 in family.questions
            else family
            for family in rule.families
        ),
    )


RULE_3_LOGS = for_logs(RULE_3)

_NAME = re.compile(r"(?![\d.]+$)[\w.+-]{1,60}")


def own_rule(version: str, **thresholds: float) -> Rule:
    """The clauses of the standard rule with thresholds of one's own: `level` of
    the intervals, in (0, 1); `margin` and `widest` in shares of the score.
    """
    for name, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise UserError(f"the rule's {name} is {value!r}; give a number between 0 and 1")
    return require_own_name(standard_rule(version, **thresholds))


def require_own_name(rule: Rule) -> Rule:
    """The rule itself. Raises `UserError` for another rule than the standard one
    that bears no name of its own.
    """
    named = isinstance(rule.version, str) and _NAME.fullmatch(rule.version)
    if not named and not rule.is_standard:
        raise UserError(
            f"a rule of your own needs a name of its own, not {rule.version!r}: `version` is a"
            " text of at most 60 letters, digits and `._+-` that is no number, such as 'strict-1'"
        )
    return rule


def read_rule(given: Rule | Mapping[str, Any] | str | PathLike[str] | None) -> Rule:
    """The rule that was handed over: a `Rule`, a table of `version` and
    thresholds, or a TOML file with these; `None` is the standard one.
    """
    if given is None or isinstance(given, Rule):
        return RULE_3 if given is None else require_own_name(given)
    table = given if isinstance(given, Mapping) else _table(Path(given).expanduser())
    known = ("version", "level", "margin", "widest")
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"a rule has no '{printable(unknown[0])}'; known: {', '.join(known)}")
    if "version" not in table:
        raise UserError("a rule of your own needs a `version`, such as 'strict-1'")
    return own_rule(**table)


def _table(path: Path) -> dict[str, Any]:
    text = read_text(path, "the rule ", "give a TOML file")
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UserError(f"the rule {path} cannot be read ({error}); give a TOML file") from None


def stated_rule(rule: Rule) -> dict[str, Any]:
    """What `case.json` says of a rule of one's own (`{}` for the standard one):
    all of it, so that the case can be judged again.
    """
    return {} if rule.is_standard else {"rule": asdict(rule)}


def rule_of_case(content: Mapping[str, Any]) -> Rule:
    """The rule that the content of a `case.json` states; the standard one where
    it states none. Raises `UserError` where it is no rule.
    """
    if content.get("rule") is None:
        return RULE_3
    try:
        rule = TypeAdapter(Rule).validate_json(canonical_json(content["rule"]))
    except ValidationError as error:
        raise UserError(
            f"the rule in case.json cannot be read ({first_error(error)}); run the investigation"
            " again"
        ) from None
    return require_own_name(rule)
