"""The page of cliffs: each trace with the potential under its tokens, cliffs marked, alternatives on click.

One self-contained file without any script: an alternative opens as a `details` element, so the page works where
scripts are off, and nothing that a model wrote can act in it (see `forensics.report.pages`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from forensics.records import Figure, Series
from forensics.report import charts, numbers
from forensics.report.pages import COMMON, content_policy, templates
from resampling.study.view import LEVELS, TraceView

FOLDER: Final = Path(__file__).parent / "templates"
MOST_TRACES: Final = 60
LONGEST: Final = 4000  # characters of one observation


def cliffs_page(
    title: str, summary: Sequence[str], traces: Sequence[TraceView], facts: Sequence[str] = (), command: str = ""
) -> str:
    """The page. `summary`: sentences under the title; `facts`: short ones beside it; `command`: how to replay it.

    Traces with cliffs come first; beyond `MOST_TRACES` the page says how many it leaves out.
    """
    ordered = sorted(traces, key=lambda view: -len(view.marks))
    shown = ordered[:MOST_TRACES]
    style = (COMMON / "report.css").read_text(encoding="utf-8") + _shades()
    style += (FOLDER / "cliffs.css").read_text(encoding="utf-8")
    drawings = [Markup(charts.draw(potential_figure(view), prefix=f"trace-{i}")) for i, view in enumerate(shown)]
    return templates(FOLDER).get_template("cliffs.html.j2").render(
        title=title, summary=summary, facts=facts, command=command, traces=list(zip(shown, drawings, strict=True)),
        left_out=len(ordered) - len(shown), longest=LONGEST, style=Markup(style), policy=content_policy(style, ""),
        percent=numbers.percent, plain=numbers.plain,
    )


def potential_figure(view: TraceView) -> Figure:
    """The potential along the sampled tokens, with its interval."""
    places = tuple(float(k) for k in range(len(view.potentials)))
    series = Series(name="potential", x=places, y=view.potentials, low=view.low, high=view.high)
    return Figure(title="Chance of success after each token", form="lines", x_label="sampled tokens kept",
                  y_label="success", series=(series,))


def _shades() -> str:
    """A style for every shade of potential: the share of the bar under a token that is filled."""
    return "".join(f".p{level}{{--filled:{100 * level // LEVELS}%}}" for level in range(LEVELS + 1))
