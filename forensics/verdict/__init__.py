"""The verdict: a pure function of findings and a rule that was stated beforehand."""

from forensics.verdict.decide import decide
from forensics.verdict.rule import RULE_1, Clause, Condition, Rule

__all__ = ["RULE_1", "Clause", "Condition", "Rule", "decide"]
