"""What it costs to bring an interval down to a width: more tasks, more training seeds."""

from math import ceil, floor, log10, sqrt

from forensics.phrases import plural
from forensics.records import Evidence
from forensics.statistics import t_quantile

OUT_OF_REACH = 100  # times the tasks at hand
MOST_SEEDS = 30


def cost(evidence: Evidence, target: float) -> str:
    """What brings the half-width down to `target`: tasks with one seed, seeds
    as well with several.

    The part over tasks shrinks with the root of their number; the training part
    with the root of the number of seeds and with the t quantile of their
    degrees of freedom.
    """
    width = evidence.interval.half_width if evidence.interval else None
    deviation, count = evidence.diagnostics.get("seed_deviation"), evidence.diagnostics.get("seeds")
    if width is None or target <= 0:
        return "cannot be said from what was measured"
    if not isinstance(deviation, float) or not isinstance(count, int):
        return _more_tasks(evidence.clusters, (width / target) ** 2)
    level = evidence.interval.level if evidence.interval else 0.95
    training = t_quantile(level, count - 1) * deviation / sqrt(count)
    by_tasks = max(width**2 - training**2, 0.0)
    room = target**2 - by_tasks if by_tasks < target**2 / 2 else target**2 / 2
    needed = _seeds_for(deviation, sqrt(room), level)
    wanted = [] if needed is not None and needed <= count else [_more_seeds(needed, count)]
    if by_tasks > target**2 / 2:
        wanted.append(_more_tasks(evidence.clusters, by_tasks / (target**2 / 2)))
    return " and ".join(wanted) or "about 1 more training seed"


def _seeds_for(deviation: float, target: float, level: float) -> int | None:
    """The fewest seeds whose t interval is at most `target` to either side."""
    return next(
        (
            s
            for s in range(2, MOST_SEEDS + 1)
            if t_quantile(level, s - 1) * deviation / sqrt(s) <= target
        ),
        None,
    )


def _more_seeds(needed: int | None, count: int) -> str:
    if needed is None:
        return f"more than {MOST_SEEDS} training seeds: the runs of this recipe differ too much"
    return f"about {plural(needed - count, 'more training seed')}"


def _more_tasks(tasks: int, factor: float) -> str:
    if factor > OUT_OF_REACH:
        return (
            f"more than {OUT_OF_REACH} times the {plural(tasks, 'task')} at hand: too close to tell"
            " apart"
        )
    needed = _rounded_up(tasks * factor)
    return f"about {plural(max(needed - tasks, 1), 'more task')} ({needed:,} in all)"


def _rounded_up(number: float) -> int:
    """To two significant digits, upwards."""
    unit = int(10 ** max(floor(log10(max(number, 1))) - 1, 0))
    return ceil(number / unit) * unit
