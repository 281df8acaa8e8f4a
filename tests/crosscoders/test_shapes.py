"""That shapes which signatures state are checked in these tests."""

import pytest
import torch

from crosscoders.activations.streams import Block, Rows
from crosscoders.study.difference_baselines import Moments


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(TypeError, match="Type-check error"):
        Block(activations=torch.zeros(3, 2), rows=Rows.blank(3))
    with pytest.raises(TypeError, match="Type-check error"):
        Moments(3).add(torch.zeros(3))
