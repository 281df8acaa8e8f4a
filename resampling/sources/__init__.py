"""Gain tests: what a gain runs through, one file each; and what they share.

A test of one's own takes a `SourceStudy` (`study_of`), plays altered worlds (`AlteredWorld`,
`alteration`), compares, and answers by `GainAnswers`.
"""

from resampling.sources.altered_world import AlteredWorld, alteration
from resampling.sources.source_study import Comparison, GainAnswers, SourceStudy, study_of

__all__ = [
    "AlteredWorld",
    "Comparison",
    "GainAnswers",
    "SourceStudy",
    "alteration",
    "study_of",
]
