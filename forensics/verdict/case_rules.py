"""A rule of one's own, and what `case.json` says of a rule, so that a case can be judged again.

A rule of one's own has other thresholds, or other clauses, under a name of its own, which each
verdict by it says; only the standard rule has a number. `case.json` states all of it, and of
the standard rule the gain tests of other packages, so that they are weighed without them.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from forensics.errors import UserError
from forensics.instruments import installed_gain_tests
from forensics.phrases import printable
from forensics.records import canonical_json
from forensics.records.gain_test import GainTest
from forensics.records.given_files import parse_toml, read_text
from forensics.records.record import first_error
from forensics.verdict.rule import Rule, standard_rule

_NAME = re.compile(r"(?![\d.]+$)[\w.+-]{1,60}")


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
