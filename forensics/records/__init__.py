"""The frozen, versioned types that data flows through, and their files.

What reads and writes files is loaded when it is first used, so that the types alone cost nothing.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names
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

if TYPE_CHECKING:
    from forensics.records.checksum import tell_unchecked as tell_unchecked
    from forensics.records.evidence import Scalar as Scalar
    from forensics.records.files import (
        as_user_error as as_user_error,
        disk_told as disk_told,
        read_findings as read_findings,
        read_json as read_json,
        write_atomically as write_atomically,
        write_json as write_json,
        write_json_lines as write_json_lines,
    )  # fmt: skip
    from forensics.records.gain_test import (
        ALTERED_PROMPT as ALTERED_PROMPT,
        JOB as JOB,
        GainTest as GainTest,
    )
    from forensics.records.given_files import (
        parse_json as parse_json,
        parse_toml as parse_toml,
        read_text as read_text,
        require_file as require_file,
    )  # fmt: skip
    from forensics.records.page import (
        Fold as Fold,
        Page as Page,
        Section as Section,
        TextSpan as TextSpan,
        TextSpans as TextSpans,
        estimate_cell as estimate_cell,
        step_text as step_text,
    )  # fmt: skip
    from forensics.records.record import (
        SCHEMA_VERSION as SCHEMA_VERSION,
        Record as Record,
        first_amiss as first_amiss,
    )
    from forensics.records.tables import (
        open_whole as open_whole,
        read_rows as read_rows,
        read_trajectories as read_trajectories,
        whole_file as whole_file,
        write_trajectories as write_trajectories,
    )  # fmt: skip
    from forensics.records.train_rows import (
        StepRewards as StepRewards,
        drawn_key as drawn_key,
        read_pairs as read_pairs,
        read_step_rewards as read_step_rewards,
        write_step_rewards as write_step_rewards,
    )  # fmt: skip
    from forensics.records.train_tables import (
        RECORD_FOLDER as RECORD_FOLDER,
        TrainingRecord as TrainingRecord,
        marker_path as marker_path,
        warm_up as warm_up,
        write_shard as write_shard,
    )  # fmt: skip
    from forensics.records.trajectory import (
        TOKEN_LIMIT as TOKEN_LIMIT,
        WORLD_RAISED as WORLD_RAISED,
        Ending as Ending,
        action_starts as action_starts,
        handed_in as handed_in,
    )  # fmt: skip
    from forensics.records.verdict import Estimate as Estimate

__getattr__, __dir__ = lazy_names(__name__)

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
