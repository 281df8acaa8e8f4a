"""Baselines against numbers worked out by hand and against numpy on all rows at once."""

import numpy as np
import torch

from crosscoders.activations.streams import Rows
from crosscoders.study.difference_baselines import principal_components
from tests.crosscoders.tensor_stream import TensorStream


def _stream(rows: int = 700) -> TensorStream:
    generator = torch.Generator().manual_seed(0)
    shapes = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.1])
    before = torch.randn((rows, 5), generator=generator) * 10 + 1000
    after = before + torch.randn((rows, 5), generator=generator) * shapes + torch.arange(5)
    return TensorStream(
        activations=torch.stack([before, after], 1).double(), rows=Rows.blank(rows), block=64
    )


def test_principal_components_are_those_of_all_rows_at_once() -> None:
    stream = _stream()
    parts = principal_components(stream)
    rows = (stream.activations[:, 1] - stream.activations[:, 0]).numpy()
    variances = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    np.testing.assert_allclose(parts.variances.numpy(), variances, rtol=1e-9)
    np.testing.assert_allclose(parts.mean.numpy(), rows.mean(0), rtol=1e-9)
    spread = parts.directions @ torch.from_numpy(np.cov(rows.T, bias=True)) @ parts.directions.T
    np.testing.assert_allclose(spread.diagonal().numpy(), variances, rtol=1e-6)
