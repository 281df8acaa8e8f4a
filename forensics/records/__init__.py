"""The frozen, versioned types that data flows through, and their files."""

from forensics.records.case_file import (
    AblationRow,
    CaseFile,
    ChainRow,
    Checkpoint,
    CheckpointPair,
    ReviewRow,
    ScanRow,
)
from forensics.records.evidence import (
    Control,
    Evidence,
    Figure,
    Finding,
    Interval,
    Provenance,
    Series,
    Span,
    Spans,
    Table,
    Undefined,
)
from forensics.records.feedback import PreferencePair, StepRewards
from forensics.records.record import Record, VersionedRecord, canonical_json, content_hash
from forensics.records.train_rows import StepMarker, TrainingRow, TrainingRun
from forensics.records.trajectory import Step, ToolCall, Trajectory
from forensics.records.verdict import Estimate, Gap, Source, Verdict

__all__ = [
    "AblationRow",
    "CaseFile",
    "ChainRow",
    "Checkpoint",
    "CheckpointPair",
    "Control",
    "Estimate",
    "Evidence",
    "Figure",
    "Finding",
    "Gap",
    "Interval",
    "PreferencePair",
    "Provenance",
    "Record",
    "ReviewRow",
    "ScanRow",
    "Series",
    "Source",
    "Span",
    "Spans",
    "Step",
    "StepMarker",
    "StepRewards",
    "Table",
    "ToolCall",
    "TrainingRow",
    "TrainingRun",
    "Trajectory",
    "Undefined",
    "Verdict",
    "VersionedRecord",
    "canonical_json",
    "content_hash",
]
