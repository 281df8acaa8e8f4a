"""The main job: from two checkpoints and a world, or from logs alone, to a
verdict in a case folder.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.investigation.inputs import (
        CaseRequest as CaseRequest,
        check_inputs as check_inputs,
    )
    from forensics.investigation.run import investigate as investigate
    from forensics.investigation.scan_run import scan as scan

__getattr__, __dir__ = lazy_names(__name__)
