"""Live forensics: audits of a policy while it is being trained. Names are
loaded when they are asked for.
"""

from forensics.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AuditReport": "audit_report",
        "AuditSettings": "audit_report",
        "Auditor": "audit",
        "ForensicsCallback": "callback",
        "ForensicsForTRL": "trl_callback",
        "TrainerHooks": "callback",
        "TrainerView": "callback",
        "promotable": "audit_report",
        "read_reports": "audit_report",
    },
)
