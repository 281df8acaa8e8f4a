"""What the score layer shows: the gain and its parts with intervals, the scores
of each world, the channels.
"""

from collections.abc import Iterable, Sequence

from forensics.records import Evidence, Figure, Series, Table

PARTS = {
    "gain.total": "gain",
    "gain.genuine": "genuine",
    "gain.phantom": "phantom",
    "gain.genuine_imputed": "genuine, breakage imputed",
    "gain.phantom_imputed": "phantom, breakage imputed",
}


def split_figure(findings: Iterable[Evidence]) -> Figure:
    """The gain, its genuine and its phantom part, as points with whiskers."""
    shown = [finding for finding in findings if finding.question in PARTS]
    return Figure(
        title="The gain and its parts",
        form="points",
        y_label="score difference",
        series=(_series("estimate", [PARTS[finding.question] for finding in shown], shown),),
    )


def channel_figure(shares: Sequence[Evidence]) -> Figure:
    """What runs through each channel, as points with whiskers."""
    return Figure(
        title="The phantom part by channel",
        form="points",
        y_label="score difference",
        series=(_series("estimate", [share.about or "" for share in shares], shares),),
    )


def split_table(findings: Iterable[Evidence]) -> Table:
    """Every quantity with its interval, its runs and tasks, and its control."""
    return Table(
        title="Scores and gains",
        columns=("quantity", "estimate", "low", "high", "runs", "tasks", "A/A control"),
        rows=tuple(
            (
                finding.question,
                finding.estimate,
                *_ends(finding),
                finding.n,
                finding.clusters,
                finding.control.estimate if finding.control else None,
            )
            for finding in findings
        ),
    )


def _series(name: str, x: Sequence[str], shown: Sequence[Evidence]) -> Series:
    ends = [_ends(finding) for finding in shown]
    return Series(
        name=name,
        x=tuple(x),
        y=tuple(finding.estimate for finding in shown),
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
    )


def _ends(finding: Evidence) -> tuple[float | None, float | None]:
    return (finding.interval.low, finding.interval.high) if finding.interval else (None, None)
