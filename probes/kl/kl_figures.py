"""The split as pictures and a table that a report draws without knowing what a
KL is, and as the plain numbers of `kl_split.json`.

In the file: `total` nats a run, with `total_low`, `total_high` and
`total_plain`. `by_step_kind`, `by_channel`, `by_turn` and `by_token_class` map
a name to `share`, `low`, `high` (of the total; `null` with the reason in
`undefined` where there is none), `nats`, `plain`, `difference_error`, and where
the axis has them `choice`, `content` and `tokens`. `estimator`: `conditional`,
or `plain` where no whole distributions were known.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from forensics.phrases import printable
from forensics.records import Figure, Series, Table
from forensics.records.files import write_json
from forensics.records.record import SCHEMA_VERSION
from forensics.statistics import Estimate
from probes.kl.kl_split import KlSplit, Part

MOST_BARS: Final = 10
DIRECTION: Final = "KL(policy || reference) on the runs of the policy"


def figures(split: KlSplit) -> Iterator[Figure]:
    """Shares by step kind beside an even spread, the parts of choosing and of
    writing, and shares by turn.

    Without shares only the second one, in nats.
    """
    kinds = ranked(split.by_kind)
    if split.undefined is None:
        yield shares(split, kinds)
    yield stacked(kinds)
    if split.undefined is None and len(split.by_turn) > 1:
        yield turns(split)


def ranked(parts: Mapping[str, Part]) -> list[tuple[str, Part]]:
    """The parts with the largest amounts first."""
    return sorted(parts.items(), key=lambda item: (-abs(item[1].nats), item[0]))[:MOST_BARS]


def shares(split: KlSplit, kinds: list[tuple[str, Part]]) -> Figure:
    """The share of KL and of tokens of each kind of step, side by side."""
    names = tuple(printable(kind) for kind, _ in kinds)
    spent, even = [part.share for _, part in kinds], [part.tokens for _, part in kinds]
    return Figure(
        title="Where RL spent its KL: share by kind of step",
        form="bars",
        x_label="kind of step",
        y_label="share of KL(after || before)",
        series=(
            _series("share of KL", names, spent),
            _series("share of tokens (KL spread evenly)", names, even),
        ),
    )


def stacked(kinds: list[tuple[str, Part]]) -> Figure:
    """The KL a run of each kind of step, split into choosing and writing it."""
    names = tuple(printable(kind) for kind, _ in kinds)
    return Figure(
        title="KL spent on choosing a step and on writing it",
        form="stacked",
        x_label="kind of step",
        y_label="KL(after || before), nats a run",
        series=(
            Series(name="choosing it", x=names, y=tuple(part.choice for _, part in kinds)),
            Series(name="writing it", x=names, y=tuple(part.content for _, part in kinds)),
        ),
    )


def turns(split: KlSplit) -> Figure:
    """Turns are counted from 0, as everywhere."""
    return Figure(
        title="Where RL spent its KL: share by turn",
        form="bars",
        x_label="turn",
        y_label="share of KL(after || before)",
        series=(
            _series(
                "share of KL",
                tuple(f"turn {name}" for name in split.by_turn),
                [part.share for part in split.by_turn.values()],
            ),
        ),
    )


def table(split: KlSplit) -> Table:
    """Every part of every axis."""
    rows = [
        (
            axis,
            printable(name),
            part.nats,
            *(part.share.ends if part.share else (None,) * 3),
            part.choice,
            part.content,
            part.plain,
            part.tokens and part.tokens.estimate,
        )
        for axis, parts in split.axes.items()
        for name, part in parts.items()
    ]
    return Table(
        title="KL(after || before) on the runs of after, by what it was spent on",
        rows=tuple(rows),
        columns=(
            "axis",
            "name",
            "nats a run",
            "share",
            "low",
            "high",
            "choosing",
            "writing",
            "plain estimator",
            "share of tokens",
        ),
    )


def _series(name: str, x: tuple[str, ...], found: Sequence[Estimate | None]) -> Series:
    ends = zip(*(one.ends if one else (None,) * 3 for one in found), strict=True)
    return Series(name=name, x=x, **dict(zip(("y", "low", "high"), ends, strict=True)))


def write_split(folder: Path, split: KlSplit) -> Path:
    """Writes `kl_split.json` into a folder and returns its path."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "direction": DIRECTION,
        "unit": "nats a run",
        "total": split.total.estimate,
        "total_low": split.total.low,
        "total_high": split.total.high,
        "total_plain": split.plain,
        "level": split.total.level,
        "estimator": "conditional" if split.conditional else "plain",
        "runs": split.runs,
        "tasks": split.total.clusters,
        "unread_steps": split.unread,
        "retokenised_runs": split.retokenised,
        "undefined": split.undefined,
        **{
            f"by_{axis.replace(' ', '_')}": {name: part.row() for name, part in parts.items()}
            for axis, parts in split.axes.items()
        },
    }
    path = folder / "kl_split.json"
    write_json(path, content)
    return path
