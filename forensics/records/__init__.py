"""The frozen, versioned types that data flows through, and their files."""

from forensics.records.base import Record, VersionedRecord, canonical_json, content_hash
from forensics.records.case import AblationRow, CaseFile, ChainRow, ReviewRow, ScanRow
from forensics.records.checkpoint import Checkpoint, CheckpointPair
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
from forensics.records.preference import PreferencePair
from forensics.records.step_reward import StepRewards
from forensics.records.training import StepMarker, TrainingRow, TrainingRun
from forensics.records.trajectory import Group, Step, ToolCall, Trajectory
from forensics.records.verdict import Estimate, Gap, Source, Verdict

__all__ = [
    "AblationRow", "CaseFile", "ChainRow", "Checkpoint", "CheckpointPair", "Control", "Estimate", "Evidence", "Figure",
    "Finding", "Gap", "Group", "Interval", "PreferencePair", "Provenance", "Record", "ReviewRow", "ScanRow", "Series",
    "Source", "Span", "Spans", "Step", "StepMarker", "StepRewards", "Table", "ToolCall", "TrainingRow", "TrainingRun",
    "Trajectory", "Undefined", "Verdict", "VersionedRecord", "canonical_json", "content_hash",
]
