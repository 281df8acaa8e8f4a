"""The frozen, versioned types that data flows through, and their files."""

from forensics.records.case_file import Checkpoint
from forensics.records.evidence import (
    Control,
    Evidence,
    Figure,
    Interval,
    Provenance,
    Series,
    Span,
    Spans,
    Table,
    Undefined,
)
from forensics.records.record import canonical_json, content_hash
from forensics.records.train_rows import PreferencePair, TrainingRow, TrainingRun
from forensics.records.trajectory import Step, ToolCall, Trajectory
from forensics.records.verdict import Verdict

__all__ = [
    "Checkpoint",
    "Control",
    "Evidence",
    "Figure",
    "Interval",
    "PreferencePair",
    "Provenance",
    "Series",
    "Span",
    "Spans",
    "Step",
    "Table",
    "ToolCall",
    "TrainingRow",
    "TrainingRun",
    "Trajectory",
    "Undefined",
    "Verdict",
    "canonical_json",
    "content_hash",
]
