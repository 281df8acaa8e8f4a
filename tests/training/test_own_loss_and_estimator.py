"""A stranger's loss, advantage estimator, reward and organism are one file and
one entry point each: chosen in a recipe by name, recorded and replayed like
ours.
"""

import json
from pathlib import Path

import pytest

from forensics.errors import UserError
from tests.stranger_packages import installed_package, python_beside
from training.advantages import estimate_advantages
from training.groups import Group, GroupAdvantages, estimator_named
from training.losses import LossSection, Objective
from training.recipe import GrpoSection, parse_recipe

SOURCE = Path(__file__).parent / "example_package"
SESSION = """
import contextlib, io, json, sys
from pathlib import Path
import numpy as np
from forensics.cli.main import run
from forensics.errors import UserError
from forensics import load_policy
from forensics.progress import silent
from forensics.records.train_tables import TrainingRecord
from training import checkpoint_path, parse_recipe, replay
from training.organisms import build_organism

folder = Path(sys.argv[1])
build_organism("hasty", 3, folder, silent)
manifest = json.loads((folder / "manifest.json").read_text())
record = TrainingRecord(folder / "training")
rows = list(record.rows(0))
by_hand = []
for group in {row.group for row in rows}:
    mine = [row for row in rows if row.group == group]
    rewards, lengths = [row.reward for row in mine], [row.length for row in mine]
    by_hand += [reward - np.average(rewards, weights=lengths) for reward in rewards]
recorded = [row.advantage or 0.0 for row in sorted(rows, key=lambda row: row.group)]
recipe = parse_recipe(manifest["recipe"], "the manifest")
policy = load_policy(checkpoint_path("bundled:capped-base"), device="cpu", dtype="float32")
(again,) = replay(folder / "training", None, recipe.objective, policy)
report = record.report(0)
try:
    parse_recipe(manifest["recipe"] | {"objective": {"loss": "gmpo", "clip_low": 0.1}}, "mine")
except UserError as error:
    refused = str(error)
with contextlib.redirect_stdout(io.StringIO()) as listed:
    run(["organism", "list", "--json"])
print(json.dumps({
    "listed": [row["name"] for row in json.loads(listed.getvalue())],
    "recipe": manifest["recipe"],
    "baseline": record.run.estimator["baseline"],
    "advantages": float(np.abs(np.sort(by_hand) - np.sort(recorded)).max()),
    "reported": report["losses"],
    "loss": [report["loss"], again.loss],
    "refused": refused,
}))
"""


@pytest.mark.slow
def test_they_train_are_recorded_and_replayed(tmp_path: Path) -> None:
    site = installed_package(SOURCE, tmp_path)
    done = python_beside(site, "-c", SESSION, str(tmp_path / "hasty"))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    objective, reported = said["recipe"]["objective"], said["reported"]
    assert objective["loss"] == "gmpo" and objective["nats"] == 0.3
    assert "clip_low" not in objective and said["baseline"] == "opo"
    assert said["recipe"]["grpo"]["power"] == 1.0 and said["advantages"] < 1e-6
    assert "held" in reported and "clip_low" not in reported
    assert reported["gap"] == 0  # the sampler's stand for the old ones
    assert said["loss"][0] == pytest.approx(said["loss"][1], abs=1e-5) != 0
    assert "unknown key 'clip_low' in [objective]" in said["refused"]
    assert "nats" in said["refused"]
    assert "hasty" in said["listed"]


def test_what_is_not_installed_is_refused_with_what_is() -> None:
    content = {"policy": {"checkpoint": "x"}, "environment": {"name": "y"}, "grpo": {"steps": 1}}
    with pytest.raises(UserError, match="unknown loss 'dpo'; known: cispo, clipped, gspo, sapo"):
        parse_recipe(content | {"objective": {"loss": "dpo"}}, "mine")
    with pytest.raises(UserError, match="unknown advantage 'opo'; known: gdpo, group, pass-at-k"):
        parse_recipe(content | {"grpo": {"steps": 1, "advantages": "opo"}}, "mine")


def test_an_estimator_that_is_a_plain_function_needs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def zero(groups, config):
        return [GroupAdvantages(values=(float(config.scaling == "batch"),) * 2, dead=None)]

    monkeypatch.setattr("training.groups.load_plugin", lambda group, name: zero)
    estimator_named.cache_clear()
    config = GrpoSection(steps=1, advantages="mine", scaling="batch")
    group = Group(task="a", trajectories=(), components=({}, {}), totals=(1.0, 0.0))
    assert estimate_advantages([group], config)[0].values == (1.0, 1.0)
    estimator_named.cache_clear()


def test_the_defaults_are_not_written_out() -> None:
    assert "loss" not in Objective().model_dump()
    assert "advantages" not in GrpoSection(steps=1).model_dump()


def test_keys_of_another_loss_are_refused() -> None:
    with pytest.raises(ValueError, match="give a Objective, not a LossSection"):
        LossSection()
