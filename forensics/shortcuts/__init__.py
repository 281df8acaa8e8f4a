"""The shortcut scanner: families of shortcuts as data, and the chain of
evidence for each in a run's log.
"""

from forensics.records.finding import Finding
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.family import Family, Pattern, families, family_of
from forensics.shortcuts.links import Attempt, ChainLinks
from forensics.shortcuts.scanner import scan_trajectory

__all__ = [
    "Attempt",
    "BlindRun",
    "ChainLinks",
    "Family",
    "Finding",
    "Pattern",
    "families",
    "family_of",
    "scan_trajectory",
]
