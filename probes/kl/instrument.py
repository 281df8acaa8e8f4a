"""Where RL spent its KL, as evidence: a shortcut shows without re-running
anything.

1. Runs of the first checkpoint after training (the score layer has played them)
   are scored under both policies, in the one pass that this room's instruments
   share (`probes.grades.step_grades`), and the KL is split by what it was
   spent on (`kl_split`). Training noise between seeds is not measured.
2. `kl.split`: the whole, nats a run, with the pictures and the table. Kinds of
   step come from the log, so a shortcut that nobody declared shows there too.
3. `kl.channel_share`: for each declared channel, the share spent on the steps
   that try it. Its control is an even spread: the share of the policy's tokens
   that stand there.

`KL(after || before)` is not symmetric: exchanging the checkpoints asks another
question on other runs. It is stated at the sampling temperature without top-k
and top-p: a truncated policy's KL is infinite as soon as the other one
truncates elsewhere. A share says what was rewarded, not that it is wrong.

The split is also given as pictures and a table that a report draws without knowing what a KL
is, and as the plain numbers of `kl_split.json`: `total` nats a run, with `total_low`,
`total_high` and `total_plain`. `by_step_kind`, `by_channel`, `by_turn` and `by_token_class` map
a name to `share`, `low`, `high` (of the total; `null` with the reason in `undefined` where
there is none), `nats`, `plain`, `difference_error`, and where the axis has them `choice`,
`content` and `tokens`. `estimator`: `conditional`, or `plain` where no whole distributions were
known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import percent, printable
from forensics.records import (
    SCHEMA_VERSION,
    Control,
    Evidence,
    Figure,
    Series,
    Table,
    Undefined,
    write_json,
)
from forensics.statistics import Estimate
from probes.grades.step_grades import case_scores
from probes.kl.kl_split import LEAST, NO_CHANNEL, KlSplit, Part, kl_split

SPLIT: Final = "kl.split"
CHANNEL: Final = "kl.channel_share"
LAYER: Final = "behaviour"
METHOD: Final = "log-ratio of after to before on the runs of after, split by what it was spent on"
NAMED_KINDS: Final = 3  # in a sentence


@dataclass(frozen=True, kw_only=True)
class KlConfig:
    """`tasks`: of how many tasks the runs are read (all samples of each).
    `level` of intervals. `least`: nats a run below which there are no shares.
    """

    tasks: int = 300
    level: float = 0.95
    least: float = LEAST


@instrument(name="kl", layer=LAYER, questions=(SPLIT, CHANNEL), config=KlConfig())
def kl(case: Case, config: KlConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot give."""
    if not case.runs_models:
        raise MissingInput(
            "Logs alone do not say how likely another policy was to do the same.",
            "Give the checkpoints to `forensics investigate`.",
        )
    case.require_afters()
    answers = kl.answers(case, config, METHOD)
    plan, scores = case_scores(case, config.tasks)
    split = kl_split(scores, plan, case.channels, config.level, config.least)
    yield _whole(split, answers)
    declared = [name for name in split.by_channel if name != NO_CHANNEL]
    if not declared:
        missing = MissingInput(
            "The environment declares no channel.",
            f"Look at `{SPLIT}`: it tells every kind of step apart, declared or not.",
        )
        yield answers.undefined(CHANNEL, missing)
    for name in declared:
        yield answers.answer(CHANNEL, partial(_share, split, name, answers), name)


def _whole(split: KlSplit, answers: AnswerMaker) -> Evidence:
    shares = [
        f"{percent(part.share.estimate)} on `{printable(kind)}`"
        for kind, part in ranked(split.by_kind)
        if part.share is not None and part.share.estimate > 0
    ]
    most = f"most of it went to: {', '.join(shares[:NAMED_KINDS])}"
    if split.undefined is not None:
        most = f"no shares: {split.undefined}"
    return answers.evidence(
        SPLIT,
        split.total,
        n=split.runs,
        unit="nats a run",
        artifacts=(*figures(split), table(split)),
        diagnostics={
            "plain_estimate": split.plain,
            "disagreement_in_standard_errors": split.disagreement,
            "share_of_choosing": split.choice.share and split.choice.share.estimate,
            "estimator": "conditional" if split.conditional else "plain",
            "unread_steps": split.unread,
            "retokenised_runs": split.retokenised,
        },
        summary=f"KL(after || before) is {split.total.estimate:.2f} nats a run; {most}.",
    )


def _share(split: KlSplit, name: str, answers: AnswerMaker) -> Evidence:
    part = split.by_channel[name]
    if part.share is None:
        raise MissingInput(
            f"There is no share: {split.undefined}.",
            "Compare checkpoints that differ, on more tasks.",
        )
    assert part.tokens is not None, "a channel has kinds, and kinds have tokens"
    return answers.evidence(
        CHANNEL,
        part.share,
        about=name,
        n=split.runs,
        unit="share of the KL",
        control=Control(
            name="share of the tokens there (an even spread)",
            estimate=part.tokens.estimate,
            interval=part.tokens.interval,
        ),
        diagnostics={
            "nats": part.nats,
            "choosing": part.choice,
            "writing": part.content,
            "plain_nats": part.plain,
        },
        summary=(
            f"{percent(part.share.estimate)} of the KL that RL spent went to steps that try"
            f" {printable(name)}, which hold {percent(part.tokens.estimate)} of the policy's"
            " tokens."
        ),
    )


MOST_BARS: Final = 10
DIRECTION: Final = "KL(policy || reference) on the runs of the policy"


def figures(split: KlSplit) -> Iterator[Figure]:
    """The share of KL and of tokens of each kind of step, side by side; the KL a run of
    each kind, split into choosing and writing it; shares by turn, counted from 0.

    Without shares only the second one, in nats.
    """
    kinds = ranked(split.by_kind)
    names = tuple(printable(kind) for kind, _ in kinds)
    share = "share of KL(after || before)"
    if split.undefined is None:
        spent, even = [part.share for _, part in kinds], [part.tokens for _, part in kinds]
        yield Figure(
            title="Where RL spent its KL: share by kind of step",
            form="bars",
            x_label="kind of step",
            y_label=share,
            series=(
                _series("share of KL", names, spent),
                _series("share of tokens (KL spread evenly)", names, even),
            ),
        )
    yield Figure(
        title="KL spent on choosing a step and on writing it",
        form="stacked",
        x_label="kind of step",
        y_label="KL(after || before), nats a run",
        series=(
            Series(name="choosing it", x=names, y=tuple(part.choice for _, part in kinds)),
            Series(name="writing it", x=names, y=tuple(part.content for _, part in kinds)),
        ),
    )
    if split.undefined is None and len(split.by_turn) > 1:
        turns = tuple(f"turn {name}" for name in split.by_turn)
        spent = [part.share for part in split.by_turn.values()]
        yield Figure(
            title="Where RL spent its KL: share by turn",
            form="bars",
            x_label="turn",
            y_label=share,
            series=(_series("share of KL", turns, spent),),
        )


def ranked(parts: Mapping[str, Part]) -> list[tuple[str, Part]]:
    """The parts with the largest amounts first."""
    return sorted(parts.items(), key=lambda item: (-abs(item[1].nats), item[0]))[:MOST_BARS]


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
