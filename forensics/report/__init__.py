"""Reports, drawn from a case folder alone: no model, no torch, nothing from a network."""

from forensics.report.data import ReportData, load_case
from forensics.report.escape import printable
from forensics.report.writer import checked, render, write_reports

__all__ = ["ReportData", "checked", "load_case", "printable", "render", "write_reports"]
