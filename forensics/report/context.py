"""What the templates of a case's report have in common, whatever the format."""

from pathlib import Path
from typing import Any, Final

from forensics.records import ALTERED_PROMPT
from forensics.report import words
from forensics.report.below_findings import (
    INTEGRITY_COLUMNS,
    file_told,
    integrity_lines,
    integrity_rows,
    loop_told,
)
from forensics.report.data import ReportData, shown_reasons
from forensics.report.look_counts import COLUMNS as LOOK_COLUMNS, look_rows
from forensics.report.profile import certain, done_told, is_profile, mark_told, settles
from forensics.report.report_words import WORDING
from forensics.report.source_rows import COLUMNS, gain_parts, source_table

TEMPLATES: Final = Path(__file__).parent / "templates"
DRAWN_WITH: Final = {
    "words": words,
    "wording": WORDING,
    "source_columns": COLUMNS,
    "altered_title": ALTERED_PROMPT,
    "done_told": done_told,
    "mark_told": mark_told,
    "file_told": file_told,
    "loop_told": loop_told,
    "look_columns": LOOK_COLUMNS,
    "look_rows": look_rows,
    "integrity_columns": INTEGRITY_COLUMNS,
    "integrity_lines": integrity_lines,
    "integrity_rows": integrity_rows,
}


def context_of(data: ReportData) -> dict[str, Any]:
    """The values and functions that a template of the whole report may use."""
    return {
        **DRAWN_WITH,
        "data": data,
        "verdict": data.verdict,
        "profile": is_profile(data.inputs),
        "opening": data.opening,
        "reasons": shown_reasons(data),
        "sources": source_table(data.verdict),
        "parts_of_gain": gain_parts(data.verdict),
        "certain": list(certain(data.verdict, data.inputs)),
        "settles": list(settles(data.verdict, data.inputs)),
        "command": words.replay_command(data.inputs, data.verdict),
        "found": data.found,
    }
