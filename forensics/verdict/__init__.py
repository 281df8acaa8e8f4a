"""The verdict: a pure function of findings and a rule that was stated beforehand."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names
from forensics.verdict.decision import decide, is_current
from forensics.verdict.rule import (
    Clause,
    Condition,
    Rule,
    not_installed,
    own_rule,
    read_rule,
    require_gain_tests,
    rule_of_case,
    standard_rule,
    standard_rule_of,
    stated_rule,
)

if TYPE_CHECKING:
    from forensics.verdict.sources import grown as grown
    from forensics.verdict.view import JOINED as JOINED, View as View, estimate_of as estimate_of

__getattr__, _ = lazy_names(__name__)

__all__ = [
    "Clause",
    "Condition",
    "Rule",
    "decide",
    "is_current",
    "not_installed",
    "own_rule",
    "read_rule",
    "require_gain_tests",
    "rule_of_case",
    "standard_rule",
    "standard_rule_of",
    "stated_rule",
]
