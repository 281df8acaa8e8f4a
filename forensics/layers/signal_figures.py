"""What the signal layer shows: each measure step by step, with the alert lines
of the field drawn in.
"""

from collections.abc import Sequence

import numpy as np

from forensics.layers.signal_alerts import AlertLine
from forensics.layers.training_columns import StepNumbers
from forensics.records import Figure, Series

MOST_POINTS = 200


def series_figure(
    measure: str, unit: str, steps: Sequence[StepNumbers], lines: Sequence[AlertLine]
) -> Figure:
    """Means over the tasks of each step (of blocks of steps where there are
    very many), and the lines.
    """
    blocks = np.array_split(np.arange(len(steps)), min(len(steps), MOST_POINTS))
    x = tuple(float(steps[block[0]].step) for block in blocks)
    y = tuple(_mean([steps[i].mean(measure) for i in block]) for block in blocks)
    drawn = [Series(name=line.words, x=(x[0], x[-1]), y=(line.value, line.value)) for line in lines]
    return Figure(
        title=f"{measure[0].upper()}{measure[1:]} by training step",
        form="lines",
        x_label="training step",
        y_label=unit,
        series=(Series(name=measure, x=x, y=y), *drawn),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
