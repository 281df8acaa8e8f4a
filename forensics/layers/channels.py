"""How much of the score was made through each shortcut: attempts, links and
credited wins, before and after.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from forensics.errors import MissingInput
from forensics.layers.run_columns import Answers, Reading, change
from forensics.layers.survey import has_side
from forensics.layers.tally import LINKS, PROMPTED, Log, link_column, mean
from forensics.phrases import capital, percent, plural, printable
from forensics.protocols import Channel
from forensics.records import Control, Evidence, Figure, Interval, Series
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, share_by_task

WINS, ATTEMPTS = "behaviour.channel_wins", "behaviour.channel_attempts"
MOST_UNTOLD = 0.05  # of the wins; beyond it a share of zero would be a missing value in disguise


def channel_answers(reading: Reading) -> Answers:
    """Both questions for every channel."""
    if not reading.survey.channels:
        missing = MissingInput(
            "Neither an environment nor a mark in the logs names a shortcut.",
            "Give an environment that declares its channels with `--env`.",
        )
        yield from (reading.answers.undefined(question, missing) for question in (WINS, ATTEMPTS))
    for channel in reading.survey.channels:
        for question, measure in ((WINS, channel_wins), (ATTEMPTS, channel_attempts)):
            yield reading.answers.answer(question, partial(measure, reading, channel), channel.name)


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
        return vanishing_wins(reading, channel)
    level = reading.config.level
    names = [link_column(channel.name, link) for link in ("cannot be told", "credited")]
    untold = sum(
        row == (1.0, 1.0)
        for log in reading.afters
        for rows in log.by_task(*names).values()
        for row in rows
    )
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
    examples = [one for log in reading.afters for one in log.examples.get(channel.name, ())]
    return reading.answers.evidence(
        WINS,
        replace(after, high=max(after.high, most.high)),
        about=channel.name,
        unit="share of wins",
        control=control_of(before),
        diagnostics={
            "family": channel.family,
            "runs": sum(len(log.tasks) for log in reading.afters),
            **{
                link: sum(log.count(link_column(channel.name, link)) for log in reading.afters)
                for link in LINKS
            },
            "wins that cannot be told": untold,
            "example_trajectory": examples[0].spans.trajectory if examples else None,
            "example_step": examples[0].step if examples else None,
            **_seed_shares(reading.afters, channel),
        },
        artifacts=(
            *(one.spans for one in examples[: reading.config.examples]),
            _links(reading, channel),
        ),
        summary=capital(
            f"{'at least ' if most.estimate > after.estimate else ''}{percent(after.estimate)}"
            " of the"
        )
        + f" wins after training run through {printable(channel.name)}{beside(before)}.",
    )


def vanishing_wins(reading: Reading, channel: Channel) -> Evidence:
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
    wins = [
        _win_rates(
            (
                (task, outcome)
                for task, rows in log.by_task("outcome").items()
                for (outcome,) in rows
            ),
            reading.config.win,
        )
        for log in reading.afters
    ]
    left = [
        _win_rates(
            (
                (row["task"], row["outcome"])
                for row in reading.case.rollouts(side, without=(name,)).rows(
                    "task", "outcome", "end"
                )
                if row["outcome"] is not None and row["end"] != "errored"
            ),
            reading.config.win,
        )
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

    share, low, high = (
        min(max(points / everything, 0.0), 1.0) for points in (lost.estimate, lost.low, lost.high)
    )
    return reading.answers.evidence(
        WINS,
        share,
        about=name,
        unit="share of wins",
        interval=Interval(low=low, high=high, level=level),
        n=reading.runs,
        clusters=lost.clusters,
        diagnostics={"family": channel.family, "by": "scrubbing"},
        summary=(
            f"{capital(percent(share))} of the wins after training vanish with"
            f" {printable(name)}, which the prompt shows, scrubbed."
        ),
    )


def _win_rates(outcomes: Iterable[tuple[str, float]], win: float) -> dict[str, float]:
    """The share of wins by task, from `(task, outcome)` of each run."""
    won: dict[str, list[float]] = {}
    for task, outcome in outcomes:
        won.setdefault(task, []).append(float(outcome >= win))
    return {task: mean(values) for task, values in won.items()}


def channel_attempts(reading: Reading, channel: Channel) -> Evidence:
    """Share of the runs after training that try the channel. Raises `MissingInput` without runs."""
    after = _share(reading.afters, channel, ("attempted",), None, reading.config.level)
    before = _share_before(reading, channel, ("attempted",), None)
    return reading.answers.evidence(
        ATTEMPTS,
        after,
        about=channel.name,
        unit="share of runs",
        control=control_of(before),
        summary=capital(percent(after.estimate))
        + f" of the runs after training try {printable(channel.name)}{beside(before)}.",
    )


def beside(before: Estimate | None) -> str:
    """The same of the policy before training, in brackets."""
    return f" ({percent(before.estimate)} before)" if before else ""


def _share(
    logs: Sequence[Log], channel: Channel, parts: tuple[str, ...], whole: str | None, level: float
) -> Estimate:
    """Runs with any of the links `parts` among those with the link `whole`
    (`None`: among all runs).

    Clustered by task; training seeds are pooled.
    """
    names = [link_column(channel.name, link) for link in (*parts, whole) if link]
    hits = [
        (task, 1.0 in row[: len(parts)], 1)
        for log in logs
        for task, rows in log.by_task(*names).items()
        for row in rows
        if whole is None or row[-1] == 1
    ]
    if not hits:
        raise MissingInput("There is no scored win.", "Give logs with outcomes, or more runs.")
    return share_by_task(hits, level=level)


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


def _seed_shares(logs: Sequence[Log], channel: Channel) -> dict[str, Scalar]:
    """Each training seed's own share of wins, where there are several."""
    shares: dict[str, Scalar] = {}
    for number, log in enumerate(logs if len(logs) > 1 else ()):
        complete, won = (
            log.count(link_column(channel.name, link)) for link in ("complete", "credited")
        )
        shares[f"share of wins, after-{number}"] = complete / won if won else None
    return shares


def _links(reading: Reading, channel: Channel) -> Figure:
    """How many runs reach each link, before and after."""
    links = ("attempted", "obtained", "used", "complete")
    sides = {"before": [reading.before] if reading.before else [], "after": list(reading.afters)}
    series = []
    for name, logs in sides.items():
        if runs := sum(len(log.tasks) for log in logs):
            counts = (
                sum(log.count(link_column(channel.name, link)) for log in logs) for link in links
            )
            x = (*links[:-1], "all links, a win")
            series.append(Series(name=name, x=x, y=tuple(count / runs for count in counts)))
    return Figure(
        title=f"Runs that reach each link of the chain for {printable(channel.name)}",
        form="bars",
        x_label="link",
        y_label="share of runs",
        series=tuple(series),
    )
