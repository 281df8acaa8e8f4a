"""Quality of a dictionary at its ends and by hand: perfect reconstruction 1,
the mean 0; L0; dead latents.
"""

import pytest
import torch

from crosscoders.latents.encoded_blocks import quality
from tests.crosscoders.latent_worlds import held, mirrored, silent


def test_half_of_the_variance_by_hand() -> None:
    """Rows (1, 1), (1, -1), (-1, 1), (-1, -1) of both models; after's second
    axis is not said: 1 - 4 / 8.
    """
    h = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])[:, None].repeat(1, 2, 1) + 10
    dictionary = mirrored(2)
    with torch.no_grad():
        dictionary.centres.fill_(10)
        for latent in (1, 3):  # both directions of the second axis, in after
            dictionary.decoders[1][latent] = 0
    found = quality(dictionary, held(h, block=3))
    assert found.variance_explained == pytest.approx((1, 0.5))
    assert found.difference_explained is None  # they do not differ
    with torch.no_grad():
        dictionary.decoders[1][1] = torch.tensor(
            [0.0, -1]
        )  # the wrong sign where it is positive: error 2 in two rows
    assert quality(dictionary, held(h)).variance_explained[1] == pytest.approx(
        1 - (2 * 4 + 2 * 1) / 8
    )


def test_a_large_mean_does_not_eat_the_variance() -> None:
    h = 1e4 + torch.randn(2000, 2, 4, generator=torch.Generator().manual_seed(1))
    dictionary = silent(4, torch.full((2, 4), 1e4))
    explained = quality(dictionary, held(h, block=100)).variance_explained
    expected = 1 - ((h - 1e4) ** 2).sum((0, 2)) / ((h - h.double().mean(0)) ** 2).sum((0, 2))
    assert explained == pytest.approx(expected.tolist(), abs=2e-5)


def test_of_the_difference_all_is_explained_none_or_what_one_axis_holds() -> None:
    h = torch.randn(400, 2, 3, generator=torch.Generator().manual_seed(2))
    full, nothing = mirrored(3), silent(3, torch.zeros(2, 3))
    assert quality(full, held(h, block=70)).difference_explained == pytest.approx(1)
    assert quality(nothing, held(h, block=70)).difference_explained == pytest.approx(0, abs=0.02)
    with torch.no_grad():
        for decoders in full.decoders:
            decoders[:, 2] = 0  # the third axis is not said
    difference = (h[:, 1] - h[:, 0]).double()
    parts = difference.var(0)
    assert quality(full, held(h)).difference_explained == pytest.approx(
        float(parts[:2].sum() / parts.sum()), abs=0.01
    )
