"""One self-contained page: no request to anywhere, and nothing that a model
wrote can act in it.

Three walls: every value that the template shows goes through `visible_html`
(escaping, and control and direction marks spelled out); the page's policy
allows only our own script and style, by their hashes, and no connection; and
nothing foreign stands where a browser would read it as anything but text (no
address, no script, no data island).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from markupsafe import Markup

from forensics.records import Evidence, Figure, Spans, Table
from forensics.report import charts, numbers, verdict_charts, words
from forensics.report.data import ReportData
from forensics.report.escape import ticked_html
from forensics.report.findings import Findings, cited_steps, read_findings_of, shown_within
from forensics.report.pages import COMMON, content_policy, templates
from forensics.report.shown_runs import Limits, shown_steps
from forensics.report.svg import sparks

LARGEST: Final = 1_900_000  # bytes; runs are shown with less text until the page is below
SIZES: Final = (
    Limits(text=6000, steps=120, total=700_000),
    Limits(text=1500, steps=60, total=250_000),
    Limits(text=300, steps=24, total=40_000),
)
MOST_ROWS, MOST_COLUMNS, MOST_FIGURES, MOST_ARTIFACTS = 60, 16, 24, 12


def render_html(data: ReportData) -> str:
    """The page. The same case gives the same bytes."""
    figures = _figures(data.evidence)
    found = read_findings_of(data.folder) if data.verdict.basis == "logs" else None
    page = ""
    for limits in SIZES:
        page = _page(data, figures, limits, found)
        if len(page.encode()) <= LARGEST:
            break
    return page


def _page(
    data: ReportData, figures: Mapping[int, Markup], limits: Limits, found: Findings | None
) -> str:
    style, script = (
        (COMMON / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    template = templates().get_template("report.html.j2")
    spent, cited = limits.fresh(), replace(limits, text=min(limits.text, 1500)).fresh()
    return template.render(
        data=data,
        verdict=data.verdict,
        words=words,
        numbers=numbers,
        style=Markup(style),
        script=Markup(script),
        policy=content_policy(style, script),
        headline=words.headline(data.verdict),
        layers=_layers(data),
        worlds_picture=_worlds_picture(data),
        gain_picture=Markup(verdict_charts.gain_picture(data.verdict)),
        drawing_of=lambda figure: figures.get(id(figure)),
        artifacts=_artifacts,
        steps=lambda run, example, marks: shown_steps(run, example, spent, with_marks=marks),
        most_rows=MOST_ROWS,
        most_columns=MOST_COLUMNS,
        command=words.replay_command(data.inputs, data.verdict),
        found=found,
        listed=shown_within(found, limits) if found else (),
        cited=lambda one: cited_steps(one, cited),
        shares=_shares(data),
        ticked=ticked_html,
        anchors=_anchors(data),
    )


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer's evidence with the small picture of each number."""

    name: str
    findings: tuple[Evidence, ...]
    sparks: Mapping[str, Markup]


def _layers(data: ReportData) -> tuple[Layer, ...]:
    return tuple(
        Layer(name=name, findings=findings, sparks=sparks(findings))
        for name, findings in data.layers.items()
    )


def _artifacts(evidence: Evidence) -> tuple[Table | Figure | Spans, ...]:
    return evidence.artifacts[:MOST_ARTIFACTS]


def _figures(findings: Sequence[Evidence]) -> dict[int, Markup]:
    """Drawings by the identity of their specification, the first few."""
    drawn: dict[int, Markup] = {}
    for number, figure in zip(count(), _specifications(findings), strict=False):
        if number == MOST_FIGURES:
            break
        drawn[id(figure)] = Markup(charts.draw(figure, prefix=f"figure-{number}"))
    return drawn


def _specifications(findings: Sequence[Evidence]) -> Iterator[Figure]:
    for finding in findings:
        yield from (artifact for artifact in _artifacts(finding) if isinstance(artifact, Figure))


def _worlds_picture(data: ReportData) -> Markup | None:
    shown = verdict_charts.worlds(data)
    return Markup(verdict_charts.world_picture(shown)) if shown else None


def _anchors(data: ReportData) -> dict[str, str]:
    """Trajectory id -> where the page shows it."""
    return {example.run.id: f"run-{place}" for place, example in enumerate(data.browser.examples)}


def _shares(data: ReportData) -> dict[str, tuple[str, str]]:
    """Wins through each channel, in words: the share and its interval."""
    shares = data.verdict.share_of_wins_via_channel
    return {
        name: (numbers.SHARE.value(s.estimate), numbers.SHARE.ends(s)) for name, s in shares.items()
    }
