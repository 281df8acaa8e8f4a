"""Reports, drawn from a case folder alone: no model, no torch, nothing from a
network. The page that a room hands over is drawn here too.

Names are loaded when they are first used, so that a command starts without the
libraries that draw.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.report.data import ReportData as ReportData
    from forensics.report.data import judge_case as judge_case
    from forensics.report.data import load_case as load_case
    from forensics.report.escape import printable as printable
    from forensics.report.html import draw_page as draw_page
    from forensics.report.markdown import page_markdown as page_markdown
    from forensics.report.terminal import page_text as page_text
    from forensics.report.terminal import table_text as table_text
    from forensics.report.writer import checked as checked
    from forensics.report.writer import render as render
    from forensics.report.writer import write_reports as write_reports

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ReportData": "data",
        "checked": "writer",
        "draw_page": "html",
        "judge_case": "data",
        "load_case": "data",
        "page_markdown": "markdown",
        "page_text": "terminal",
        "printable": "escape",
        "render": "writer",
        "table_text": "terminal",
        "write_reports": "writer",
    },
)
