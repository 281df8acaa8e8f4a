"""Causal readings by sampling again: action ablation, potentials, cliff tokens.

Names are loaded when they are first used, so that `import resampling` costs
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resampling.ablation.ablation_run import ablate_actions
    from resampling.cliffs.cliffs import find_cliffs

_HOME = {
    "ablate_actions": "resampling.ablation.ablation_run",
    "find_cliffs": "resampling.cliffs.cliffs",
}
__all__ = ["ablate_actions", "find_cliffs"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'resampling' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
