"""The rule as data: clauses in order, each a choice of conditions on answers to
questions (`rule_3.toml`).

A clause holds if all conditions of one of its alternatives hold. Conditions
name the *question* that an answer belongs to, never the method that gave it.
The whole rule is hashed into every verdict, so a changed bar is another rule.

It fails closed. `genuine` takes a positive answer from every *gain test* that is
installed: what it tests carries at most a fifth of the gain, or there was nothing to
test, and that is said. What was not tested stops the walk (`undetermined`), unless the
reader accepts that test. A wide interval decides only where it leaves two labels open.

Clauses name tests by their kind (`forensics.records.gain_test`), so that another package's
test is weighed like ours. The tests that are weighed are part of the rule, and so of its hash.

A rule of one's own has other thresholds, or other clauses, under a name of its own, which each
verdict by it says; only the standard rule has a number. `case.json` states all of it, and of
the standard rule the gain tests of other packages, so that they are weighed without them.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from forensics.errors import UserError
from forensics.instruments import installed_gain_tests
from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR
from forensics.phrases import joined, printable
from forensics.records import canonical_json, content_hash
from forensics.records.gain_test import GainTest, Kind
from forensics.records.given_files import parse_toml, read_text
from forensics.records.record import first_error
from forensics.records.verdict import Label

_NAME = re.compile(r"(?![\d.]+$)[\w.+-]{1,60}")
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


_CONDITION = re.compile(
    r"(?:(?P<over>any|sum) )?(?P<question>\S+) (?P<statistic>\w+) (?P<relation>[<>]=?)"
    r" (?P<value>[\w.]+)(?:, or (?P<absent>fails))?"
)
_EACH = re.compile(r"(?P<each>each )?(?P<kinds>[a-z|]+)\.(?P<rest>.+)")
_STANDARD = tomllib.loads((files(__package__) / "rule_3.toml").read_text(encoding="utf-8"))
LOG_TEXTS = {one["id"]: one["logs"] for one in _STANDARD["clauses"] if "logs" in one}
KINDS = frozenset(get_args(Kind))
NO_CHANNEL = "No shortcut to scrub"  # how a reason begins where there was nothing to scrub
INTERVENTIONS = "interventions"  # for `--accept`: all that logs cannot give


def condition(text: str, **thresholds: float) -> Condition:
    """A condition as `rule_3.toml` writes it."""
    found = _CONDITION.fullmatch(text)
    assert found is not None, f"{text} is no condition"
    parts: dict[str, Any] = {name: part for name, part in found.groupdict().items() if part}
    value = parts.pop("value")
    return Condition(**parts, value=thresholds[value] if value in thresholds else float(value))


def _for_each(text: str, tests: Iterable[GainTest]) -> list[tuple[GainTest, str]] | None:
    """A condition on tests of some kinds for each of these; `None` for any other."""
    found = _EACH.fullmatch(text)
    kinds = set(found["kinds"].split("|")) if found else set()
    if found is None or not kinds <= KINDS:
        return None
    name, _, rest = found["rest"].partition(" ")
    return [
        (test, f"{test.shared if name == 'shared' else f'{test.name}.{name}'} {rest}")
        for test in tests
        if test.kind in kinds
    ]


def _spelt_out(choice: Iterable[str], tests: tuple[GainTest, ...]) -> Iterator[tuple[str, ...]]:
    """An alternative as conditions on single tests: once for each test where it names a
    kind without `each`.
    """
    all_of: list[dict[str, list[str]]] = []
    alternatives: dict[str, None] = {}
    for text in choice:
        named = _for_each(text, tests)
        if named is None:
            all_of.append({"": [text]})
        elif text.startswith("each "):
            all_of.append({"": [one for _, one in named]})
        else:
            all_of.append({test.name: [one] for test, one in named})
            alternatives |= dict.fromkeys(test.name for test, _ in named)
    for name in alternatives or [""]:
        yield tuple(chain.from_iterable(one.get(name, one.get("", [])) for one in all_of))


WINS_READ = "logs.wins_read answered > 0"
EXPLAINED = condition("sum behaviour.channel_wins low > 0.5")


def require_gain_tests(names: Iterable[str], tests: Iterable[GainTest] | None = None) -> None:
    """Raises `UserError` for what cannot be accepted because there is no such test
    (`None`: among those that are installed).
    """
    known = [test.name for test in (installed_gain_tests() if tests is None else tests)]
    for name in names:
        if name not in (*known, INTERVENTIONS):
            raise UserError(
                f"'{printable(name)}' is no gain test; accept one of: {', '.join(known)}, or all"
                f" of these but scrubbing as '{INTERVENTIONS}'"
            )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Clauses in order; the first that holds decides.

    `level` of the intervals it reads; `margin`: a part must exceed it to count;
    `widest`: half-width that the gain and its genuine part may have. `imputed`:
    questions and their twins with breakage imputed (from logs: under the rival
    assumption); both must give one label. `boundaries`: comparisons (question,
    value) that would settle an unsettled case. `gain_tests` that it weighs. `version`: a
    number for the standard rule, a name for any other.
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
    gain_tests: tuple[GainTest, ...] = field(default_factory=installed_gain_tests)

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

    @cached_property
    def is_standard(self) -> bool:
        """Whether this is the rule of this version over at least our gain tests, or what it
        makes of logs.
        """
        rule = standard_rule(gain_tests=self.gain_tests)
        ours = {test for test in installed_gain_tests() if not test.package}
        return ours <= set(self.gain_tests) and self in (rule, for_logs(rule))

    @property
    def title(self) -> str:
        """What reasons call it."""
        if self.is_standard:
            return f"Rule version {self.version}"
        return f"Rule '{printable(str(self.version))}' (not the standard one)"

    def test_of(self, question: str) -> GainTest | None:
        """The gain test that answers a question."""
        asked = question.removesuffix("_assumed")
        return next((test for test in self.gain_tests if asked in test.questions), None)

    def accepted(self, names: Iterable[str]) -> tuple[str, ...]:
        """The tests that are accepted by these names, sorted, each once."""
        named = set(names)
        every = (test.name for test in self.gain_tests if test.kind != "declared")
        return tuple(sorted({*(every if INTERVENTIONS in named else ()), *named} - {INTERVENTIONS}))


@lru_cache(maxsize=16)
def standard_rule(
    *,
    level: float = 0.95,
    margin: float = 0.02,
    widest: float = 0.05,
    gain_tests: tuple[GainTest, ...] | None = None,
) -> Rule:
    """The standard clauses with these thresholds, over the gain tests that are installed or
    these.
    """
    tests = installed_gain_tests() if gain_tests is None else gain_tests
    bars = {"margin": margin, "widest": widest}
    names = {one["id"] for one in _STANDARD["clauses"]}
    told = in_points(bars) | {"needless": joined([t.name for t in tests if t.kind == "needless"])}

    def conditions(choice: Iterable[str]) -> Iterator[tuple[Condition, ...]]:
        for texts in _spelt_out(choice, tests):
            yield tuple(condition(text, **bars) for text in texts)

    def clause(one: Mapping[str, Any]) -> Clause:
        unless = one.get("unless", ())
        kept = ([choice[0]] if choice[0] in names else conditions(choice) for choice in unless)
        return Clause(
            id=one["id"],
            label=one["label"],
            text=one["text"].format(**told),
            when=tuple(chain.from_iterable(map(conditions, one["when"]))),
            unless=tuple(chain.from_iterable(kept)),
        )

    return Rule(
        version=3,
        level=level,
        margin=margin,
        widest=widest,
        phantom_bar=PHANTOM_BAR,
        genuine_bar=GENUINE_BAR,
        clauses=tuple(map(clause, _STANDARD["clauses"])),
        imputed=tuple((question, f"{question}_imputed") for question in (G0, P, OVER, UNDER)),
        boundaries=tuple((name, bars.get(at, at)) for name, at in _STANDARD["boundaries"]),
        gain_tests=tests,
    )


def in_points(thresholds: Mapping[str, float]) -> dict[str, str]:
    """Thresholds as the texts of clauses name them."""
    return {name: f"{100 * value:g}" for name, value in thresholds.items()}


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
    )


def own_rule(version: str, **thresholds: float) -> Rule:
    """The clauses of the standard rule with thresholds of one's own: `level` of
    the intervals, in (0, 1); `margin` and `widest` in shares of the score.
    """
    for name, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise UserError(f"the rule's {name} is {value!r}; give a number between 0 and 1")
    return require_own_name(replace(standard_rule(**thresholds), version=version))


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
        return standard_rule() if given is None else require_own_name(given)
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
    """What `case.json` says of a rule of one's own: all of it, so that the case can be judged
    again. Of the standard one the gain tests of other packages, where there are some.
    """
    if not rule.is_standard:
        return {"rule": asdict(rule)}
    strange = [asdict(test) for test in rule.gain_tests if test.package]
    return {"gain_tests": strange} if strange else {}


def rule_of_case(content: Mapping[str, Any]) -> Rule:
    """The rule that the content of a `case.json` states, else the standard one over what it
    weighed and what is installed. Raises `UserError` where it is no rule.
    """
    if content.get("rule") is None:
        return standard_rule_of(content)
    rule: Rule = _read_as(Rule, content["rule"])
    return require_own_name(rule)


def standard_rule_of(content: Mapping[str, Any]) -> Rule:
    """The standard rule over the installed gain tests, and those that a case says it weighed."""
    stated = _read_as(tuple[GainTest, ...], content.get("gain_tests") or ())
    known = {test.name for test in installed_gain_tests()}
    absent = (test for test in stated if test.name not in known)
    return standard_rule(gain_tests=(*installed_gain_tests(), *absent))


def not_installed(rule: Rule) -> str:
    """One sentence on the tests that this rule weighs and that are not installed; else empty."""
    known = {test.name for test in installed_gain_tests()}
    absent = [test for test in rule.gain_tests if test.name not in known]
    names = ", ".join(f"{printable(one.name)} (of {printable(one.package)})" for one in absent)
    return f"Not installed here, and weighed as case.json declares it: {names}." if absent else ""


def _read_as(kind: Any, stated: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_json(canonical_json(stated))
    except ValidationError as error:
        raise UserError(
            f"the rule in case.json cannot be read ({first_error(error)}); run the investigation"
            " again"
        ) from None
