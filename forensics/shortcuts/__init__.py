"""The shortcut scanner: families of shortcuts as data, and the chain of
evidence for each in a run's log.
"""

from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.family import LEVELS, Family, Pattern, ShortcutFinding, families, family_of
from forensics.shortcuts.links import Attempt, ChainLinks
from forensics.shortcuts.scanner import scan_trajectory

__all__ = [
    "LEVELS",
    "Attempt",
    "BlindRun",
    "ChainLinks",
    "Family",
    "Pattern",
    "ShortcutFinding",
    "families",
    "family_of",
    "scan_trajectory",
]
