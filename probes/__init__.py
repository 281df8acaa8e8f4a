"""Numbers read off a model: step grades, the KL split, linear probes.

`progress_advantage(policy, reference, trajectories)` grades every step by its log-ratio. Names are loaded when they
are first used, so that the commands of this room start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.grades.grading import progress_advantage

_HOME = {"progress_advantage": "probes.grades.grading"}
__all__ = ["progress_advantage"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'probes' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
