"""Live forensics: audits of a policy while it is being trained. Names are loaded when they are asked for."""

from importlib import import_module
from typing import Any

_WHERE = {
    "AuditReport": "training.live.journal",
    "AuditSettings": "training.live.settings",
    "Auditor": "training.live.audit",
    "ForensicsCallback": "training.live.callback",
    "ForensicsForTRL": "training.live.trl_adapter",
    "promotable": "training.live.journal",
    "read_reports": "training.live.journal",
    "TrainerHooks": "training.live.hooks",
    "TrainerView": "training.live.hooks",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'training.live' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)
