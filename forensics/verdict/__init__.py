"""The verdict: a pure function of findings and a rule that was stated beforehand."""

from forensics.verdict.decision import decide, is_current
from forensics.verdict.rule import (
    NOT_SHORTCUTS,
    RULE_3,
    RULE_3_LOGS,
    Clause,
    Condition,
    Rule,
    own_rule,
    read_rule,
    require_families,
    rule_of_case,
    stated_rule,
)

__all__ = [
    "NOT_SHORTCUTS",
    "RULE_3",
    "RULE_3_LOGS",
    "Clause",
    "Condition",
    "Rule",
    "decide",
    "is_current",
    "own_rule",
    "read_rule",
    "require_families",
    "rule_of_case",
    "stated_rule",
]
