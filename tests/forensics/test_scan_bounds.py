"""Bounds from logs: hand-computed tables, simulations whose truth is known, and
nothing where nothing changed.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from forensics.errors import MissingInput
from forensics.layers.bounds import ScoredRun, bound_answers, scored_side
from forensics.records import Provenance

PROVENANCE = Provenance(instrument="test")


def side(rows):
    """A side of `(task, outcome, attempted, credited)`."""
    return scored_side(
        ScoredRun(id=f"{n:05d}", task=task, outcome=outcome, attempted=tried, credited=credited)
        for n, (task, outcome, tried, credited) in enumerate(rows)
    )


def answers(before, *afters):
    return {e.question: e for e in bound_answers(before, afters, PROVENANCE)}


def test_bounds_by_hand():
    """Before: 2 of 4 runs won, none by a shortcut. After: 4 of 4, two credited,
    one more attempted.
    """
    before = side(
        [
            ("a", 1, False, False),
            ("a", 0, False, False),
            ("b", 1, False, False),
            ("b", 0, False, False),
        ]
    )
    after = side(
        [("a", 1, True, True), ("a", 1, False, False), ("b", 1, True, True), ("b", 1, True, False)]
    )
    found = answers(before, after)
    assert found["gain.total"].estimate == pytest.approx(0.5)
    # assumed: each of two credited wins becomes 0.5, so after is (0.5 + 1 + 0.5 + 1) / 4 = 0.75
    assert found["gain.genuine_assumed"].estimate == pytest.approx(0.25)
    assert found["gain.phantom_assumed"].estimate == pytest.approx(0.25)
    # inner: after without the credited is 2 of 4; outer: 1 of 4. Before has no
    # shortcut, so the upper end is the gain
    assert (
        found["gain.genuine_inner"].interval.low <= 0.5 - 0.5
        and found["gain.genuine_inner"].interval.high >= 0.5
    )
    assert found["gain.genuine"].interval.low <= 0.25 - 0.5 < found["gain.genuine"].interval.high
    assert found["gain.phantom"].interval.high >= 0.75 and found["gain.phantom"].interval.low <= 0


def test_runs_without_a_score_might_have_been_lost_or_won() -> None:
    rows = [(task, won, False, False) for task in map(str, range(300)) for won in (1, 1, 1, 0)]
    before, after = side(rows), side(rows)
    plain, found = answers(before, after), answers(before, replace(after, dropped=300))
    assert found["gain.total"].diagnostics["lost_after"] == 0.2
    for question in ("score.after", "gain.total", "gain.genuine", "gain.genuine_assumed"):
        one, other = plain[question].interval, found[question].interval
        assert one.low - other.low == pytest.approx(0.2 * 0.75)
        assert other.high - min(one.high + 0.2 * 0.25, 1.0) == pytest.approx(0)
    assert plain["score.before"].interval == found["score.before"].interval


def test_a_win_that_cannot_be_told_is_genuine_in_no_central_estimate() -> None:
    """As by hand above, but one of the two credited wins cannot be told."""
    rows = [("a", 1, False), ("a", 0, False), ("b", 1, False), ("b", 0, False)]
    before = side([(task, won, tried, False) for task, won, tried in rows])
    after = scored_side(
        ScoredRun(
            id=str(n), task=task, outcome=1.0, attempted=n < 2, credited=n == 0, untold=n == 1
        )
        for n, task in enumerate("abab")
    )
    found = answers(before, after)
    genuine, phantom = found["gain.genuine_assumed"], found["gain.phantom_assumed"]
    assert genuine.estimate == pytest.approx(0.25)  # both become 0.5
    assert phantom.estimate == pytest.approx(0.125)  # only the credited one does
    assert genuine.interval.high >= 0.375 and phantom.interval.high >= 0.25


row = st.tuples(
    st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans(), st.booleans()
)
rows = st.lists(row, min_size=0, max_size=12).map(
    lambda r: [*r, ("a", 1.0, False, False), ("b", 0.0, False, False)]
)


def simulate(generator, tasks, skill, shortcut, side_name):
    """Logs of a policy that wins a run by skill, else takes a shortcut; the
    scrubbed twin wins by skill alone.
    """
    logs, clean = [], []
    for task, p in zip(tasks, skill, strict=True):
        able = generator.random() < p
        cheats = generator.random() < shortcut
        logs.append(
            ScoredRun(
                id=f"{side_name}{task}",
                task=task,
                outcome=float(able or cheats),
                attempted=cheats,
                credited=cheats,
            )
        )
        clean.append(p)
    return scored_side(logs), float(np.mean(clean))


def test_the_bounds_contain_the_true_genuine_gain():
    """400 planted pairs with known truth: the bounds hold at their level (95 %:
    misses over 5.7 sd never by chance).
    """
    generator = np.random.default_rng(5)
    covered = tight = 0
    for _ in range(400):
        tasks = [f"{n}" for n in range(60)]
        base = generator.uniform(0, 0.6, size=60)
        rise = generator.uniform(0, 0.3)
        before, clean_before = simulate(generator, tasks, base, generator.uniform(0, 0.3), "b")
        after, clean_after = simulate(generator, tasks, base + rise, generator.uniform(0, 0.8), "a")
        interval = answers(before, after)["gain.genuine"].interval
        covered += interval.contains(clean_after - clean_before)
        tight += interval.high - interval.low < 1.5
    assert covered >= 0.93 * 400
    assert tight > 300, "bounds as wide as the scale would contain anything"


def test_a_log_against_its_twin_is_silent():
    """A/A at 95 %: of 300 pairs from one policy at most 5 % + 3.5 sd have a
    gain, or a genuine part under the assumption, apart from zero.
    """
    generator = np.random.default_rng(7)
    alarms = {"gain.total": 0, "gain.genuine_assumed": 0}
    for _ in range(300):
        tasks, skill = [f"{n}" for n in range(80)], generator.uniform(0, 1, size=80)
        first, second = (simulate(generator, tasks, skill, 0.3, name)[0] for name in "ab")
        found = answers(first, second)
        for question in alarms:
            alarms[question] += not found[question].interval.contains(0)
    assert max(alarms.values()) <= 300 * 0.05 + 3.5 * (300 * 0.05 * 0.95) ** 0.5


def test_what_cannot_be_compared_is_said():
    with pytest.raises(MissingInput, match="share no task"):
        answers(side([("a", 1, False, False)]), side([("b", 1, False, False)]))
    with pytest.raises(MissingInput, match="outside 0 to 1"):
        side([("a", 7.0, False, False)])
