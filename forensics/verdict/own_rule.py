"""A rule of one's own: other thresholds, or other clauses, under a name of its
own, which each verdict by it says. It never passes as the standard one.

`case.json` states all of it, so that a case can be judged again.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from forensics.errors import UserError
from forensics.phrases import printable
from forensics.records import canonical_json
from forensics.verdict.rule import MARGIN, RULE_2, WIDEST, Clause, Condition, Rule, in_points

_NAME = re.compile(r"(?![\d.]+$)[\w.+-]{1,60}")


def own_rule(
    version: str, *, level: float = 0.95, margin: float = MARGIN, widest: float = WIDEST
) -> Rule:
    """The clauses of the standard rule with thresholds of one's own. `level` of
    the intervals, in (0, 1); `margin` and `widest` in shares of the score.
    """
    for name, value in (("level", level), ("margin", margin), ("widest", widest)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise UserError(f"the rule's {name} is {value!r}; give a number between 0 and 1")

    def condition(one: Condition) -> Condition:
        bar = widest if one.statistic == "half_width" else margin
        return replace(one, value=bar) if one.value in (MARGIN, WIDEST) else one

    def clause(one: Clause) -> Clause:
        when = tuple(tuple(map(condition, alternative)) for alternative in one.when)
        return replace(one, text=in_points(one.text, margin, widest), when=when)

    rule = replace(
        RULE_2,
        version=version,
        level=level,
        margin=margin,
        widest=widest,
        clauses=tuple(map(clause, RULE_2.clauses)),
        boundaries=tuple(
            (name, margin if value == MARGIN else value) for name, value in RULE_2.boundaries
        ),
    )
    return require_own_name(rule)


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
        return RULE_2 if given is None else require_own_name(given)
    table = given if isinstance(given, Mapping) else _table(Path(given).expanduser())
    known = ("version", "level", "margin", "widest")
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"a rule has no '{printable(unknown[0])}'; known: {', '.join(known)}")
    if "version" not in table:
        raise UserError("a rule of your own needs a `version`, such as 'strict-1'")
    return own_rule(**table)


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
        return RULE_2
    try:
        rule = TypeAdapter(Rule).validate_json(canonical_json(content["rule"]))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise UserError(
            f"the rule in case.json cannot be read ({place}: {error.errors()[0]['msg']}); run the"
            " investigation again"
        ) from None
    return require_own_name(rule)
