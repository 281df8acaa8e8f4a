"""What is counted of a run, and differences between conditions: by hand, and at their two ends."""

import numpy as np
import pytest

from crosscoders.steering.evaluation import from_plain, joined, moved, outcomes_of
from forensics.errors import UserError
from forensics.protocols import Channel
from forensics.records import Step, Trajectory
from forensics.statistics import Estimate
from tests.episodes import episode_of

CHANNELS = (
    Channel(name="leak", family="disclosure", attempts=("history",), description="x"),
    Channel(name="notes", family="disclosure", attempts=("open-notes",), description="x"),
)


def run(
    task: str, *kinds: str, outcome: float | None = 1.0, end: str = "terminated", shows: str = ""
) -> Trajectory:
    steps = [Step(role="user", text="do")]
    for kind in kinds:
        steps += [
            Step(role="assistant", text=kind, kinds=(kind,)),
            Step(role="tool", text="", channels=()),
        ]
    if shows:
        steps[-1] = Step(role="tool", text="", channels=(shows,))
    return episode_of(id=task, task=task, steps=tuple(steps), outcome=outcome, end=end)


def test_measures_by_hand() -> None:
    runs = [
        run("a", "history", "submit"),
        run("a", "open", "test", "submit", outcome=0.0),
        run("b", "open", "submit", outcome=0.0, end="truncated", shows="notes"),
        run("c", outcome=None, end="errored"),
    ]
    found = outcomes_of(runs, ("a", "b", "c"), CHANNELS)
    assert found.runs == 4
    wanted = {
        "success": [0.5, 0.0, np.nan],
        "turns": [2.5, 2.0, np.nan],
        "handed-in": [1.0, 0.0, np.nan],
        "channel:leak": [0.5, 0.0, np.nan],
        "channel:notes": [0.0, 1.0, np.nan],
        "kind:history": [0.5, 0.0, np.nan],
        "kind:open": [0.5, 1.0, np.nan],
        "kind:test": [0.5, 0.0, np.nan],
        "kind:submit": [1.0, 1.0, np.nan],
    }
    assert set(found.measures) == set(wanted)
    for name, values in wanted.items():
        assert np.array_equal(found.of(name), values, equal_nan=True), name
    assert found.of("kind:never").tolist() == [0, 0, 0]
    with pytest.raises(UserError, match="there is no measure 'turn'"):
        found.of("turn")
    again = from_plain(found.plain())
    assert again.plain() == found.plain() and again.tasks == found.tasks
    both = joined([found, found])
    assert both.runs == 8 and len(both.tasks) == 6 and np.isnan(both.of("success")[5])


def test_the_way_to_the_other_model_at_its_ends() -> None:
    rng = np.random.default_rng(0)
    base, goal = rng.uniform(0.7, 1, 40), rng.uniform(0, 0.3, 40)
    all_the_way, nowhere, half = (
        moved(values, base, goal) for values in (goal, base, (base + goal) / 2)
    )
    assert (
        isinstance(all_the_way, Estimate)
        and isinstance(nowhere, Estimate)
        and isinstance(half, Estimate)
    )
    assert (all_the_way.estimate, nowhere.estimate) == (pytest.approx(1.0), pytest.approx(0.0))
    assert half.estimate == pytest.approx(0.5) and half.low < 0.5 < half.high
    assert isinstance(moved(goal, base, base), str), "two models that agree leave no way to go"
