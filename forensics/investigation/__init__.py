"""The main job: from two checkpoints and a world, or from logs alone, to a
verdict in a case folder.
"""

from forensics.investigation.run import investigate
from forensics.investigation.scan_run import scan

__all__ = ["investigate", "scan"]
