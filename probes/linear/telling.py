"""A measured probe as a sentence, a table and a picture."""

from collections.abc import Mapping

from forensics.records import Figure, Series, Table
from forensics.records.evidence import Scalar
from forensics.wording import plural, printable
from probes.linear.evaluating import Evaluation
from probes.linear.measuring import Measured
from probes.linear.ranking import Estimate


def summary(about: str | None, measured: Measured) -> str:
    """What was found beside what the text tells. `about`: the shortcut, `None` for success."""
    found, best = measured.found, measured.best_text
    what = "a run's success" if about is None else f"a step that tries {printable(about)}"
    row = found.baselines[best]
    if row.advantage.low > 0:
        beside = f"more than the text tells ({best}: {row.auroc.estimate:.2f})"
    elif row.advantage.high < 0:
        beside = f"less than the text tells ({best}: {row.auroc.estimate:.2f})"
    else:
        beside = f"which is not told apart from what the text tells ({best}: {row.auroc.estimate:.2f})"
    return (f"Activations before the action announce {what} with an AUROC of {found.auroc.estimate:.2f} "
            f"({found.auroc.low:.2f} to {found.auroc.high:.2f}) on {plural(found.tasks, 'held-out task')}, {beside}.")


def table(measured: Measured) -> Table:
    """Every reading with its interval, the text baselines with the probe's lead over them."""
    found, plain, moved = measured.found, measured.plain, measured.moved
    rows: list[tuple[Scalar, ...]] = [
        ("logistic probe, site chosen inside", *_ends(found.auroc), None, None, None),
        ("difference of means, site chosen inside", *_ends(plain.auroc), None, None, None),
        *((f"logistic probe at {site}", *_ends(one), None, None, None) for site, one in found.by_site.items()),
        *((name, *_ends(one.auroc), *_ends(one.advantage)) for name, one in found.baselines.items()),
    ]
    if dealt := sorted(found.shuffled):
        rows.append((f"labels shuffled by task, {plural(len(dealt), 'time')}: mean, least, most",
                     sum(dealt) / len(dealt), dealt[0], dealt[-1], None, None, None))
    if moved is not None:
        rows.append(("logistic probe fitted before training", *_ends(moved.auroc), None, None, None))
    columns = ("reading", "AUROC", "low", "high", "probe minus this", "low", "high")
    return Table(title="What announces it, on held-out tasks", columns=columns, rows=tuple(rows))


def figure(found: Evaluation) -> Figure:
    """The probe, the text and shuffled labels side by side."""
    readings: Mapping[str, Estimate] = {"probe": found.auroc} | {
        name: one.auroc for name, one in found.baselines.items()}
    ends = list(readings.values())
    shuffles = sorted(found.shuffled)
    return Figure(
        title="The probe, the text and shuffled labels", form="points", y_label="AUROC on held-out tasks",
        series=(
            Series(name="readings", x=tuple(readings), y=tuple(one.estimate for one in ends),
                   low=tuple(one.low for one in ends), high=tuple(one.high for one in ends)),
            Series(name="shuffled labels", x=("shuffled labels",) * len(shuffles), y=tuple(shuffles)),
        ),
    )


def _ends(one: Estimate) -> tuple[float, float, float]:
    return one.estimate, one.low, one.high
