"""Baselines on worlds where every figure is known: who explains what of the
difference, and which feature tells.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Rows, TextNote
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.row_groups import Contrast, RowGroup
from crosscoders.study import difference_baselines
from crosscoders.study.difference_baselines import compared, groups_of
from tests.crosscoders.tensor_stream import TensorStream

WIDTH, TASKS = 6, 24
SAMPLED = Contrast(name="sampled", first=RowGroup(sampled=True), second=RowGroup(sampled=False))


def world(rows=1200, seed=0, noise=0.2):
    """After adds a direction (feature 0) of varied strength to the rows of the
    first group, and noise (feature 1).
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(rows, generator=generator) < 0.3
    before = torch.randn(rows, WIDTH, generator=generator)
    gap = torch.zeros(rows, WIDTH)
    gap[:, 0] = first * (1 + torch.rand(rows, generator=generator))
    gap[:, 1] = noise * torch.randn(rows, generator=generator)
    text = (np.arange(rows) * TASKS // rows).astype(np.int32)
    known = {**vars(Rows.blank(rows)), "sampled": first.numpy(), "text": text}
    notes = tuple(TextNote(id=f"text-{i}", task=f"task-{i}") for i in range(TASKS))
    return TensorStream(
        activations=torch.stack([before, before + gap], 1),
        rows=Rows(**known),
        texts=notes,
        block=100,
    )


@torch.no_grad()
def reader(models, latents, direction):
    """ReLU latents, of which the last one reads what after has more along a
    feature, and writes it.
    """
    part = (
        Partition(latents=latents, after_only=1, readers="all")
        if models == 2
        else Partition(latents=latents)
    )
    dictionary = Dictionary(
        DictionaryConfig(width=WIDTH, partition=part, models=models, activation="relu")
    )
    for parameter in dictionary.parameters():
        parameter.zero_()
    if models == 2:
        dictionary.encoders[0][-1, direction] = -1
    dictionary.encoders[-1][-1, direction] = 1
    dictionary.decoders[-1][-1, direction] = 1
    dictionary.scale.fill_(0.5)
    return dictionary


def methods(found):
    return {row["name"]: row for row in found["methods"]}


def share(stream, feature):
    gap = (stream.activations[:, 1] - stream.activations[:, 0]).numpy()
    return gap[:, feature].var() / gap.var(0).sum()


def test_shares_and_features_are_those_of_the_world():
    training, reported = world(seed=1), world(seed=2)
    found = compared(reader(2, 3, 0), reader(1, 4, 0), training, reported, SAMPLED, [2])
    rows, planted = methods(found), share(reported, 0)
    for name, feature in (
        ("dictionary", "latent 2"),
        ("its latents specific to after", "latent 2"),
        ("difference-SAE", "latent 3"),
    ):
        assert rows[name]["explained"] == pytest.approx(planted, abs=1e-5), name
        assert (rows[name]["feature"], rows[name]["auroc"]["estimate"]) == (feature, 1.0)
        assert rows[name]["active"] == pytest.approx(float(reported.rows.sampled.mean()))
        assert rows[name]["auroc"]["tasks"] == TASKS
    assert rows["PCA of equal error"]["features"] in (
        1,
        2,
    )  # the planted direction up to what noise turns it by
    mean = rows["mean difference, of the models' difference"]
    assert (
        mean["explained"] == pytest.approx(planted, abs=0.02) and mean["auroc"]["estimate"] == 1.0
    )
    after = rows["mean difference, after model"]["auroc"]
    assert (
        0.7 < after["estimate"] < 0.97 and after["low"] < after["estimate"] < after["high"]
    )  # before's own noise
    assert found["rows"] == 1200 and found["missing"] is None


def test_the_two_ends_saying_nothing_and_saying_all():
    stream = world(noise=0.0)
    silent = reader(2, 3, 5)  # along feature 5 the models never differ
    rows = methods(compared(silent, reader(1, 4, 0), stream, stream, SAMPLED, []))
    assert (
        rows["dictionary"]["explained"] == pytest.approx(0)
        and rows["dictionary"]["auroc"]["estimate"] == 0.5
    )
    assert rows["difference-SAE"]["explained"] == pytest.approx(1, abs=1e-6)
    assert rows["PCA of the difference"]["explained"] == pytest.approx(1)
    assert rows["its latents specific to after"] == {
        "name": "its latents specific to after",
        "features": 0,
        "active": 0,
        "explained": pytest.approx(0),
        "feature": None,
        "auroc": None,
    }


def test_equal_models_have_nothing_to_explain_and_no_groups_nothing_to_tell():
    stream = world()
    same = replace(stream, activations=stream.activations[:, :1].expand(-1, 2, -1))
    found = compared(reader(2, 3, 0), reader(1, 4, 0), same, same, None, [])
    assert {row["explained"] for row in found["methods"]} == {None}
    assert {row["auroc"] for row in found["methods"]} == {None} and "no two groups" in found[
        "missing"
    ]


def test_many_rows_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr(difference_baselines, "MOST_ROWS", 100)
    stream, whole = world(), world()
    groups = groups_of(stream, SAMPLED)
    assert 50 <= len(groups.first) <= 100 and set(groups.task) == {
        f"task-{i}" for i in range(TASKS)
    }
    expected = whole.activations[:: -(-len(whole.rows) // len(groups.first))]
    assert torch.equal(groups.pairs, expected)
