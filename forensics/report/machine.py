"""The report for machines: the verdict and every finding as one JSON object, ASCII only."""

import json

from forensics.records.base import SCHEMA_VERSION
from forensics.report import words
from forensics.report.data import ReportData


def render_json(data: ReportData) -> str:
    """`schema_version`, `verdict`, `findings`, `inputs`, `provenance` and `runs` (counts of each side and world).

    Not a number and infinities do not occur: records refuse them.
    """
    report = {
        "schema_version": SCHEMA_VERSION,
        "verdict": data.verdict.model_dump(mode="json"),
        "findings": [{"id": finding.id, **finding.model_dump(mode="json")} for finding in data.findings],
        "runs": [
            {"side": side, "without": list(world), "runs": tally.runs, "scored": tally.scored, "wins": tally.wins,
             "ends": tally.ends}
            for (side, world), tally in sorted(data.browser.totals.items())
        ],
        "kinds": dict(data.browser.kinds),
        "inputs": data.inputs,
        "provenance": data.provenance,
        "replay": words.replay_command(data.inputs, data.verdict),
    }
    return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"
