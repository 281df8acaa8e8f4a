"""What it costs to bring an interval down to a width: more tasks, more training
seeds. And how such a number is told.
"""

from math import ceil, floor, inf, log10, sqrt

from forensics.phrases import plural, point_range, points
from forensics.records import Evidence
from forensics.statistics import t_quantile

OUT_OF_REACH = 100  # times the tasks at hand
MOST_SEEDS = 30
USUAL_TASKS = 300  # up to which a family that plays on fewer tasks plays on no more of them


def grown(tasks: int, of_case: int) -> int:
    """On how many tasks a family plays that plays on so many of `USUAL_TASKS`: of
    more tasks the same share, so that more of them make its interval narrower too.
    """
    return max(tasks, tasks * of_case // USUAL_TASKS)


def cost(evidence: Evidence, target: float, of_case: int = 0) -> str:
    """What brings the half-width down to `target`: tasks with one seed, seeds
    as well with several. `of_case`: the tasks of the case, where the evidence may
    rest on fewer.

    The part over tasks shrinks with the root of their number; the training part
    with the root of the number of seeds and with the t quantile of their
    degrees of freedom.
    """
    interval, told = evidence.interval, evidence.diagnostics
    deviation, count = told.get("seed_deviation"), told.get("seeds")
    if interval is None or target <= 0:
        return "cannot be said from what was measured"
    lost = (told.get("lost_before"), told.get("lost_after"))
    if sum(share for share in lost if isinstance(share, float)) / 2 >= target:
        return "no number of tasks would do: too many runs have no score"
    width, level = interval.half_width, interval.level
    if not isinstance(deviation, float) or not isinstance(count, int):
        return _more_tasks(evidence.clusters, (width / target) ** 2, of_case)
    half_widths = {
        seeds: t_quantile(level, seeds - 1) * deviation / sqrt(seeds)
        for seeds in {count, *range(2, MOST_SEEDS + 1)}
    }
    by_tasks = max(width**2 - half_widths[count] ** 2, 0.0)
    room = target**2 - by_tasks if by_tasks < target**2 / 2 else target**2 / 2
    needed = next((s for s in range(2, MOST_SEEDS + 1) if half_widths[s] <= sqrt(room)), None)
    wanted = []
    if needed is None:
        wanted.append(
            f"more than {MOST_SEEDS} training seeds: the runs of this recipe differ too much"
        )
    elif needed > count:
        wanted.append(f"about {plural(needed - count, 'more training seed')}")
    if by_tasks > target**2 / 2:
        wanted.append(_more_tasks(evidence.clusters, by_tasks / (target**2 / 2), of_case))
    return " and ".join(wanted) or "about 1 more training seed"


def _more_tasks(tasks: int, factor: float, of_case: int) -> str:
    at_hand = max(tasks, of_case)
    if factor > OUT_OF_REACH:
        return (
            f"more than {OUT_OF_REACH} times the {plural(at_hand, 'task')} at hand: too close to"
            " tell apart"
        )
    number = factor * (max(at_hand, USUAL_TASKS) if tasks < at_hand else at_hand)  # see `grown`
    unit = int(10 ** max(floor(log10(max(number, 1))) - 1, 0))
    needed = ceil(number / unit) * unit  # two significant digits, upwards
    return f"about {plural(max(needed - at_hand, 1), 'more task')} ({needed:,} in all)"


def widths_to(evidence: Evidence, target: float) -> float:
    """How many times too wide an interval is for a target; infinite where none would do."""
    if evidence.interval is None or target <= 0:
        return inf
    return evidence.interval.half_width / target


def more_runs(evidence: Evidence) -> str:
    """What would make an interval narrower."""
    return (
        "More held-out tasks."
        if evidence.diagnostics.get("seeds") in (None, 1)
        else "More training seeds or tasks."
    )


def in_points(evidence: Evidence) -> str:
    """A number in points with its interval, which it must have."""
    assert evidence.interval is not None
    span = point_range(evidence.interval.low, evidence.interval.high, 1)
    return f"{points(evidence.estimate, 1)} points ({span})"
