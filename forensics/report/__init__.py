"""Reports, drawn from a case folder alone: no model, no torch, nothing from a
network. The page that a room hands over is drawn here too.

Names are loaded when they are first used, so that a command starts without the
libraries that draw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forensics.report.data import ReportData, load_case
    from forensics.report.escape import printable
    from forensics.report.html import draw_page
    from forensics.report.markdown import page_markdown
    from forensics.report.terminal import page_text, table_text
    from forensics.report.writer import checked, render, write_reports

_HOME = {
    "ReportData": "data",
    "checked": "writer",
    "draw_page": "html",
    "load_case": "data",
    "page_markdown": "markdown",
    "page_text": "terminal",
    "printable": "escape",
    "render": "writer",
    "table_text": "terminal",
    "write_reports": "writer",
}
__all__ = [
    "ReportData",
    "checked",
    "draw_page",
    "load_case",
    "page_markdown",
    "page_text",
    "printable",
    "render",
    "table_text",
    "write_reports",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'forensics.report' has no attribute '{name}'")
    return getattr(import_module(f"forensics.report.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
