"""Forensics for RL-trained language-model policies: a benchmark score went up;
is the gain real?

Names are loaded when they are first used, so that `import forensics` costs
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.case import Budget, Case
    from forensics.errors import UserError
    from forensics.investigation import investigate, scan
    from forensics.policies import load_policy, policy_from
    from forensics.protocols import SamplingSettings
    from forensics.records import Verdict

_HOME = {
    "Budget": "forensics.case",
    "Case": "forensics.case",
    "SamplingSettings": "forensics.protocols",
    "UserError": "forensics.errors",
    "Verdict": "forensics.records",
    "investigate": "forensics.investigation",
    "load_policy": "forensics.policies",
    "policy_from": "forensics.policies",
    "scan": "forensics.investigation",
}
__all__ = [
    "Budget",
    "Case",
    "SamplingSettings",
    "UserError",
    "Verdict",
    "investigate",
    "load_policy",
    "policy_from",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'forensics' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
