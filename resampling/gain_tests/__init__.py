"""Gain tests: what a gain runs through, one file each; and what they share.

A test of one's own takes a `GainStudy` (`study_of`), plays altered worlds (`AlteredWorld`,
`alteration`), compares, and answers by `GainAnswers`.
"""

from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.gain_study import Comparison, GainAnswers, GainStudy, study_of

__all__ = [
    "AlteredWorld",
    "Comparison",
    "GainAnswers",
    "GainStudy",
    "alteration",
    "study_of",
]
