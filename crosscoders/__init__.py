"""Activation diffing between two checkpoints: patching, grafting, crosscoders, steering.

`train_crosscoder(stream, DictionaryConfig(...), FittingSettings(...))` trains a sparse dictionary over a stream of
paired activations; `diff(before, after, out=...)` does everything from two checkpoints to a page. Names are loaded
when they are first used, so that the commands of this room start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscoders.fitting.loop import train_crosscoder
    from crosscoders.study.running import diff

_HOME = {"diff": "crosscoders.study.running", "train_crosscoder": "crosscoders.fitting.loop"}
__all__ = ["diff", "train_crosscoder"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'crosscoders' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
