"""The score layer on real files and on runs with planted rates."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from forensics.case import Rollouts
from forensics.instruments import run_instrument
from forensics.layers.decomposition import AFTER, OPEN, Runs, World, gain, paired, read_runs
from forensics.layers.score import QUESTIONS, WorldRuns, score, worlds_between
from forensics.records import Evidence, Undefined
from forensics.records.tables import read_trajectories, write_trajectories
from tests.forensics.score_world import (
    LEAK,
    Logs,
    answers,
    drawn,
    planted,
    reading_of,
    runs_of,
    stored_case,
)

WIN, LOSS = (1.0, "terminated"), (0.0, "terminated")
CUT, LOST, ERRORED = (0.0, "truncated"), (None, "terminated"), (0.0, "errored")
SMALL: Logs = {  # three tasks, two runs each
    ("before", OPEN): {"a": [WIN, LOSS], "b": [LOSS, LOSS], "c": [LOSS, LOSS]},
    ("after-0", OPEN): {"a": [WIN, WIN], "b": [WIN, WIN], "c": [WIN, LOSS]},
    ("before", LEAK): {"a": [WIN, LOSS], "b": [WIN, LOSS], "c": [LOSS, LOSS]},
    ("after-0", LEAK): {"a": [CUT, WIN], "b": [CUT, CUT], "c": [LOSS, WIN]},
}


def measured(case_logs: Logs, folder: Path, *channels: str) -> dict[str, Evidence | Undefined]:
    case = stored_case(folder, case_logs, *channels)
    return {
        f"{f.question}{f':{f.about}' if f.about else ''}": f for f in run_instrument(score, case)
    }


def number(found: Evidence | Undefined) -> float:
    assert isinstance(found, Evidence), found
    return found.estimate


# --- closed forms on files ------------------------------------------------------------


def test_every_quantity_by_hand(tmp_path: Path) -> None:
    # Open: before (1/2, 0, 0) = 1/6, after (1, 1, 1/2) = 5/6. Scrubbed: before (1/2,
    # 1/2, 0) = 1/3, after (1/2, 0, 1/2) = 1/3. So G = 2/3, G0 = 0, P = 2/3. Breakage:
    # after unfinished (1/2, 1, 0), before none: 1/2. Imputed at the before rate of the
    # same task: (1/2 + 1/4, 0 + 1/2, 1/2) = 7/12, so G0 = 7/12 - 1/3 = 1/4 and P = 2/3
    # - 1/4 = 5/12.
    found = measured(SMALL, tmp_path, *LEAK)
    expected = {
        "score.before": 1 / 6,
        "score.after": 5 / 6,
        "score.before_scrubbed": 1 / 3,
        "score.after_scrubbed": 1 / 3,
        "gain.total": 2 / 3,
        "gain.genuine": 0,
        "gain.phantom": 2 / 3,
        "gain.phantom_over_bar": 2 / 3 - 0.8 * 2 / 3,
        "gain.phantom_under_bar": 2 / 3 - 0.2 * 2 / 3,
        "gain.genuine_imputed": 1 / 4,
        "gain.phantom_imputed": 5 / 12,
        "gain.phantom_over_bar_imputed": 5 / 12 - 0.8 * 2 / 3,
        "gain.phantom_under_bar_imputed": 5 / 12 - 0.2 * 2 / 3,
        "scrubbing.placebo": -1 / 6,
        "scrubbing.placebo_over_bar": -1 / 6 - 0.2 * 2 / 3,
        "breakage": 1 / 2,
        "gain.channel:git-history": 2 / 3,
    }
    assert {name: number(f) for name, f in found.items()} == pytest.approx(expected)
    assert {f.question for f in found.values()} == set(QUESTIONS)


def test_a_missing_outcome_is_not_a_loss(tmp_path: Path) -> None:
    logs = {cell: dict(by_task) for cell, by_task in SMALL.items()}
    logs["after-0", OPEN] |= {
        "b": [WIN, LOST, ERRORED],
        "d": [WIN],
    }  # two runs dropped, a task seen only here
    logs["after-0", LEAK] |= {"c": [ERRORED, LOST]}  # the whole task goes
    found = measured(logs, tmp_path, *LEAK)
    total = found["gain.total"]
    assert isinstance(total, Evidence)
    # Over a and b alone: before (1/2, 0) = 1/4, after (1, 1) = 1.
    assert (total.estimate, total.clusters) == (0.75, 2)
    assert total.diagnostics["runs_dropped"] == 4
    assert total.diagnostics["tasks_dropped"] == 2


def test_an_interval_reaches_as_far_as_runs_without_a_score_could_move_it() -> None:
    """One of four runs of each task errored after training, and two before it: with all of these
    lost or won the same contrast lies exactly so much lower or higher.
    """
    fates = {"kept": None, "lost": 0.0, "won": 1.0}

    def side(errored: int, fate: str) -> Runs:
        wins = np.random.default_rng(errored).random((30, 4)) < (0.7 if errored == 1 else 0.4)
        table = np.stack([wins, np.zeros_like(wins)], axis=-1).astype(float)
        if fates[fate] is None:
            return replace(runs_of(table[:, errored:]), dropped=30 * errored)
        table[:, :errored, 0] = fates[fate]
        return runs_of(table)

    weights = gain(OPEN)
    panel = paired({OPEN: (side(2, "kept"), (side(1, "kept"),))}, None)
    worst, best = (
        paired({OPEN: (side(2, before), (side(1, after),))}, None).estimate(weights, 0.95)
        for before, after in (("won", "lost"), ("lost", "won"))
    )
    plainly, widely = panel.estimate(weights, 0.95), panel.at_worst(weights, 0.95)
    assert widely.estimate == plainly.estimate
    assert plainly.low - widely.low == pytest.approx(plainly.estimate - worst.estimate)
    assert widely.high - plainly.high == pytest.approx(best.estimate - plainly.estimate)
    scores = panel.at_worst({(AFTER, OPEN): 1.0}, 0.95)
    assert 0 <= scores.low < scores.high <= 1
    first, last = (drawn(np.full(9, rate), 4, np.random.default_rng(1)) for rate in (0.3, 0.6))
    whole = paired({OPEN: (first, (last,))}, None)
    assert whole.at_worst(weights, 0.95) == whole.estimate(weights, 0.95)


def test_a_side_without_any_score_is_said(tmp_path: Path) -> None:
    logs = {**SMALL, ("after-0", OPEN): {"a": [ERRORED] * 2, "b": [ERRORED, LOST]}}
    found = measured(logs, tmp_path, *LEAK)
    assert all("No run after training has a score" in one.reason for one in found.values())


def test_the_order_of_trajectories_does_not_matter(tmp_path: Path) -> None:
    case = stored_case(tmp_path, SMALL, *LEAK)
    shuffled = {}
    for cell, log in case.stored.items():
        rows = list(read_trajectories(log.paths[0]))
        path = tmp_path / f"shuffled-{log.key}.parquet"
        write_trajectories(path, [rows[i] for i in np.random.default_rng(0).permutation(len(rows))])
        shuffled[cell] = Rollouts(key=log.key, paths=(path,))
    again = replace(case, stored=shuffled)
    first, second = ([f.model_dump_json() for f in run_instrument(score, c)] for c in (case, again))
    assert first == second
    assert [Evidence.model_validate_json(text).model_dump_json() for text in first] == first


def test_a_score_outside_its_range_is_refused(tmp_path: Path) -> None:
    logs = {**SMALL, ("before", OPEN): {"a": [(7.0, "terminated")]}}
    assert all("outside 0 to 1" in f.reason for f in measured(logs, tmp_path, *LEAK).values())


@pytest.mark.parametrize("channels", [(), LEAK])
def test_without_a_scrubbed_world_only_the_open_one_answers(
    tmp_path: Path, channels: World
) -> None:
    found = measured(
        {cell: by_task for cell, by_task in SMALL.items() if cell[1] == OPEN}, tmp_path, *channels
    )
    assert number(found["gain.total"]) == pytest.approx(2 / 3)
    for question in set(QUESTIONS) - {"score.before", "score.after", "gain.total"}:
        missing = found[question]
        assert isinstance(missing, Undefined) and missing.cure
        told = "holds runs of" if channels else "declares no channel"
        assert told in missing.reason


# --- identities on planted runs -------------------------------------------------------


def sides_swapped(reading: WorldRuns) -> WorldRuns:
    worlds = {world: (afters[0], (before,)) for world, (before, afters) in reading.worlds.items()}
    return replace(reading, worlds=worlds)


def test_swapping_before_and_after_flips_every_sign() -> None:
    reading = planted((0.3, 0.7, 0.3, 0.5), tasks=80)
    found, swapped = answers(reading), answers(sides_swapped(reading))
    for name in (
        "gain.total",
        "gain.genuine",
        "gain.phantom",
        "gain.phantom_over_bar",
        "gain.channel:git-history",
    ):
        assert found[name].interval and swapped[name].interval
        assert swapped[name].estimate == pytest.approx(-found[name].estimate)
        assert swapped[name].interval.low == pytest.approx(-found[name].interval.high)
    assert swapped["score.before"].estimate == found["score.after"].estimate


@pytest.mark.parametrize("seeds", [1, 3])
def test_parts_add_up(seeds: int) -> None:
    found = answers(planted((0.3, 0.8, 0.25, 0.4), tasks=50, seeds=seeds, broken=0.1))
    total = found["gain.total"].estimate
    for twin in ("", "_imputed"):
        assert total == pytest.approx(
            found[f"gain.genuine{twin}"].estimate + found[f"gain.phantom{twin}"].estimate
        )
    over = found["gain.phantom"].estimate - 0.8 * total
    assert found["gain.phantom_over_bar"].estimate == pytest.approx(over)


def many_channels(names: World, wins: dict[frozenset[str], float], tasks: int = 300) -> WorldRuns:
    """After-runs that win at a rate set by which channels are open; before wins nothing."""
    generator = np.random.default_rng(0)
    worlds: dict[World, tuple[Runs, tuple[Runs, ...]]] = {}
    for world in [OPEN, names, *worlds_between(names, 4)]:
        rate = wins[frozenset(names) - frozenset(world)]
        after = drawn(np.full(tasks, rate), 2, generator)
        worlds[world] = (drawn(np.zeros(tasks), 2, generator), (after,))
    return WorldRuns(worlds=worlds, scrubbed=names, channels=names)


def test_redundant_channels_each_carry_half() -> None:
    # Either shortcut alone wins everything, so scrubbing one changes nothing; neither gets 0.
    names: World = ("a", "b")
    wins = {frozenset(w): float(bool(w)) for w in ((), ("a",), ("b",), ("a", "b"))}
    found = answers(many_channels(names, wins))
    assert [found[f"gain.channel:{name}"].estimate for name in names] == [0.5, 0.5]


def test_five_channels_are_read_from_both_ends() -> None:
    # Only `a` and `b` matter, and they are redundant: alone each gives 1, left out
    # neither is missed.
    names: World = tuple("abcde")
    assert len(worlds_between(names, 4)) == 10
    reads = [frozenset(names) - frozenset(w) for w in (OPEN, names, *worlds_between(names, 4))]
    found = answers(many_channels(names, {w: float(bool(w & {"a", "b"})) for w in reads}))
    assert [found[f"gain.channel:{name}"].estimate for name in names] == [0.5, 0.5, 0, 0, 0]
    shown = found["gain.channel:a"].diagnostics
    assert (shown["only_one_open"], shown["leave_one_out"], shown["interaction"]) == (1, 0, -1)


def test_imputation_is_unbiased_on_the_same_runs() -> None:
    # Two runs a task, each wins (.3), never hands in (.2) or fails (.5). Share times
    # score estimated from the same two runs would average .2 * .3 / 2 = .03, for a run
    # cannot do both; truth is .06.
    kinds = [(0.3, (1.0, 0.0)), (0.2, (0.0, 1.0)), (0.5, (0.0, 0.0))]
    mean = sum(
        p * q * float(runs_of(np.array([[a, b]])).product[0])
        for (p, a), (q, b) in product(kinds, kinds)
    )
    assert mean == pytest.approx(0.06)


def test_the_control_is_silent_and_can_speak() -> None:
    silent = 0
    for stream in range(200):
        control = answers(planted((0.4, 0.9, 0.3, 0.5), tasks=60, stream=stream))[
            "gain.total"
        ].control
        assert control is not None and control.interval is not None
        silent += control.interval.contains(0)
    assert silent >= 183  # 95 % of 200 less three standard errors
    rising = np.tile(
        np.array([[[0.0, 0], [1.0, 0]]]), (60, 1, 1)
    )  # second run of each task always wins
    before = runs_of(rising)
    found = answers(reading_of((before, [before]), (before, [before])))["gain.total"]
    assert found.estimate == 0 and found.control is not None and found.control.estimate == 1


def test_an_answer_that_was_cut_off_and_graded_is_handed_in() -> None:
    reasons = ["last action cut off; answered", "turn limit"]
    runs = read_runs(
        [
            {
                "task": "a",
                "sample": i,
                "id": str(i),
                "outcome": 1.0,
                "end": "truncated",
                "end_reason": reason,
                "steps": [{"role": "assistant"}],
            }
            for i, reason in enumerate(reasons)
        ]
    )
    assert (runs.score.item(), runs.unfinished.item(), runs.cut) == (1.0, 0.5, 0)
