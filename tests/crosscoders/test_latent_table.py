"""The table of latents against numbers worked out by hand, and its contrasts
against planted truth and against none.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Rows, StepNote, TextNote
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.row_groups import RowGroup, known_groups, task_test
from crosscoders.latents.table import (
    LatentScaling,
    Nu,
    SpecificConfig,
    Target,
    latent_table,
    specific_latents,
)
from tests.crosscoders.tensor_stream import TensorStream


def axes(*, latents: int = 3, after_only: int = 0) -> Dictionary:
    """Latent `i` reads and writes axis `i`, half from each model that it sees."""
    part = Partition(latents=latents, after_only=after_only)
    dictionary = Dictionary(DictionaryConfig(width=latents, partition=part, activation="relu", k=1))
    with torch.no_grad():
        for m, seen in enumerate(dictionary.ranges):
            eye = torch.eye(latents)[seen]
            single = torch.arange(latents)[seen] >= part.shared.stop
            dictionary.encoders[m].copy_(eye * torch.where(single, 1.0, 0.5)[:, None])
            dictionary.decoders[m].copy_(eye)
    return dictionary


def test_numbers_worked_out_by_hand() -> None:
    """Two texts of two steps; latent 0 is active on the assistant's rows,
    latent 1 on one row, latent 2 never.
    """
    steps = (
        StepNote(role="user"),
        StepNote(role="assistant", kinds=("history",), channels=("leak",)),
    )
    texts = tuple(TextNote(id=f"{i}", task=f"t{i}", outcome=1.0 - i, steps=steps) for i in range(2))
    rows = Rows(
        **{
            **vars(Rows.blank(8)),
            "text": np.repeat([0, 1], 4).astype(np.int32),
            "position": np.tile(np.arange(4), 2).astype(np.int32),
            "step": np.tile([0, 0, 1, 1], 2).astype(np.int32),
            "deciding": np.tile([False, True, False, False], 2),
            "sampled": np.tile([False, False, True, True], 2),
        }
    )
    f = torch.zeros(8, 3)
    f[:, 0] = torch.tensor([0.0, 0, 2, 4, 0, 0, 2, 0])
    f[1, 1] = 3
    stream = TensorStream(activations=f[:, None].repeat(1, 2, 1), rows=rows, texts=texts, block=3)
    table = latent_table(axes(after_only=1), stream)
    expected = {
        "frequency": [3 / 8, 1 / 8, 0],
        "mean": [1, 3 / 8, 0],
        "mean_when_active": [8 / 3, 3, np.nan],
        "largest": [4, 3, 0],
        "mean_role:user": [0, 3 / 4, 0],
        "mean_role:assistant": [2, 0, 0],
        "mean_kind:history": [2, 0, 0],
        "mean_channel:leak": [2, 0, 0],
        "mean_won": [1.5, 0.75, 0],
        "mean_lost": [0.5, 0, 0],
        "mean_deciding": [0, 1.5, 0],
        "mean_sampled": [2, 0, 0],
        "relative_norm": [0.5, 0.5, 1],
        "decoder_cosine": [1, 1, np.nan],
        "nu_after": [1, 1, np.nan],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table.column(name), values, rtol=1e-5, err_msg=name)
    assert list(table.column("partition")) == ["shared", "shared", "after-only"]
    medians = table.column("median_when_active")
    assert medians[:2] == pytest.approx([2, 3], rel=0.06)
    assert np.isnan(medians[2])
    about = json.loads(table.table.schema.metadata[b"forensics.latents"])
    assert about["rows"] == 8
    assert about["rows_of"]["kind:history"] == 4


def test_specific_asks_for_the_block_and_for_both_targets() -> None:
    part = Partition(latents=6, before_only=1, after_only=4)

    def nus(error: list[float], difference: list[float]) -> dict[Target, Nu]:
        made = {"error": error, "difference": difference, "reconstruction": [0.0] * 6}
        return {target: nu_of(values) for target, values in made.items()}  # type: ignore[misc]

    def nu_of(values: list[float]) -> Nu:
        return Nu(
            estimate=np.array(values), low=np.array(values) - 0.1, high=np.array(values) + 0.1
        )

    missing = [np.nan] * 6
    scaling = LatentScaling(
        after=nus([0, 0, 0.15, 0.3, 0.0, np.nan], [0, 0, 0.3, 0.0, 0.6, 0]),
        before=nus(missing, missing),
        beta=np.zeros((6, 2, 2)),
        share=np.full(6, 0.1),
        groups=9,
    )
    norms = np.full(6, 0.5)
    nobody = ["none"] * 6
    assert list(specific_latents(part, norms, scaling)) == [*nobody[:2], "after", *nobody[:3]]
    empty = replace(scaling, share=np.array([0.1, 0.1, 0.001, 0.1, 0.1, 0.1]))
    assert list(specific_latents(part, norms, empty)) == nobody  # it says next to nothing
    unknown = replace(scaling, share=np.full(6, np.nan))
    assert list(specific_latents(part, norms, unknown)) == nobody
    strict = SpecificConfig(by="high")
    assert list(specific_latents(part, norms, scaling, strict)) == nobody  # 0.15 + 0.1 > 0.2
    plain = np.array([0.9, 0.7, 0.9, 0.9, 0.9, 0.9])
    assert list(specific_latents(Partition(latents=6), plain, scaling)) == [
        "after",
        "none",
        "after",
        "none",
        "none",
        "none",
    ]


def test_noise_that_each_model_has_of_its_own_is_no_feature_of_either() -> None:
    """Latents that read `after - before` along an axis. Axis 0: a feature of
    after. 1 to 3: noise of each model, where the other model moves the opposite
    way by as much (nu of -1), so that "missing" alone would call them all.
    """
    generator = torch.Generator().manual_seed(0)
    held = 0.05 * torch.randn((20_000, 2, 8), generator=generator)
    held[:, 1, 0] += 2.0 * (torch.rand(20_000, generator=generator) < 0.2)
    held[:, :, 1:4] += torch.randn((20_000, 2, 3), generator=generator)
    part = Partition(latents=4, after_only=4, tied=True, readers="all")
    dictionary = Dictionary(
        DictionaryConfig(width=8, partition=part, k=1, own_k=1.0, activation="batchtopk")
    )
    with torch.no_grad():
        dictionary.encoders[0].copy_(-torch.eye(8)[:4])
        dictionary.encoders[1].copy_(torch.eye(8)[:4])
        dictionary.decoders[1].copy_(torch.eye(8)[:4])
        dictionary.threshold.fill_(0.5)
    stream = TensorStream(activations=held, rows=Rows.blank(len(held)))
    table = latent_table(dictionary, stream)
    assert table.scaling.after["error"].estimate[1:] == pytest.approx([-1] * 3, abs=0.05)
    assert list(table.column("specific")) == ["after", "none", "none", "none"]
    blind = latent_table(dictionary, stream, specific=SpecificConfig(opposite=np.inf))
    assert list(blind.column("specific")) == ["after"] * 4


def test_p_values_by_hand_and_never_below_what_signs_could_give() -> None:
    differences = np.array([[1.0, 1, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0]])
    effect, p_value = task_test(differences)
    assert effect[0] == pytest.approx(2.5 / np.std([1, 2, 3, 4], ddof=1))
    assert p_value[0] == pytest.approx(0.125)  # t gives 0.030; four signs cannot go below 2 / 16
    assert p_value[1] == 1.0
    assert np.isnan(p_value[2])


def test_deciding_rows_are_grouped_by_the_action_that_follows() -> None:
    steps = (
        StepNote(role="user"),
        StepNote(role="assistant", kinds=("open",)),
        StepNote(role="tool", channels=("leak",)),
        StepNote(role="assistant", kinds=("history", "edit")),
    )
    texts = [TextNote(id="a", task="a", steps=steps)]
    rows = Rows(
        **{
            **vars(Rows.blank(6)),
            "step": np.array([0, 1, 1, 2, 3, 3], np.int32),
            "sampled": np.array([0, 0, 1, 0, 0, 1], bool),
            "deciding": np.array([1, 1, 1, 1, 1, 1], bool),
        }
    )
    assert list(RowGroup(kinds=("open",), deciding=True).mask(rows, texts)) == [1, 1, 0, 0, 0, 0]
    assert list(RowGroup(kinds=("history",), deciding=True).mask(rows, texts)) == [0, 0, 1, 1, 1, 0]
    assert list(RowGroup(other_kinds=("edit",), deciding=True).mask(rows, texts)) == [
        1,
        1,
        0,
        0,
        0,
        0,
    ]
    plain = Rows(**{**vars(rows), "deciding": np.zeros(6, bool)})
    assert list(RowGroup(kinds=("open",)).mask(plain, texts)) == [0, 1, 1, 0, 0, 0]
    assert list(RowGroup(channels=("leak",)).mask(plain, texts)) == [0, 0, 0, 1, 0, 0]
    assert list(RowGroup(outcome="lost").mask(plain, texts)) == [0] * 6  # not known is not lost
    assert not {"won", "lost"} & set(known_groups(texts))
