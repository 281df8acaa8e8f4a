"""Forensics for RL-trained language-model policies: a benchmark score went up;
is the gain real?

Names are loaded when they are first used, so that `import forensics` costs
nothing.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.case import Budget as Budget, Case as Case
    from forensics.errors import UserError as UserError
    from forensics.investigation import investigate as investigate, scan as scan
    from forensics.policies import load_policy as load_policy, policy_from as policy_from
    from forensics.protocols import SamplingSettings as SamplingSettings
    from forensics.records import Verdict as Verdict
    from forensics.twin_check import check_twin as check_twin

__getattr__, __dir__ = lazy_names(__name__)
