"""What stands beside a scan's findings and verdict, written after both: the
reviewer's answers, and exports.

A reviewer that fails leaves the case complete, with what it answered; the
sentence is raised at the very end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forensics.case import Case
from forensics.errors import UserError
from forensics.investigation.folder import EVIDENCE, REVIEW
from forensics.records import Evidence, Undefined
from forensics.records.files import write_json_lines
from forensics.shortcuts.export import Export, write_export, write_lines
from forensics.shortcuts.reviewer import Reviewer

AGAIN = "the verdict and the findings are written, and with --resume the review goes on"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Who reviews the findings, and what is written for other tools. `force`:
    over what is there.
    """

    reviewer: Reviewer | None = None
    exports: tuple[Export, ...] = ()
    force: bool = False


def add_review(case: Case, findings: Sequence[Evidence | Undefined], beside: Beside) -> str | None:
    """Review the findings and add what came out to the evidence; returns why
    the review was broken off, if it was.
    """
    if beside.reviewer is None:
        (case.folder / REVIEW).unlink(missing_ok=True)  # of an earlier run; its answers are kept
        return None
    from forensics.shortcuts.review import review

    reviewed = review(case, beside.reviewer)
    write_json_lines(case.folder / EVIDENCE, [*findings, *reviewed.evidence])
    return reviewed.failure


def add_exports(case: Case, beside: Beside) -> None:
    """Write every export."""
    for export in beside.exports:
        case.progress(f"writing {export.kind}", 0, 1)
        _write(case, export, force=beside.force)
        case.progress(f"writing {export.kind}", 1, 1)


def _write(case: Case, export: Export, *, force: bool) -> None:
    if export.kind == "scout":
        from forensics.shortcuts.scout_export import write_scout

        write_scout(case, export.path, force=force)
    elif export.kind == "jsonl":
        write_export(export.path, lambda draft: write_lines(case, draft), force=force)
    else:
        from forensics.report.markdown import render_pull_request

        text = render_pull_request(case.folder)
        write_export(export.path, lambda draft: _text(draft, text), force=force)


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def raise_failure(failure: str | None) -> None:
    """Raise what stopped the review, now that everything else is written."""
    if failure is not None:
        raise UserError(f"{failure}; {AGAIN}")
