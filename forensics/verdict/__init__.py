"""The verdict: a pure function of findings and a rule that was stated beforehand."""

from forensics.verdict.decide import decide, is_current
from forensics.verdict.rule import RULE_2, RULE_2_LOGS, Clause, Condition, Rule, require_families

__all__ = [
    "RULE_2",
    "RULE_2_LOGS",
    "Clause",
    "Condition",
    "Rule",
    "decide",
    "is_current",
    "require_families",
]
