"""Live forensics: audits of a policy while it is being trained. Names are
loaded when they are asked for.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "AuditReport": "training.live.audit_report",
    "AuditSettings": "training.live.audit_report",
    "Auditor": "training.live.audit",
    "ForensicsCallback": "training.live.callback",
    "ForensicsForTRL": "training.live.trl_callback",
    "promotable": "training.live.audit_report",
    "read_reports": "training.live.audit_report",
    "TrainerHooks": "training.live.callback",
    "TrainerView": "training.live.callback",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'training.live' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)
