"""Partitions and dictionaries: what each model sees, codes and reconstructions
against the dense formula.
"""

import pytest
import torch
from hypothesis import given, strategies as st

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from forensics.errors import UserError


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_every_latent_is_seen_by_the_models_that_its_name_says(
    before: int, shared: int, after: int
) -> None:
    part = Partition(latents=before + shared + after, before_only=before, after_only=after)
    for latent in range(part.latents):
        seen = [part.seen(m, 2).start <= latent < part.seen(m, 2).stop for m in (0, 1)]
        assert (
            seen
            == {"before-only": [True, False], "shared": [True, True], "after-only": [False, True]}[
                part.name(latent)
            ]
        )
    names = [part.name(latent) for latent in range(part.latents)]
    assert [names.count(name) for name in ("before-only", "shared", "after-only")] == [
        before,
        shared,
        after,
    ]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("activation", ["relu", "topk", "batchtopk", "jumprelu"])
def test_codes_and_reconstructions_are_those_of_the_dense_formula(
    activation: str, tied: bool
) -> None:
    part = Partition(latents=30, before_only=4, after_only=6, tied=tied)
    dictionary = Dictionary(
        DictionaryConfig(width=8, partition=part, activation=activation, k=3), seed=4
    ).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        dictionary.centres += torch.randn((2, 8), generator=generator)
        dictionary.threshold[:] = torch.rand(30, generator=generator)
        dictionary.scale.fill_(0.5)
    raw = 3 * torch.randn((40, 2, 8), generator=generator, dtype=torch.float64)
    scaled = dictionary.scaled(raw)
    torch.testing.assert_close(scaled, raw * 0.5)
    pre = dictionary.bias.detach().expand(40, -1).clone()
    for m, seen in enumerate((slice(0, 24), slice(4, 30))):
        pre[:, seen] += (scaled[:, m] - dictionary.centres[m]).detach() @ dictionary.encoders[
            m
        ].detach().T
    least = {
        "relu": torch.zeros(30),
        "topk": pre.topk(3, dim=-1).values[:, -1:] - 1e-9,
    }.get(activation, dictionary.threshold)
    value = torch.where((pre > least) & (pre > 0), pre, 0.0)
    codes = dictionary.encode(scaled)
    torch.testing.assert_close(codes.dense(30).detach(), value)
    assert bool((codes.row.diff() >= 0).all())
    for m in (0, 1):
        expected = value @ dictionary.directions()[:, m] + dictionary.centres[m].detach()
        torch.testing.assert_close(dictionary.decode(codes, m).detach(), expected)


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(UserError, match="cannot hold"):
        Partition(latents=5, before_only=3, after_only=3)
    with pytest.raises(UserError, match="need two models"):
        DictionaryConfig(width=8, models=3, partition=Partition(latents=30, after_only=3))
    with pytest.raises(UserError, match="k is 31"):
        DictionaryConfig(width=8, partition=Partition(latents=30), k=31)
    fresh = Dictionary(DictionaryConfig(width=8, partition=Partition(latents=30), k=3))
    with pytest.raises(UserError, match="no threshold yet"):
        fresh.encode(torch.zeros((2, 2, 8)))
