"""The guarantee: recall of large drops, false discoveries, silence on flat
traces, intervals that hold.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from scipy.stats import binom

from resampling.cliffs import cliff_search
from resampling.cliffs.cliff_search import CliffConfig
from resampling.cliffs.cliffs import CliffReport, find_cliffs
from resampling.trace_rollouts import Request, Rollout
from tests.resampling.random_traces import random_traces, true_cliffs
from tests.resampling.solvable_traces import SolvableSampler, SolvableTrace, solvable_trace


def report_of(
    planted: list[SolvableTrace], seed: int = 1, config: CliffConfig | None = None, **sampling
) -> CliffReport:  # type: ignore[no-untyped-def]
    return find_cliffs(
        [world.trace for world in planted], SolvableSampler(planted, seed=seed, **sampling), config
    )


def found_in(report: CliffReport) -> set[tuple[str, int]]:
    return {(cliff.trace, cliff.token) for cliff in report.cliffs}


@pytest.fixture(scope="module")
def long_log() -> tuple[list[SolvableTrace], CliffReport]:
    planted = random_traces("long", 25, 21)
    return planted, report_of(planted)


@pytest.fixture(scope="module")
def many_long_logs() -> tuple[list[SolvableTrace], CliffReport]:
    planted = random_traces("long", 60, 21)
    return planted, report_of(planted)


@pytest.fixture(scope="module")
def hard_log() -> tuple[list[SolvableTrace], CliffReport]:
    """Compensating moves, cliffs at the ends, extreme levels."""
    planted = random_traces("hard", 35, 22)
    return planted, report_of(planted)


@pytest.fixture(scope="module")
def many_hard_logs() -> tuple[list[SolvableTrace], CliffReport]:
    planted = random_traces("hard", 80, 22)
    return planted, report_of(planted)


MANY = ("many_long_logs", "many_hard_logs")


@pytest.mark.parametrize(
    "log", ["long_log", *(pytest.param(log, marks=pytest.mark.slow) for log in ("hard_log", *MANY))]
)
def test_large_drops_are_found_and_small_ones_not_reported(
    log: str, request: pytest.FixtureRequest
) -> None:
    planted, report = request.getfixturevalue(log)
    large, found = true_cliffs(planted, 0.2), found_in(report)
    assert len(large & found) >= 0.93 * len(large) and len(large) > (
        70 if log in MANY else 30
    )  # 0.95 but for the noise of some 80 cliffs
    assert len(found - true_cliffs(planted, 0.05 + 1e-9)) <= 0.05 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize("log", MANY)
def test_intervals_hold_for_what_was_selected(log: str, request: pytest.FixtureRequest) -> None:
    planted, report = request.getfixturevalue(log)
    truth = {world.trace.id: world for world in planted}
    for rows in (report.cliffs, report.cliffs + report.rejected):
        known = [row for row in rows if row.drop is not None and row.contrast is not None]
        drops = [
            row.drop.low <= truth[row.trace].drops[row.token] <= row.drop.high for row in known
        ]
        contrasts = [
            row.contrast.low <= truth[row.trace].contrasts[row.token] <= row.contrast.high
            for row in known
        ]
        assert np.mean(drops) >= 0.95 and np.mean(contrasts) >= 0.95
    assert np.mean([row.drop.low > 0 for row in report.cliffs if row.drop]) >= 0.95


def test_flat_traces_are_silent_each_by_itself_and_together() -> None:
    flat = random_traces("flat", 150, 5, tokens=40)
    alone = [bool(report_of([world]).cliffs) for world in flat[:40]]
    assert sum(alone) <= binom.ppf(0.99, len(alone), 0.05)
    report = report_of(flat)
    assert len({cliff.trace for cliff in report.cliffs}) <= 0.05 * len(flat)


def test_a_bad_answer_of_the_environment_is_not_booked_on_the_token_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The token that is confirmed is put back and the environment answers anew."""
    answers, luck, potentials = np.ones(12), np.zeros(12), np.full(13, 0.75)
    answers[5], luck[5], potentials[6:] = 0.1, 0.8, 0.3
    potentials[:6] = 0.75
    world = solvable_trace("w", np.full(12, 0.3), potentials, answers=answers, other_answers=luck)
    with monkeypatch.context() as patched:
        patched.setattr(cliff_search, "CANDIDATE", 1e-9)  # all are tested
        assert not report_of([world]).cliffs
    luck[5] = 0.1  # now the token itself leads to bad answers of either kind
    potentials[:6] = 0.7
    world = solvable_trace("w", np.full(12, 0.3), potentials, answers=answers, other_answers=luck)
    assert world.drops[5] > 0.4 and found_in(report_of([world])) == {("w", 5)}


def test_what_confirms_was_never_searched_with() -> None:
    """No rollout is drawn twice: a confirmation that saw the search's own
    rollouts would confirm what was selected.
    """
    planted = random_traces("hard", 6, 3)
    sampler, seen = SolvableSampler(planted, seed=1), []

    class Noted:
        identity = sampler.identity

        def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
            for rollout in sampler.draw(requests):
                seen.append(
                    (rollout.trace, rollout.kept, rollout.append, rollout.avoid, rollout.number)
                )
                yield rollout

    report = find_cliffs([world.trace for world in planted], Noted())
    assert report.cliffs and len(seen) == report.rollouts
    assert len(set(seen)) == len(seen)
