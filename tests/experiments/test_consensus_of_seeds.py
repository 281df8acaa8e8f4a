"""A candidate that is written into another seed says what it said; bars are read as stated."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from crosscoders.dictionaries.dictionary import Dictionary
from experiments.consensus_of_seeds.planted_verdict import verdict
from experiments.consensus_of_seeds.union_refit import (
    BLOCK,
    LATENTS,
    _distinct,
    _Found,
    _job,
    _with_shared,
    _written,
)
from tests.crosscoders.latent_worlds import held

FIRST = LATENTS - BLOCK


def found(seed: int) -> _Found:
    one = Dictionary(_job(seed, 0).config, seed=seed).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    one.centres.copy_(torch.randn(one.centres.shape, generator=generator))
    one.threshold.fill_(0)
    chosen = np.isin(np.arange(LATENTS), [FIRST + seed, FIRST + 5])
    return _Found(
        dictionary=one,
        units=normalize(one.directions()[:, 1], dim=-1),
        specific=chosen,
        agreed=chosen,
        turned=~chosen,
        share=np.ones(LATENTS),
    )


def test_a_candidate_says_in_another_seed_what_it_said_in_its_own() -> None:
    seeds = [found(1), found(2)]
    kept = _distinct(seeds, [one.specific for one in seeds])
    assert sorted(kept) == [(0, FIRST + 1), (0, FIRST + 5), (1, FIRST + 2), (1, FIRST + 5)]
    start = _written(seeds[0].dictionary, seeds, kept, 0).requires_grad_(False)
    rows = torch.randn(50, 2, 64, generator=torch.Generator().manual_seed(9))
    for place, (seed, latent) in enumerate(kept, FIRST):
        theirs = seeds[seed].dictionary
        said, before = start.pre_activations(rows)[:, place], theirs.pre_activations(rows)
        torch.testing.assert_close(said, before[:, latent], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(start.directions()[place], theirs.directions()[latent])
    shared = start.config.partition.shared
    torch.testing.assert_close(start.directions()[shared], seeds[0].dictionary.directions()[shared])


def test_a_latent_that_fires_with_a_shared_one_is_seen() -> None:
    one = found(1).dictionary
    for encoder in one.encoders:
        encoder[FIRST] = 2 * encoder[40]
    one.bias[FIRST] = 2 * one.bias[40]
    one.threshold[FIRST] = 2 * one.threshold[40]
    rows = torch.randn(400, 2, 64, generator=torch.Generator().manual_seed(9))
    together = _with_shared(one, held(rows))
    assert together[FIRST] == pytest.approx(1) and together[FIRST + 1 :].max() < 0.9


def test_a_bar_is_missed_by_one() -> None:
    def rows(found: int, false: int) -> dict[str, dict[str, dict[str, int]]]:
        parts = [{"found": found - 30, "of": 16, "called": found - 30, "false": false}]
        parts += [{"found": 15, "of": 16, "called": 15, "false": 0}] * 2
        worlds = ("half the norm", "a tenth of the frequency", "drift of .3")
        return {f"{w}/{s}": {"way": part} for w in worlds for s, part in enumerate(parts)}

    assert "way* holds" in verdict(rows(45, 2), "way")
    assert "44 of 48 found, 0 of 44 false: missed" in verdict(rows(44, 0), "way")
    assert "3 of 45 false: missed" in verdict(rows(45, 3), "way")
    assert "open" in verdict({"half the norm/1": rows(45, 0)["half the norm/1"]}, "way")
