"""A diff reports the planted latent, and it alone; the conditions one by one."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from crosscoders import diff
from crosscoders.dictionaries.saved import load_dictionary
from crosscoders.study.diff_files import CAUSES, DICTIONARY
from crosscoders.study.pipeline import hardly
from crosscoders.study.reported import (
    CAUSELESS as MOVES_NOTHING,
    COMES_BACK,
    SPECIFIC,
    UNTESTED,
    reported,
)
from forensics.budget import Budget
from tests.crosscoders.steering_world import SITE, save_pair, world


def table(specific, stability):
    own = np.array(["after" if one in specific else "none" for one in range(len(stability))])
    return SimpleNamespace(
        specific=lambda model: np.array(specific),
        column=lambda name: np.array(stability) if name == "stability" else own,
    )


def test_each_latent_is_left_out_by_the_first_condition_that_it_fails():
    found = reported(
        table([1, 2, 3, 4], [1.0, 1.0, 1.0, 0.5, 1.0]), [0, 1], 2, {1: True, 2: False}, "the loss"
    )
    assert found.latents == [1]
    assert dict(found.left_out) == {SPECIFIC: 1, COMES_BACK: 1, MOVES_NOTHING: 1, UNTESTED: 1}
    assert found.presented == [1]
    assert found.sentence.startswith(
        "1 latent is the after model's own, comes back from 2 other seeds and moves the loss more"
        " than random directions of equal activation size do: 1."
    )


def test_what_was_not_measured_is_said():
    found = reported(table([1], [1.0, 1.0]), [], 0)
    assert found.latents == [1]
    assert "Stability was not measured" in found.sentence
    alone = reported(table([1], [1.0, 1.0]), [], 0, {1: False}, "the loss")
    assert "found again" not in alone.sentence and COMES_BACK not in alone.left_out
    failed = reported(table([1, 2], [1.0] * 3), [], 2, {1: False, 2: False}, "the loss")
    assert not failed.latents and failed.presented == [1, 2]
    assert "What they cause was not measured." in found.sentence


@pytest.mark.slow
def test_the_planted_direction_is_what_a_diff_reports(tmp_path):
    pair = world(written=2.0)
    before, after = save_pair(pair, tmp_path)
    found = diff(
        before,
        after,
        pair.environment,
        out=tmp_path / "diff",
        site=SITE,
        decisions=0,
        tokens=100_000,
        budget=Budget(tasks=240, samples=2),
        baselines=False,
        controls=False,
    )
    (latent,) = found["reported"]
    written = load_dictionary(tmp_path / "diff" / DICTIONARY).directions()[latent, 1]
    assert torch.cosine_similarity(written, pair.direction, dim=0) > 0.9
    cause = json.loads((tmp_path / "diff" / CAUSES).read_text())["latents"][str(latent)]
    effect, rises = cause["effect"], "history" not in cause["measure"]  # what history displaces
    assert effect["low"] > 0.05 if rises else effect["high"] < -0.05
    assert cause["measure"].endswith("where it acts") and len(cause["random"]) == 20
    told = next(one for one in found["sentences"] if one.startswith("1 latent is"))
    assert f"moves the {cause['measure']} more than random directions" in told


def test_a_pair_that_hardly_differs_is_said_to() -> None:
    ends = {"before": {"estimate": 0.97714}, "after": {"estimate": 0.97713}}
    noise = {"behaviour": "start git-history", "kl": {"estimate": 2.2e-8}, **ends}
    (said,) = hardly(noise)
    assert "KL 2.2e-08 nats; the chance to start git-history is 0.9771 before" in said
    assert not hardly(noise | {"kl": {"estimate": 0.4}})
    assert not hardly(noise | {"kl": {"estimate": None}})
