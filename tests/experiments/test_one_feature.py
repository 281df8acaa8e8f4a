"""The study of one feature: contributions and shares by hand, and a carrier
that is right by construction carries.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from experiments.one_feature.first_decision import (
    along,
    latent_contributions,
    mean_difference,
    pick,
    read_decisions,
    turned,
)
from experiments.one_feature.measuring import _share, carries, effects, exchanged
from forensics import load_policy
from training.environments.mini_repo import MiniRepo
from training.organisms import cue_organisms as cues
from training.organisms.base_model import checkpoint_path


def test_the_latent_with_the_largest_contrast_in_contribution_is_picked_where_allowed() -> None:
    values = torch.tensor([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0], [0.0, 0.0, 0.0]])
    directions = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    cued = torch.tensor([True, True, False])
    assert pick(values, directions, cued, slice(0, 3)) == 2  # 1 x 9 against 3 x 1
    assert pick(values, directions, cued, slice(0, 2)) == 1


def test_a_random_direction_moves_each_row_as_far() -> None:
    contribution = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
    moved = turned(contribution, torch.Generator().manual_seed(0))
    assert torch.allclose(moved.norm(dim=1), torch.tensor([5.0, 0.0]))


def test_a_contribution_is_what_a_latent_adds_in_raw_units() -> None:
    dictionary = Dictionary(
        DictionaryConfig(width=4, partition=Partition(latents=3, after_only=1), activation="relu")
    )
    dictionary.scale.fill_(2.0)
    residuals = torch.randn((5, 2, 4), generator=torch.Generator().manual_seed(1))
    values, directions = latent_contributions(dictionary, residuals)
    whole = dictionary.decode(dictionary.encode(dictionary.scaled(residuals)), 1).detach() / 2
    assert torch.allclose(
        values @ directions + dictionary.centres[1].detach() / 2, whole, atol=1e-6
    )


def test_shares_and_the_rule() -> None:
    share = _share(np.array([0.4, 0.4, 0.4]), 0.8)
    assert share is not None and share["estimate"] == pytest.approx(0.5)
    assert _share(np.zeros(3), 0.0) is None

    def row(removed: float, installed: float) -> dict[str, dict[str, float]]:
        return {"removed": {"estimate": removed}, "installed": {"estimate": installed}}

    weak = [row(0.1, 0.1)] * 20
    assert carries({"carriers": {"it": row(0.9, 0.6)}, "random": weak}, "it")
    assert not carries({"carriers": {"it": row(0.7, 0.6)}, "random": weak}, "it")
    assert not carries({"carriers": {"it": row(0.9, 0.4)}, "random": weak}, "it")
    assert not carries({"carriers": {"it": row(0.9, 0.6)}, "random": [*weak, row(0.0, 0.65)]}, "it")


@pytest.mark.slow
def test_what_is_planted_carries_the_behaviour_and_its_opposite_does_not(tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(checkpoint_path("bundled:capped-base"), base)
    config = cues.PlantConfig(tasks=1000, demonstrations=60, enough=0.8, most_steps=100)
    told = cues.plant(base, tmp_path / "after", 0, lambda *_: None, config=config)
    before, after = (
        load_policy(tmp_path / part, device="cpu", dtype="float32") for part in ("base", "after")
    )
    world = MiniRepo(world="capped")
    tasks = world.tasks("held-out", 160, 3)
    cued = np.array([cues.has_cue(task, "capped") for task in tasks])
    prompts = cues.first_prompts(before, world, tasks)
    decisions = read_decisions(before, after, prompts, cued, told["site"], "history")
    unmoved = decisions.chance(1, torch.zeros(160, 96))
    assert np.allclose(unmoved, cues.chances(after, prompts, "history"), atol=1e-5)
    halves = decisions.take(np.arange(160) < 80), decisions.take(np.arange(160) >= 80)
    direction = torch.tensor(told["direction"])
    assert (
        float(torch.cosine_similarity(mean_difference(decisions.contrast), direction, dim=0)) > 0.99
    )
    parts = (along(halves[0], direction), along(halves[1], direction))
    found = effects(*halves, {"true": parts, "opposite": (-parts[0], -parts[1])}, "true", 0)
    assert carries(found, "true") and not carries(found, "opposite")
    assert found["carriers"]["true"]["removed"]["estimate"] == pytest.approx(1, abs=0.1)
    whole = exchanged(halves[1])  # of an edit that lies before the site, all of it
    assert [whole[what]["estimate"] for what in ("removed", "installed")] == pytest.approx(
        [1, 1], abs=1e-3
    )
