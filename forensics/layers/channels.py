"""How much of the score was made through each shortcut: attempts, links and
credited wins, before and after.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from forensics.case import Rollouts
from forensics.errors import MissingInput
from forensics.layers.change import change
from forensics.layers.run_columns import Answers, Reading
from forensics.layers.survey import has_side
from forensics.layers.tally import LINKS, PROMPTED, Log, link_column, mean
from forensics.protocols import Channel
from forensics.records import Control, Evidence, Figure, Interval, Series
from forensics.records.evidence import Artifact, Scalar
from forensics.statistics import Estimate, clustered_share
from forensics.wording import capital, percent, plural, printable

Floats = NDArray[np.float64]
WINS, ATTEMPTS = "behaviour.channel_wins", "behaviour.channel_attempts"
MOST_UNTOLD = 0.05  # of the wins; beyond it a share of zero would be a missing value in disguise


def channel_answers(reading: Reading) -> Answers:
    """Both questions for every channel."""
    if not reading.survey.channels:
        missing = MissingInput(
            "Neither an environment nor a mark in the logs names a shortcut.",
            "Give an environment that declares its channels with `--env`.",
        )
        yield from (reading.undefined(question, missing) for question in (WINS, ATTEMPTS))
    for channel in reading.survey.channels:
        yield reading.answer(WINS, partial(channel_wins, reading, channel), channel.name)
        yield reading.answer(ATTEMPTS, partial(channel_attempts, reading, channel), channel.name)


def channel_wins(reading: Reading, channel: Channel) -> Evidence:
    """Share of the wins after training that are credited to the channel: every
    link of the chain holds.

    Wins for which that cannot be told widen the interval upwards. So do wins
    that obtained what no run of either side ever copied: such an answer may
    have been worked out, which leaves no trace in the text. Raises
    `MissingInput` where there is no win, or where nothing is credited and it
    cannot be told for many.
    """
    if any(log.count(link_column(channel.name, PROMPTED)) for log in reading.afters):
        return _vanishing_wins(reading, channel)
    level, untold = reading.config.level, _wins_untold(reading.afters, channel)
    copied = any(log.count(link_column(channel.name, "used")) for log in reading.logs)
    after = _share(reading.afters, channel, ("complete",), "credited", level)
    if after.estimate == 0 and untold > MOST_UNTOLD * after.n:
        raise MissingInput(
            f"For {plural(untold, 'win')} it cannot be told whether {printable(channel.name)} made"
            " them.",
            "Give logs that record the submission, or for tampering both reward components, of each"
            " run.",
        )
    possible = (
        ("complete", "cannot be told") if copied else ("complete", "cannot be told", "not copied")
    )
    most = _share(reading.afters, channel, possible, "credited", level)
    before = _share_before(reading, channel, ("complete",), "credited")
    return reading.evidence(
        WINS,
        about=channel.name,
        estimate=after.estimate,
        unit="share of wins",
        interval=Interval(low=after.low, high=max(after.high, most.high), level=level),
        n=int(after.n),
        clusters=after.clusters,
        control=control_of(before),
        diagnostics=_diagnostics(reading, channel, untold),
        artifacts=(*_spans(reading, channel), _links(reading, channel)),
        summary=capital(
            f"{'at least ' if most.estimate > after.estimate else ''}{percent(after.estimate)}"
            " of the"
        )
        + f" wins after training run through {printable(channel.name)}{_beside(before)}.",
    )


def _vanishing_wins(reading: Reading, channel: Channel) -> Evidence:
    """The same for what the prompt itself shows, by intervention: the share of
    the wins after training that vanish in the world scrubbed of the channel.
    The interval is that of the difference, over the wins that there are.

    Raises `MissingInput` where there is no such world, or no win.
    """
    name, level = channel.name, reading.config.level
    if not all(has_side(reading.case, side, (name,)) for side in reading.case.afters):
        raise MissingInput(
            f"The prompt shows {printable(name)}, used or not; which wins came through it takes a"
            " world without it.",
            "Run both checkpoints with the channel scrubbed: `forensics investigate`.",
        )
    wins = [_win_rates(log.by_task("outcome"), reading.config.win) for log in reading.afters]
    left = [
        _win_rates(_outcomes(reading.case.rollouts(side, without=(name,))), reading.config.win)
        for side in reading.case.afters
    ]
    everything = mean([mean(list(rates.values())) for rates in wins]) if all(wins) else 0.0
    if everything == 0:
        raise MissingInput("There is no scored win.", "Give logs with outcomes, or more runs.")
    tasks = sorted(set.intersection(*(set(rates) for rates in (*wins, *left))))
    lost = change(
        {task: mean([rates[task] for rates in left]) for task in tasks},
        [{task: rates[task] for task in tasks} for rates in wins],
        reading.generator(f"wins {name}"),
        level,
    )

    def share(points: float) -> float:
        return min(max(points / everything, 0.0), 1.0)

    return reading.evidence(
        WINS,
        about=name,
        estimate=share(lost.estimate),
        unit="share of wins",
        interval=Interval(
            low=share(lost.interval.low), high=share(lost.interval.high), level=level
        ),
        n=reading.runs,
        clusters=lost.tasks,
        diagnostics={"family": channel.family, "by": "scrubbing"},
        summary=(
            f"{capital(percent(share(lost.estimate)))} of the wins after training vanish with"
            f" {printable(name)}, which the prompt shows, scrubbed."
        ),
    )


def _outcomes(log: Rollouts) -> dict[str, list[tuple[float, ...]]]:
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in log.rows("task", "outcome", "end"):
        if row["outcome"] is not None and row["end"] != "errored":
            found.setdefault(row["task"], []).append((row["outcome"],))
    return found


def _win_rates(outcomes: Mapping[str, Sequence[tuple[float, ...]]], win: float) -> dict[str, float]:
    return {
        task: mean([float(outcome >= win) for (outcome,) in rows])
        for task, rows in outcomes.items()
    }


def channel_attempts(reading: Reading, channel: Channel) -> Evidence:
    """Share of the runs after training that try the channel. Raises `MissingInput` without runs."""
    after = _share(reading.afters, channel, ("attempted",), None, reading.config.level)
    before = _share_before(reading, channel, ("attempted",), None)
    return reading.evidence(
        ATTEMPTS,
        about=channel.name,
        estimate=after.estimate,
        unit="share of runs",
        interval=after.interval,
        n=int(after.n),
        clusters=after.clusters,
        control=control_of(before),
        summary=capital(percent(after.estimate))
        + f" of the runs after training try {printable(channel.name)}{_beside(before)}.",
    )


def _beside(before: Estimate | None) -> str:
    return f" ({percent(before.estimate)} before)" if before else ""


def _share(
    logs: Sequence[Log], channel: Channel, parts: tuple[str, ...], whole: str | None, level: float
) -> Estimate:
    """Runs with any of the links `parts` among those with the link `whole`
    (`None`: among all runs).

    Clustered by task; training seeds are pooled.
    """
    names = [link_column(channel.name, link) for link in (*parts, whole) if link]
    counts: dict[str, Floats] = {}
    for log in logs:
        for task, rows in log.by_task(*names).items():
            among = [row for row in rows if row[-1] == 1] if whole else rows
            hits = sum(1.0 in row[: len(parts)] for row in among)
            counts[task] = counts.get(task, np.zeros(2)) + np.array([hits, len(among)])
    if not any(total for _, total in counts.values()):
        raise MissingInput("There is no scored win.", "Give logs with outcomes, or more runs.")
    table = np.array([counts[task] for task in sorted(counts)])
    return clustered_share(table[:, 0], table[:, 1], level=level)


def _share_before(
    reading: Reading, channel: Channel, parts: tuple[str, ...], whole: str | None
) -> Estimate | None:
    """The same share for the policy before training, `None` where it cannot be had."""
    try:
        return _share([reading.compared()], channel, parts, whole, reading.config.level)
    except MissingInput:
        return None


def control_of(before: Estimate | None) -> Control | None:
    """The policy before training as the control of a share."""
    if before is None:
        return None
    return Control(
        name="the policy before training", estimate=before.estimate, interval=before.interval
    )


def _wins_untold(logs: Sequence[Log], channel: Channel) -> int:
    names = [link_column(channel.name, link) for link in ("cannot be told", "credited")]
    return sum(
        row == (1.0, 1.0) for log in logs for rows in log.by_task(*names).values() for row in rows
    )


def _diagnostics(reading: Reading, channel: Channel, untold: int) -> dict[str, Scalar]:
    """Counts of runs after training, the first example, and each training seed's own share."""
    counts: dict[str, Scalar] = {
        link: sum(log.count(link_column(channel.name, link)) for log in reading.afters)
        for link in LINKS
    }
    example = next(
        (example for log in reading.afters for example in log.examples[channel.name]), None
    )
    seeds: dict[str, Scalar] = {}
    if len(reading.afters) > 1:
        for number, log in enumerate(reading.afters):
            complete, won = (
                log.count(link_column(channel.name, link)) for link in ("complete", "credited")
            )
            seeds[f"share of wins, after-{number}"] = complete / won if won else None
    return {
        "family": channel.family,
        "runs": sum(len(log.tasks) for log in reading.afters),
        **counts,
        "wins that cannot be told": untold,
        "example_trajectory": example.trajectory if example else None,
        "example_step": example.step if example else None,
        **seeds,
    }


def _spans(reading: Reading, channel: Channel) -> tuple[Artifact, ...]:
    examples = [example.spans for log in reading.afters for example in log.examples[channel.name]]
    return tuple(examples[: reading.config.examples])


def _links(reading: Reading, channel: Channel) -> Figure:
    """How many runs reach each link, before and after."""
    sides = {"before": [reading.before] if reading.before else [], "after": list(reading.afters)}
    return Figure(
        title=f"Runs that reach each link of the chain for {printable(channel.name)}",
        form="bars",
        x_label="link",
        y_label="share of runs",
        series=tuple(
            _reached(name, logs, channel)
            for name, logs in sides.items()
            if any(log.tasks for log in logs)
        ),
    )


def _reached(name: str, logs: Sequence[Log], channel: Channel) -> Series:
    runs = sum(len(log.tasks) for log in logs)
    links = ("attempted", "obtained", "used", "complete")
    shares = tuple(
        sum(log.count(link_column(channel.name, link)) for log in logs) / runs for link in links
    )
    return Series(name=name, x=(*links[:-1], "all links, a win"), y=shares)
