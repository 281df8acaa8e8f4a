"""Runs of subjects: the condition that they are played under, and where they are stored."""

from forensics.runs.run_store import OPEN as OPEN, Condition as Condition
from forensics.runs.series import Series as Series, series_of as series_of
