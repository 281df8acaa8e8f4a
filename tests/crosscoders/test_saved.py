"""A dictionary comes back from its folder bit by bit, and a folder that is not
whole is told in one sentence.
"""

import json

import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saved import (
    CONFIG,
    WEIGHTS,
    load_dictionary,
    read_metadata,
    save_dictionary,
)
from crosscoders.dictionaries.settings import Partition
from forensics.errors import UserError

PARTITIONS = {
    "plain": Partition(latents=24),
    "dedicated": Partition(latents=24, before_only=3, after_only=5),
    "tied": Partition(latents=24, after_only=5, tied=True),
    "reading all": Partition(latents=24, before_only=3, after_only=5, tied=True, readers="all"),
}


def trained(
    activation="batchtopk", partition=PARTITIONS["tied"], width=7, seed=0, models=2
) -> Dictionary:
    """A dictionary with nothing left at its first value."""
    config = DictionaryConfig(
        width=width, partition=partition, activation=activation, k=5, models=models
    )
    dictionary = Dictionary(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for tensor in dictionary.parameters():
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
        dictionary.scale.fill_(1.7)
        dictionary.threshold.copy_(torch.rand(partition.latents, generator=generator) * 0.3)
    return dictionary


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("activation", ["relu", "topk", "batchtopk", "jumprelu"])
def test_comes_back_bit_by_bit(tmp_path, activation, partition):
    dictionary = trained(activation, PARTITIONS[partition])
    save_dictionary(dictionary, tmp_path / "d", site="blocks.1.hook_resid_post", seeds=[1, 2])
    again = load_dictionary(tmp_path / "d")
    assert again.config == dictionary.config
    assert read_metadata(tmp_path / "d") == {"site": "blocks.1.hook_resid_post", "seeds": [1, 2]}
    for name, tensor in dictionary.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_a_threshold_that_was_never_trained_stays_unknown(tmp_path):
    fresh = Dictionary(DictionaryConfig(width=4, partition=Partition(latents=8), k=2))
    again = load_dictionary(save_dictionary(fresh, tmp_path / "d"))
    assert bool(again.threshold.isnan().all())


def break_json(folder):
    (folder / CONFIG).write_text("{")


def break_format(folder):
    (folder / CONFIG).write_text(json.dumps({"architecture": "standard", "d_in": 4}))


def break_key(folder):
    content = json.loads((folder / CONFIG).read_text())
    content["dictionary"]["latents"] = 12
    (folder / CONFIG).write_text(json.dumps(content))


def break_width(folder):
    content = json.loads((folder / CONFIG).read_text())
    content["dictionary"]["width"] = 9
    (folder / CONFIG).write_text(json.dumps(content))


def break_partition(folder):
    content = json.loads((folder / CONFIG).read_text())
    content["dictionary"]["partition"]["tied"] = False
    (folder / CONFIG).write_text(json.dumps(content))


def break_version(folder):
    content = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(content | {"version": 99}))


def cut_weights(folder):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-5])


def poison_weights(folder):
    dictionary = trained()
    with torch.no_grad():
        dictionary.bias[3] = torch.nan
    save_dictionary(dictionary, folder)


BREAKS = {
    break_json: "cannot be read as JSON", break_format: "load_saelens",
    break_key: "describes no dictionary", break_width: "should be",
    break_partition: "do not belong together", break_version: "another version",
    cut_weights: "cannot be read as safetensors", poison_weights: "NaN",
    lambda folder: (folder / WEIGHTS).unlink(): "does not exist",
    lambda folder: (folder / CONFIG).unlink(): "does not exist",
}  # fmt: skip


@pytest.mark.parametrize(("harm", "told"), BREAKS.items(), ids=[harm.__name__ for harm in BREAKS])
def test_what_is_not_whole_is_told(tmp_path, harm, told):
    folder = save_dictionary(trained(), tmp_path / "d")
    harm(folder)
    with pytest.raises(UserError, match=told) as error:
        load_dictionary(folder)
    assert "\n" not in str(error.value)
