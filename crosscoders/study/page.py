"""The page of a diff: one self-contained file without any script.

Where the change lives (patching), the map of latents, the latents that separate
one kind of step from others with their tokens, how good the dictionary is, what
should show nothing, and the curves of steering where there are any. Everything
that a model, a log or a file name says is escaped and made visible (see
`forensics.report.pages`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from crosscoders.study.curves import curves, steering_table
from crosscoders.study.diff_files import PAGE
from crosscoders.study.page_data import SHADES, DiffView, read_view
from crosscoders.study.pictures import latent_map, network_picture
from forensics.records.files import write_atomically
from forensics.report import charts, numbers
from forensics.report.pages import COMMON, content_policy, templates

FOLDER: Final = Path(__file__).parent / "templates"
MOST_CURVES: Final = 8


def write_page(folder: Path) -> Path:
    """Draw `diff.html` again from the files of a diff, those of `forensics
    steer` included; returns its path.
    """
    path = folder / PAGE
    write_atomically(path, diff_page(read_view(folder)))
    return path


def diff_page(view: DiffView) -> str:
    """The page. The same files give the same bytes."""
    style = (COMMON / "report.css").read_text(encoding="utf-8") + _shades()
    style += (FOLDER / "diff.css").read_text(encoding="utf-8")
    drawn = [
        Markup(charts.draw(figure, prefix=f"curve-{i}"))
        for i, figure in enumerate(curves(view.steering))
    ]
    return (
        templates(FOLDER)
        .get_template("diff.html.j2")
        .render(
            view=view,
            summary=view.summary,
            style=Markup(style),
            policy=content_policy(style, ""),
            network=_network(view),
            map=latent_map(view.latents),
            curves=drawn[:MOST_CURVES],
            steering=steering_table(view.steering),
            quality=quality_rows(view.quality),
            controls=view.controls,
            baselines=baseline_rows(view.baselines),
            percent=numbers.percent,
            plain=numbers.plain,
            shown=_shown,
        )
    )


def _network(view: DiffView) -> Markup | None:
    return network_picture(view.patching, view.summary.get("site")) if view.patching else None


def quality_rows(quality: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Each figure with what it means: name, value, meaning."""
    if not quality:
        return []
    rows = []
    for side, share in zip(("before", "after"), quality["variance_explained"], strict=False):
        rows.append(
            (
                f"variance explained, {side}",
                _share(share),
                "1 is perfect, 0 is the mean of the activations",
            )
        )
    rows.append(
        (
            "active latents a token (L0)",
            numbers.plain(quality["l0"]),
            "how many latents explain one token",
        )
    )
    rows.append(
        (
            "silent latents",
            _share(quality["dead_share"]),
            f"never active in {quality['rows']:,} tokens",
        )
    )
    for name, spliced in (quality.get("spliced") or {}).items():
        told = "1: the reconstruction does as well as the activations; 0: as badly as their mean"
        rows += [
            (f"{measure} recovered, {name}", _interval(value), told)
            for measure, value in spliced.items()
        ]
    return rows


def baseline_rows(baselines: Mapping[str, Any] | None) -> list[list[Any]]:
    """Method, what it explains of the models' difference, with how many parts,
    its one feature and how it tells.
    """
    return [
        [
            one["name"],
            _share(one["explained"]),
            f"{numbers.plain(one['active'], 1)} of {one['features']:,}",
            one["feature"] or "none",
            one["auroc"],
        ]
        for one in (baselines or {}).get("methods", ())
    ]


def _interval(found: Mapping[str, float | None] | None) -> str:
    estimate, low, high = (
        (None, None, None) if found is None else (found[end] for end in ("estimate", "low", "high"))
    )
    ends = (
        ""
        if low is None or high is None
        else f" ({numbers.plain(100 * low, 1)} to {numbers.plain(100 * high, 1)})"
    )
    return _share(estimate) + ends


def _share(value: float | None) -> str:
    return "could not be told" if value is None else numbers.percent(value)


def _shown(value: float | None, decimals: int | None = None) -> str:
    """A number of the table of latents."""
    return "not known" if value is None else numbers.plain(value, decimals)


def _shades() -> str:
    """A background for every shade of activation."""
    return "".join(
        f".a{level}{{background:color-mix(in srgb,var(--phantom)"
        f" {round(60 * level / SHADES)}%,transparent)}}"
        for level in range(1, SHADES + 1)
    )
