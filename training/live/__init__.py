"""Live forensics: audits of a policy while it is being trained. Names are
loaded when they are asked for.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from training.live.audit_report import (
        AuditReport as AuditReport,
        AuditSettings as AuditSettings,
        read_reports as read_reports,
    )
    from training.live.auditor import Auditor as Auditor
    from training.live.callback import (
        ForensicsCallback as ForensicsCallback,
        TrainerHooks as TrainerHooks,
        TrainerView as TrainerView,
    )
    from training.live.marks import promotable as promotable
    from training.live.trl_callback import ForensicsForTRL as ForensicsForTRL
    from training.live.watcher import Until as Until, watch_of as watch_of

__getattr__, __dir__ = lazy_names(__name__)
