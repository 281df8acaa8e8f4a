"""Changes of activations, by hand: coefficients, units, encodings, and controls
that move every row equally far.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.steering.activation_edits import feature_change, random_directions
from crosscoders.steering.experiment_arms import Arm
from crosscoders.steering.experiment_file import ExperimentTable
from crosscoders.steering.interventions import Steps, chosen_positions, in_kind, parse_position
from crosscoders.steering.readings import FedDictionary, Readings
from forensics.errors import UserError


def small(activation: str = "relu", scale: float = 0.5) -> Dictionary:
    """Width 2: latent 0 before-only, 1 shared (tied), 2 after-only; `d` and
    encoders along the axes.
    """
    partition = Partition(latents=3, before_only=1, after_only=1, tied=True)
    dictionary = Dictionary(
        DictionaryConfig(width=2, partition=partition, activation=activation, k=1)
    )
    with torch.no_grad():
        dictionary.scale.fill_(scale)
        dictionary.threshold.fill_(0.25)
        dictionary.encoders[0].copy_(torch.tensor([[1.0, 0.0], [0.5, 0.0]]))  # latents 0, 1
        dictionary.encoders[1].copy_(torch.tensor([[0.5, 0.0], [0.0, 1.0]]))  # latents 1, 2
        dictionary.decoders[0].copy_(torch.tensor([[0.0, 3.0]]))
        dictionary.decoders[1].copy_(torch.tensor([[0.0, 2.0]]))
        dictionary.tied_decoder.copy_(torch.tensor([[1.0, 0.0]]))
        dictionary.centres.copy_(torch.tensor([[0.5, 0.0], [1.0, 0.0]]))
    return dictionary


AFTER, BEFORE = torch.tensor([[4.0, 6.0]]), torch.tensor([[2.0, 8.0]])


def test_ablation_by_hand() -> None:
    # latent 2: f = 0.5 * 6 = 3, d = (0, 2) / 0.5 = (0, 4), so 12 goes
    change = feature_change(small(), [2], mode="ablate", acting="after", strength=1.0)
    assert torch.allclose(change.apply(AFTER, None), torch.tensor([[4.0, -6.0]]))
    assert torch.allclose(
        replace(change, strength=0.5).apply(AFTER, None), torch.tensor([[4.0, 0.0]])
    )
    # latent 1: f = 0.5 (2 - 1) + 0.5 (1 - 0.5) = 0.75, d = (2, 0)
    both = feature_change(small(), [1], mode="ablate", acting="after", strength=1.0)
    assert torch.allclose(both.apply(AFTER, BEFORE), torch.tensor([[2.5, 6.0]]))
    # from its own part alone: f = 0.5
    own = feature_change(small(), [1], mode="ablate", acting="after", strength=1.0, encoding="own")
    assert torch.allclose(own.apply(AFTER, None), torch.tensor([[3.0, 6.0]]))
    assert not own.needs_other and both.needs_other


def test_scaling_is_not_adding() -> None:
    scale = feature_change(small(), [2], mode="scale", acting="after", strength=2.0)
    assert torch.allclose(scale.apply(AFTER, None), torch.tensor([[4.0, 18.0]]))
    silent = torch.tensor([[4.0, -1.0]])
    assert torch.equal(scale.apply(silent, None), silent)
    assert torch.equal(replace(scale, strength=1.0).apply(AFTER, None), AFTER)
    ablate = feature_change(small(), [2], mode="ablate", acting="after", strength=1.0)
    assert torch.allclose(
        replace(scale, strength=0.0).apply(AFTER, None), ablate.apply(AFTER, None)
    )
    add = feature_change(
        small(), [2], mode="add", acting="before", strength=2.0, values=torch.tensor([3.0])
    )
    # 2 * 3 * (0, 4), whatever the activation, and in the after model's direction though
    # the before one is changed
    assert torch.allclose(add.apply(silent, None), silent + torch.tensor([[0.0, 24.0]]))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10_000))
def test_random_directions_keep_lengths_and_angles(number: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn((number, 6), generator=generator)
    turned = random_directions(directions, generator)
    assert torch.allclose(turned @ turned.T, directions @ directions.T, atol=1e-4)
    assert not torch.allclose(turned, directions, atol=1e-2)


def test_a_dictionary_of_one_stream_reads_the_difference_or_one_model() -> None:
    config = DictionaryConfig(
        width=2, models=1, partition=Partition(latents=1), activation="relu", k=1
    )
    dictionary = Dictionary(config)
    with torch.no_grad():
        dictionary.scale.fill_(0.5)
        dictionary.encoders[0].copy_(torch.tensor([[1.0, 0.0]]))
        dictionary.decoders[0].copy_(torch.tensor([[0.0, 1.0]]))
    # of the difference (2, -2): f = 0.5 * 2 = 1; of the after model: f = 0.5 * 4 = 2; d = (0, 2)
    both = feature_change(dictionary, [0], mode="ablate", acting="after", strength=1.0)
    assert both.needs_other and torch.allclose(
        both.apply(AFTER, BEFORE), torch.tensor([[4.0, 4.0]])
    )
    acting_before = feature_change(dictionary, [0], mode="ablate", acting="before", strength=1.0)
    assert torch.allclose(acting_before.apply(BEFORE, AFTER), torch.tensor([[2.0, 6.0]]))
    own = feature_change(
        dictionary, [0], mode="ablate", acting="after", strength=1.0, encoding="own"
    )
    assert not own.needs_other and torch.allclose(
        own.apply(AFTER, None), torch.tensor([[4.0, 2.0]])
    )


def test_the_mean_of_the_difference_moves_each_row_as_far_as_the_features_do() -> None:
    pairs = torch.randn((50, 2, 2), generator=torch.Generator().manual_seed(0)) + 3
    arm = Arm(
        name="2",
        bench=SimpleNamespace(),
        readings=Readings(here=pairs, decisions=pairs[:0], used=torch.zeros(0) > 0),
        table=ExperimentTable(features="2", dictionary="small"),
        components=torch.eye(2),
        reader=FedDictionary(dictionary=small()),
        key="small",
        features=(2,),
    )
    before, after = pairs.unbind(1)
    mean = (after - before).mean(0)
    along = arm.instead(1.0, "mean-direction", mean).change.apply(after, before) - after
    far = arm.steered(1.0).change.apply(after, before) - after
    assert torch.allclose(along.norm(dim=1), far.norm(dim=1), atol=1e-4)
    assert torch.allclose(along / along.norm(dim=1)[:, None], -mean / mean.norm(), atol=1e-4)
    assert far.norm(dim=1).std() > 0.1


def test_positions() -> None:
    """Tokens: 0 1 | 2 3(stop) | 9 9 | 4 3 | 9; `|` marks decisions; kinds are
    the tokens' own numbers.
    """
    steps = Steps(kinds=lambda ids: tuple(map(str, ids)), stops=frozenset({3}), most=8)
    ids = [0, 1, 2, 3, 9, 9, 4, 3, 9]
    decided = [i in (1, 5) for i in range(9)]
    assert in_kind("2", steps, ids, decided, 9) == [i in (2, 3, 4, 5) for i in range(9)]
    assert in_kind("3", steps, ids, decided, 9) == [i in (3, 4, 5, 7, 8) for i in range(9)]
    assert in_kind("9", steps, ids, decided, 9) == [False] * 9  # an observation is no action
    tokens, flags = torch.tensor([ids]), torch.tensor([decided])
    assert (
        chosen_positions(parse_position("deciding"), None, tokens, flags, 9)[0].tolist() == decided
    )
    assert chosen_positions(parse_position("everywhere"), None, tokens, flags, 4).tolist() == [
        [True] * 4
    ]
    in_two = chosen_positions(parse_position("kind:2"), steps, tokens, flags, 5)
    assert in_two.tolist() == [[True, True, False, False, False]]
    with pytest.raises(UserError, match="there is no position 'start'"):
        parse_position("start")
