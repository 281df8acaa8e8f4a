"""The study of planted features: scores are what they say, and in an easy world
the whole chain finds them.
"""

import pytest
import torch

from experiments.planted_features.__main__ import run_world
from experiments.planted_features.methods import MethodsConfig
from experiments.planted_features.scoring import judge
from experiments.planted_features.tables import holds, markdown, summary
from experiments.planted_features.world import World, WorldConfig

EASY = WorldConfig(
    width=32, shared=16, before_only=4, after_only=4, active=2.0, block=4, noise=0.02, spread=2.0
)
QUICK = MethodsConfig(
    latents=40,
    own=8,
    k=2,
    own_k=1.0,
    difference_latents=16,
    difference_k=1,
    tokens=200_000,
    judging=4096,
    batch=512,
    learning_rate=4e-3,
)


def test_scores_by_hand() -> None:
    truth = torch.eye(3)
    tilted = torch.tensor([0.95, (1 - 0.95**2) ** 0.5, 0.0])
    called = torch.stack([truth[0], tilted, -truth[1], torch.tensor([0.6, 0.8, 0.0])])
    score = judge(called, truth)
    assert (score.found, score.of, score.called, score.false) == (
        1,
        3,
        4,
        2,
    )  # two for the first; a sign is not found
    assert score.best == pytest.approx((1.0, 0.8, 0.0), abs=1e-3)
    nothing = judge(torch.empty(0, 3), truth)
    assert (nothing.found, nothing.called, nothing.false) == (0, 0, 0)
    assert judge(called, torch.empty(0, 3)).false == 4


def row(world: str, seed: int, found: int, of: int, called: int, false: int) -> dict[str, object]:
    score = {"found": found, "of": of, "called": called, "false": false}
    return {"world": world, "seed": seed, "scores": {"dedicated": score}}


def test_the_rule_is_on_all_seeds_together_and_an_absent_feature_must_not_be_called() -> None:
    good = summary([row("w", 0, 16, 16, 16, 0), row("w", 1, 15, 16, 17, 1)])["w"]["dedicated"]
    assert (
        good["recall"]["estimate"] == 31 / 32 and good["false_discovery_rate"]["estimate"] == 1 / 33
    )
    assert holds(good)
    assert not holds(summary([row("w", 0, 15, 16, 15, 0)])["w"]["dedicated"])
    assert not holds(summary([row("w", 0, 16, 16, 18, 2)])["w"]["dedicated"])
    assert holds(summary([row("w", 0, 0, 0, 0, 0)])["w"]["dedicated"])
    assert not holds(summary([row("w", 0, 0, 0, 1, 1)])["w"]["dedicated"])
    table = {"rows": [1], "planned": 2, "summary": summary([row("w", 0, 0, 0, 0, 0)])}
    assert "none there" in markdown(table) and "1 of 2" in markdown(table)


@pytest.mark.slow
def test_in_an_easy_world_the_dedicated_crosscoder_finds_them_and_an_identical_pair_has_none() -> (
    None
):
    scores = run_world("easy", World(EASY, 0), QUICK, only=("dedicated",))["scores"]["dedicated"]
    assert (scores["found"], scores["false"]) == (4, 0)
    identical = World(WorldConfig(**(vars(EASY) | {"pair": "identical"})), 0)
    assert (
        run_world("same", identical, QUICK, only=("dedicated",))["scores"]["dedicated"]["called"]
        == 0
    )
