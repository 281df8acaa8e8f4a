"""How the shape of runs changed: turns, length, degeneracy."""

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np

from forensics.layers.change import Change
from forensics.layers.degeneracy import MEASURES
from forensics.layers.run_columns import Answers, Reading
from forensics.records import Control, Evidence, Figure, Series

CHANCE = "signs of the task differences flipped at random"


def turns(reading: Reading) -> Evidence:
    """Change of mean turns."""
    found = reading.change("turns")
    return _changed(
        reading, "behaviour.turns", found, "turns", "Mean turns", (_turns_figure(reading),)
    )


def length(reading: Reading) -> Evidence:
    """Change of mean sampled tokens. Raises `MissingInput` where the logs do not mark them."""
    return _changed(
        reading,
        "behaviour.length",
        reading.change("tokens"),
        "sampled tokens",
        "Sampled tokens a run",
    )


def degeneracy_answers(reading: Reading) -> Answers:
    """The change of each degeneracy measure."""
    for name in MEASURES:
        yield reading.answer("behaviour.degeneracy", partial(_degeneracy, reading, name), name)


def _degeneracy(reading: Reading, name: str) -> Evidence:
    unit = "bytes per compressed byte" if name == "compression ratio" else "share of a run"
    return _changed(
        reading,
        "behaviour.degeneracy",
        reading.change(name),
        unit,
        f"Degeneracy ({name})",
        about=name,
        decimals=3,
    )


def _changed(
    reading: Reading,
    question: str,
    found: Change,
    unit: str,
    subject: str,
    artifacts: tuple[Figure, ...] = (),
    about: str | None = None,
    decimals: int = 1,
) -> Evidence:
    return reading.evidence(
        question,
        about=about,
        estimate=found.estimate,
        unit=unit,
        interval=found.interval,
        n=reading.runs,
        clusters=found.tasks,
        control=Control(name=CHANCE, estimate=0.0, p_value=found.p_value),
        artifacts=artifacts,
        diagnostics={"before": found.before, "after": found.after},
        summary=(
            f"{subject} changed by {found.estimate:+.{decimals}f}, from {found.before:.{decimals}f}"
            f" to {found.after:.{decimals}f}."
        ),
    )


def _turns_figure(reading: Reading) -> Figure:
    """Share of runs by how many turns they took."""
    sides = {"before": [reading.compared()], "after": list(reading.afters)}
    counts = {
        name: Counter(int(n) for log in logs for n in log.columns["turns"])
        for name, logs in sides.items()
    }
    longest = max(max(count) for count in counts.values())
    labels = tuple(float(n) for n in range(longest + 1)) if longest <= 100 else None
    series = tuple(_histogram(name, count, labels, longest) for name, count in counts.items())
    return Figure(
        title="Turns of a run", form="bars", x_label="turns", y_label="share of runs", series=series
    )


def _histogram(
    name: str, count: Counter[int], labels: tuple[float, ...] | None, longest: int
) -> Series:
    """Shares for each number of turns, in tenths of the longest run where there
    are too many numbers.
    """
    runs = count.total()
    if labels is not None:
        return Series(name=name, x=labels, y=tuple(count[int(n)] / runs for n in labels))
    edges = np.linspace(0, longest, 11)
    tenths = np.histogram(list(count.elements()), bins=edges)[0] / runs
    names = tuple(f"{low:.0f}-{high:.0f}" for low, high in pairwise(edges))
    return Series(name=name, x=names, y=tuple(tenths.tolist()))
