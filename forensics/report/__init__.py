"""Reports, drawn from a case folder alone: no model, no torch, nothing from a
network. The page that a room hands over is drawn here too.

Names are loaded when they are first used, so that a command starts without the
libraries that draw.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.report import numbers as numbers
    from forensics.report.data import (
        ReportData as ReportData,
        judge_case as judge_case,
        load_case as load_case,
    )
    from forensics.report.escape import printable as printable
    from forensics.report.html import draw_page as draw_page
    from forensics.report.numbers import cell as cell, percent as percent, plain as plain
    from forensics.report.terminal_report import table_text as table_text
    from forensics.report.writer import (
        checked as checked,
        render as render,
        write_reports as write_reports,
    )

__getattr__, __dir__ = lazy_names(__name__)
