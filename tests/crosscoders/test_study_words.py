"""What is told of a test that shows nothing, and of latents that the other model has a little."""

from types import SimpleNamespace

import numpy as np
import pytest

from crosscoders.study.diff_files import lacks, shown
from crosscoders.study.diff_page import BEYOND, moves
from crosscoders.study.reported import specific_sentence

EFFECT = {"estimate": 0.02, "low": 0.01, "high": 0.03}


def cause(tried, *, largest, low=0.1, holds=False):
    """As `causes.json` has it: `tried` random directions, and whether all fall short."""
    return {
        "effect": EFFECT,
        "measure": "loss",
        "tasks": 9,
        "random": [0.0] * tried,
        "p_value": 1 / (tried + largest),
        "beyond": {"low": low},
        "holds": holds,
    }


@pytest.mark.parametrize(
    ("found", "lack", "words"),
    [
        (cause(20, largest=True, holds=True), "", "more than 20 random directions of equal size"),
        (cause(20, largest=True, low=-0.1), "spread", "by no more than the tasks' spread explains"),
        (cause(20, largest=True), "size", "moves less than is worth a word"),
        (cause(20, largest=False), "random", "since one of 20 does as much"),
        (cause(7, largest=False, low=-0.1), "random", "since one of 7 does as much"),
        (cause(1, largest=False), "random", "since the first one does as much"),
    ],
)
def test_the_condition_that_is_missing_is_named(found, lack, words):
    assert lacks(found) == lack and lack in BEYOND
    told = shown(found, "random direction", "size")
    assert words in told
    assert ("not shown to be more" in told) == (lack == "random")  # never beside p = 0.048
    said = moves(found)
    assert words.replace("equal size", "equal activation size") in said
    assert f"(p = {found['p_value']:.3f})" in said


def table(error, difference):
    """Latents of the after model's block with these nus, the first the most active."""
    columns = {
        "nu_after": np.array(error),
        "nu_after_difference": np.array(difference),
        "partition": np.array(["after-only"] * len(error)),
    }
    return SimpleNamespace(specific=lambda _: np.arange(len(error)), column=columns.__getitem__)


def test_latents_that_the_before_model_hardly_writes_are_missing_there():
    said = specific_sentence(table([0.0, -0.05], [0.02, 0.09]), 2)
    assert said == (
        "2 latents of the after-only block are missing in the before model by latent scaling."
    )


def test_how_strongly_the_before_model_writes_a_latent_is_said():
    said = specific_sentence(table([0.0, 0.19, 0.05, -0.12], [0.02, 0.15, 0.33, -0.3]), 2)
    assert said == (
        "4 latents of the after-only block are the after model's own by latent scaling: 1 is"
        " missing in the before model, 2 are written in the before model up to 33 % as strongly"
        " (2), 1 is written in the before model the opposite way, up to 30 % as strongly (3)."
    )
    alone = specific_sentence(table([0.19], [0.1]), 2)
    assert "missing" not in alone and "1 is written in the before model up to 19 %" in alone
