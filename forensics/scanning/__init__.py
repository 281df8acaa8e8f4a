"""The shortcut scanner: families of shortcuts as data, and the chain of evidence for each in a run's log."""

from forensics.scanning.degenerate import DegeneracyLimits, Degenerate, degenerate
from forensics.scanning.family import Family, families, family_of
from forensics.scanning.finding import LEVELS, Finding
from forensics.scanning.scan import ScanConfig, scan_trajectory

__all__ = [
    "LEVELS", "DegeneracyLimits", "Degenerate", "Family", "Finding", "ScanConfig", "degenerate", "families",
    "family_of", "scan_trajectory",
]
