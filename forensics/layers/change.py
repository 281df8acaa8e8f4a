"""How a number of a run changed from before to after: paired by task, crossed
with training seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import MissingInput
from forensics.records import Interval
from forensics.statistics import estimate_contrast, sign_flip_test


@dataclass(frozen=True, kw_only=True)
class Change:
    """`after - before` of a task mean, with its interval and a sign-flip p-value over tasks."""

    before: float
    after: float
    estimate: float
    interval: Interval
    p_value: float
    tasks: int


def change(
    before: Mapping[str, float],
    afters: Sequence[Mapping[str, float]],
    generator: np.random.Generator,
    level: float,
) -> Change:
    """The change of task means `{task: value}` over the tasks that every side
    has; any unit.

    The sides' values are brought to [0, 1] by their own range for the interval,
    which needs a bounded range. Raises `MissingInput` with fewer than two
    common tasks.
    """
    tasks = sorted(set(before).intersection(*afters)) if afters else []
    if len(tasks) < 2:
        raise MissingInput(
            f"It is known for {len(tasks)} task{'' if len(tasks) == 1 else 's'} of both sides,"
            " which gives no spread.",
            "Give logs of at least two common tasks that record it on both sides.",
        )
    table = np.array(
        [[[before[task] for task in tasks], [after[task] for task in tasks]] for after in afters]
    )
    floor, reach = float(table.min()), float(np.ptp(table)) or 1.0
    contrast = estimate_contrast((table - floor) / reach, np.array([-1.0, 1.0]), level=level)
    differences = (table[:, 1] - table[:, 0]).mean(axis=0)
    return Change(
        before=float(table[:, 0].mean()),
        after=float(table[:, 1].mean()),
        estimate=contrast.estimate * reach,
        interval=Interval(low=contrast.low * reach, high=contrast.high * reach, level=level),
        p_value=sign_flip_test(differences, generator),
        tasks=len(tasks),
    )
