"""A run whose last observation lies beyond what a model has positions for is read up to there."""

import json
import shutil

import pytest

from crosscoders import diff
from crosscoders.study.diff_files import Shape
from forensics.budget import Budget
from training.organisms.organism import checkpoint_path

POSITIONS = 48


@pytest.fixture
def pair(tmp_path):
    """The bundled pair, made for few positions."""
    for name in ("capped-base", "leak"):
        shutil.copytree(checkpoint_path(f"bundled:{name}"), tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["max_position_embeddings"] = POSITIONS
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path / "capped-base", tmp_path / "leak"


def test_a_diff_reads_long_runs_as_far_as_the_models_have_positions(pair, tmp_path):
    found = diff(
        *pair,
        out=tmp_path / "diff",
        site="blocks.1.hook_resid_post",
        shape=Shape(latents=32, after_only=4, k=4),
        tokens=2_000,
        decisions=0,
        seeds=1,
        controls=False,
        baselines=False,
        budget=Budget(tasks=12, samples=1),
        device="cpu",
    )
    (told,) = [fact for fact in found["facts"] if "positions" in fact]
    assert int(told.split()[0]) > 0
