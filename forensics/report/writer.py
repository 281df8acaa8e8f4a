"""From a case folder to reports: read once, draw each wanted format, write them
atomically. JSON is for machines: the verdict and every finding as one object,
ASCII only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.records.files import write_atomically
from forensics.records.record import SCHEMA_VERSION
from forensics.report import words
from forensics.report.data import ReportData, load_case
from forensics.report.escape import printable
from forensics.report.profile import is_profile
from forensics.report.source_rows import source_rows

FILES: Final = {
    "text": "report.txt",
    "md": "report.md",
    "json": "report.json",
    "html": "report.html",
    "atif": "atif",  # a folder with a file for each run
}


Pictures = Mapping[str, tuple[str, str]]  # file -> title and drawing, of the two on top


def render(folder: Path, formats: Sequence[str]) -> dict[str, str]:
    """Each wanted format (`text`, `md`, `json`, `html`) as a text. Raises
    `UserError` for a folder that is no case.
    """
    wanted = checked(formats)
    if "atif" in wanted:
        raise UserError("atif is a file for each run, not one text; use `write_reports`")
    data = load_case(Path(folder))
    pictures = _pictures(data) if "html" in wanted else {}
    return {name: _draw(data, name, pictures) for name in wanted}


def write_reports(
    folder: Path, formats: Sequence[str], progress: Progress = silent
) -> tuple[Path, ...]:
    """Write `report.html`, `report.md`, `report.json`, `report.txt`, or the folder `atif` of the
    runs (`forensics.report.atif_files`) into the case folder; returns their paths.

    The two pictures on top go into `figures/`, where the Markdown report shows
    them.
    """
    wanted, folder = checked(formats), Path(folder)
    data = load_case(folder)
    pictures: Pictures = {}
    if "md" in wanted or "html" in wanted:
        from forensics.report.svg import standalone

        pictures = _pictures(data)
        for name, (_, drawing) in pictures.items():
            write_atomically(folder / "figures" / name, standalone(drawing))
    for name in wanted:
        if name == "atif":
            from forensics.report.atif_files import write_runs

            write_runs(folder, progress)
            continue
        drawn = _draw(data, name, pictures, [(file, pictures[file][0]) for file in pictures])
        write_atomically(folder / FILES[name], drawn)
    return tuple(folder / FILES[name] for name in wanted)


def checked(formats: Sequence[str]) -> tuple[str, ...]:
    """Formats by name, each once. Raises `UserError` for one that does not exist."""
    wanted = (formats,) if isinstance(formats, str) else tuple(dict.fromkeys(formats))
    for name in wanted:
        if name not in FILES:
            raise UserError(
                f"there is no report format '{printable(name)}'; choose from {', '.join(FILES)}"
            )
    return wanted


def _draw(
    data: ReportData, name: str, pictures: Pictures, figures: Sequence[tuple[str, str]] = ()
) -> str:
    """One format; what only that format needs is imported here."""
    if name == "text":
        from forensics.report.terminal_report import render_text

        return render_text(data)
    if name == "md":
        from forensics.report.markdown import render_markdown

        return render_markdown(data, figures=figures)
    if name == "json":
        return render_json(data)
    from forensics.report.html import render_html

    return render_html(data, {file: drawing for file, (_, drawing) in pictures.items()})


def _pictures(data: ReportData) -> Pictures:
    """Pictures of the gain; none of one set of logs, which has none."""
    if is_profile(data.inputs):
        return {}
    from forensics.report.verdict_charts import gain_picture, world_picture, worlds

    drawn = {"gain.svg": ("Parts of the gain", gain_picture(data.verdict))}
    if shown := worlds(data):
        drawn["worlds.svg"] = "The score, before and after training", world_picture(shown)
    return drawn


def render_json(data: ReportData) -> str:
    """`schema_version`, `verdict`, `sources` (each with a fifth of what it is
    measured on, and whether it is `over` or `under` it), `findings`, `inputs`,
    `provenance` and `runs` (counts of each side and world); of a case from logs
    `headline`, `lines` and `looks` (what could be looked for in how many runs).

    Not a number and infinities do not occur: records refuse them.
    """
    report = {
        "schema_version": SCHEMA_VERSION,
        "verdict": data.verdict.model_dump(mode="json"),
        "sources": [
            {**row.source.model_dump(mode="json"), "fifth": row.fifth, "stands": row.stands}
            for row in source_rows(data.verdict)
        ],
        "findings": [
            {"id": finding.id, **finding.model_dump(mode="json")} for finding in data.findings
        ],
        "runs": [
            {"side": side, "without": list(world), **asdict(tally)}
            for (side, world), tally in sorted(data.browser.totals.items())
        ],
        "kinds": dict(data.browser.kinds),
        **({} if data.opening is None else data.opening.stated()),
        "inputs": data.inputs,
        "provenance": data.provenance,
        "replay": words.replay_command(data.inputs, data.verdict),
    }
    return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=True, allow_nan=False) + "\n"
