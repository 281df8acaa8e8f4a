"""A stranger's activation function is one file and one entry point: it is
trained, resumed, saved, loaded, exported, scaled and steered with like ours. So
is a format of saved dictionaries.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from crosscoders.activation_functions import activation_function
from crosscoders.dictionaries.dictionary import DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from forensics.errors import UserError
from tests.stranger_packages import installed_package, python_beside

SOURCE = Path(__file__).parent / "example_package"
TRAINING = """
import json, sys
from pathlib import Path
import torch
from crosscoders.dictionaries.dictionary import DictionaryConfig
from crosscoders.dictionaries.crosscoder_trainer import forward, training_step
from crosscoders.dictionaries.settings import Partition
from crosscoders.dictionaries.saelens import export_saelens, load_saelens
from crosscoders.dictionaries.saved import load_dictionary, save_dictionary
from crosscoders.dictionaries.settings import TrainerSettings
from crosscoders.dictionaries.crosscoder_run import train_crosscoder
from crosscoders.latents.table import latent_table
from crosscoders.steering.activation_edits import feature_change
from tests.crosscoders.test_training_run import WIDTH, _world

folder, (stream, _) = Path(sys.argv[1]), _world(2000)
part = Partition(latents=56, before_only=5, after_only=5)
config = DictionaryConfig(width=WIDTH, partition=part, activation="margin")
settings = TrainerSettings(tokens=20_000, batch=200, learning_rate=5e-3, save_every=50)
trained = train_crosscoder(stream, config, settings, folder=folder / "training")
again = train_crosscoder(stream, config, settings, folder=folder / "training", resume=True)
dictionary = load_dictionary(save_dictionary(trained.dictionary, folder / "saved"))
scaled = dictionary.scaled(stream.activations[:300])
errors = [
    forward(dictionary, scaled, training_step(dictionary), path=path).errors
    for path in ("sparse", "dense")
]
exported = load_saelens(export_saelens(dictionary, folder / "exported"))
codes, theirs = dictionary.encode(scaled), exported.encode(stream.activations[:300])
change = feature_change(dictionary, [20], mode="ablate", acting="after", strength=1.0)
before, after = stream.activations[:300, 0], stream.activations[:300, 1]
moved = change.apply(after, before) - after
written = codes.dense(56)[:, 20:21] * dictionary.directions()[20, 1] / dictionary.scale
print(json.dumps({
    "resumed": again.history == trained.history,
    "explained": min(trained.history[-1]["variance_explained"]),
    "same_paths": torch.allclose(*errors, atol=1e-4),
    "active": len(codes.row),
    "exported": torch.allclose(codes.dense(56), theirs.dense(56), atol=1e-3),
    "rows_of_the_table": len(latent_table(dictionary, stream).column("nu_after")),
    "steered": torch.allclose(moved, -written, atol=1e-4),
}))
"""

READING = """
import numpy as np
from crosscoders.dictionaries.saved import open_dictionary

file, random = Path(sys.argv[1]) / "sae.npz", np.random.default_rng(0)
encoder = random.normal(size=(1, 4, 8)).astype(np.float32)
plain = {"bias": np.zeros(8, np.float32), "centres": np.zeros((1, 4), np.float32)}
np.savez(file, encoders=encoder, decoders=encoder.transpose(0, 2, 1), k=2, **plain)
saved = open_dictionary(file)
dictionary, rows = saved.load(4), torch.from_numpy(random.normal(size=(5, 1, 4))).float()
largest = (rows[:, 0] @ torch.from_numpy(encoder[0])).relu().topk(2)
codes = dictionary.encode(dictionary.scaled(rows)).dense(8)
same = torch.allclose(codes.gather(1, largest.indices), largest.values)
print(json.dumps({"kind": saved.kind, "same": same, "active": int((codes > 0).sum())}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one process says that has the package: of training, then of reading."""
    folder = tmp_path_factory.mktemp("package")
    site = installed_package(SOURCE, folder)
    done = python_beside(site, "-c", TRAINING + READING, str(folder))
    assert done.returncode == 0, done.stderr
    trained, read = map(json.loads, done.stdout.splitlines())
    return trained, read


def test_an_installed_function_does_all_that_ours_do(
    said: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    trained = dict(said[0])
    assert trained.pop("explained") > 0.5 and trained.pop("active") > 300
    assert trained.pop("rows_of_the_table") == 56
    assert all(trained.values()), trained


def test_an_installed_format_is_read(said: tuple[dict[str, Any], dict[str, Any]]) -> None:
    read = said[1]
    assert read["kind"] == "arrays" and read["same"] and 5 < read["active"] <= 10


@pytest.mark.parametrize("name", ["relu", "topk", "jumprelu"])
def test_a_function_that_cannot_choose_one_model_latents_apart_is_refused(name: str) -> None:
    assert not activation_function(name).one_model_budget
    part = Partition(latents=30, after_only=6)
    with pytest.raises(UserError, match="own_k is 2"):
        DictionaryConfig(width=8, partition=part, activation=name, k=3, own_k=2)
