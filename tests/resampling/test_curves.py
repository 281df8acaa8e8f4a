"""The potentials that are shown, against the truth: near it everywhere, and at confirmed cliffs too."""

import numpy as np

from resampling.cliffs import find_cliffs
from resampling.planted_worlds import certain_world, worlds
from resampling.worlds import sampler_of, world_of


def test_the_curve_is_near_the_truth_and_falls_where_a_cliff_is_confirmed() -> None:
    planted = {world.trace.id: world for world in worlds("long", 8, 4)}
    report = find_cliffs([world.trace for world in planted.values()], sampler_of(list(planted.values()), seed=1))
    shown = {trace.trace: trace for trace in report.traces}
    errors = [np.abs(shown[name].potentials - world.potentials).mean() for name, world in planted.items()]
    assert max(errors) < 0.08
    assert len(report.cliffs) >= 5
    falls = [shown[c.trace].potentials[c.token] - shown[c.trace].potentials[c.token + 1] for c in report.cliffs]
    true = [planted[c.trace].potentials[c.token] - planted[c.trace].potentials[c.token + 1] for c in report.cliffs]
    assert np.abs(np.subtract(falls, true)).max() < 0.2
    assert abs(np.mean(falls) - np.mean(true)) < 0.06
    covered = np.mean([(shown[name].low <= world.potentials).mean() for name, world in planted.items()])
    assert covered > 0.9


def test_where_nothing_was_drawn_nothing_is_known() -> None:
    """The bound rules out every token, so the search draws nothing: no potential is one half for that."""
    world = certain_world("w", np.random.default_rng(0))
    report = find_cliffs([world.trace], sampler_of([world], seed=2))
    assert report.rollouts == 0
    for curve in (report.traces[0].potentials, report.traces[0].low, report.traces[0].high):
        assert np.isnan(curve).all() and len(curve) == len(world.trace) + 1


def test_the_luck_of_the_environment_shows_without_being_a_cliff() -> None:
    """After token 5 the environment gives a bad answer that it seldom gives: the fall is not the token's doing."""
    answers, luck, potentials = np.ones(12), np.zeros(12), np.full(13, 0.8)
    answers[5], luck[5], potentials[6:] = 0.1, 0.845, 0.3
    potentials[:6] = 0.1 * 0.3 + 0.9 * 0.845
    world = world_of("w", np.full(12, 0.5), potentials, answers=answers, other_answers=luck)
    report = find_cliffs([world.trace], sampler_of([world], seed=2))
    assert not report.cliffs
    assert report.traces[0].potentials[3] > report.traces[0].potentials[8] + 0.3
