"""Logs that other people's tools wrote: one file a format, found by entry
point; and what a reader of one's own is made of.
"""

from forensics.readers.content import Limits, Unreadable
from forensics.readers.dumped_record import DumpedRecord, open_record
from forensics.readers.json_rows import (
    Row,
    first_row,
    read_document,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import LogReader, Reader, installed_readers, read_logs
from forensics.readers.messages import steps_of
from forensics.readers.rollout_text import completion_steps, outcome_of, prompt_steps
from forensics.readers.submission import submission_of
from forensics.readers.values import as_mapping, dig, ending, run_of, score_of

__all__ = [
    "DumpedRecord",
    "Limits",
    "LogReader",
    "Reader",
    "Row",
    "Unreadable",
    "as_mapping",
    "completion_steps",
    "dig",
    "ending",
    "first_row",
    "installed_readers",
    "open_record",
    "outcome_of",
    "prompt_steps",
    "read_document",
    "read_logs",
    "read_rows",
    "run_of",
    "score_of",
    "steps_of",
    "submission_of",
    "trajectories_from",
]
