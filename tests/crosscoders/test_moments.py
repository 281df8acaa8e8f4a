"""Baselines against numbers worked out by hand and against numpy on all rows at once."""

import numpy as np
import pytest
import torch

from crosscoders.activations.streams import Rows, TensorStream, difference
from crosscoders.study.difference_baselines import principal_components
from forensics.errors import UserError


def _stream(rows: int = 700) -> TensorStream:
    generator = torch.Generator().manual_seed(0)
    shapes = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.1])
    before = torch.randn((rows, 5), generator=generator) * 10 + 1000
    after = before + torch.randn((rows, 5), generator=generator) * shapes + torch.arange(5)
    return TensorStream(
        activations=torch.stack([before, after], 1).double(), rows=Rows.blank(rows), block=64
    )


def test_the_difference_is_a_stream_of_one_model() -> None:
    stream = _stream()
    found = torch.cat([block.activations for block in difference(stream).blocks()])
    assert torch.equal(found[:, 0], stream.activations[:, 1] - stream.activations[:, 0])
    assert difference(stream).models == 1 and difference(stream).identity != stream.identity
    with pytest.raises(UserError, match="needs two models"):
        difference(difference(stream))


def test_principal_components_are_those_of_all_rows_at_once() -> None:
    stream = _stream()
    parts = principal_components(stream)
    rows = (stream.activations[:, 1] - stream.activations[:, 0]).numpy()
    variances = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    np.testing.assert_allclose(parts.variances.numpy(), variances, rtol=1e-9)
    np.testing.assert_allclose(parts.mean.numpy(), rows.mean(0), rtol=1e-9)
    left = (rows - rows.mean(0)) @ (
        np.eye(5) - parts.directions[:2].T.numpy() @ parts.directions[:2].numpy()
    )
    total = np.square(rows - rows.mean(0)).sum()
    assert parts.explained(2) == pytest.approx(1 - np.square(left).sum() / total, rel=1e-9)


def test_the_rank_of_equal_error() -> None:
    """Variances 8, 4, 4 of 16: one part explains a half, two three quarters, three all."""
    rows = torch.tensor(
        [
            [4.0, 0, 0],
            [-4, 0, 0],
            [0, 8**0.5, 0],
            [0, -(8**0.5), 0],
            [0, 0, 8**0.5],
            [0, 0, -(8**0.5)],
        ]
    )
    parts = principal_components(
        TensorStream(activations=rows.double()[:, None], rows=Rows.blank(6))
    )
    assert [parts.rank_of(share) for share in (0, 0.3, 0.5, 0.51, 0.75, 0.76, 1)] == [
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert [parts.explained(rank) for rank in range(4)] == pytest.approx([0, 0.5, 0.75, 1])


def test_nothing_that_varies_explains_nothing() -> None:
    parts = principal_components(
        TensorStream(activations=torch.ones((4, 2, 3)), rows=Rows.blank(4))
    )
    assert parts.explained(1) is None
