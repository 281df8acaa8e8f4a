"""Changes of activations, by hand: coefficients, units, encodings, and controls
that move every row equally far.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.steering.edits import (
    feature_change,
    random_directions,
    routing_change,
    shift_change,
    stacked,
    subspace_change,
)
from crosscoders.steering.interventions import (
    Steps,
    changed,
    chosen_positions,
    in_kind,
    parse_position,
)
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


def test_the_same_latent_in_the_other_model() -> None:
    """Spillover: the value is read off the after model, the before model is changed."""
    change = feature_change(small(), [2], mode="ablate", acting="before", strength=1.0)
    assert change.needs_other
    assert torch.allclose(change.apply(BEFORE, AFTER), BEFORE - torch.tensor([[0.0, 12.0]]))
    twice = feature_change(
        small(), [2], mode="ablate", acting="before", strength=1.0, encoding="twice"
    )
    assert not twice.needs_other  # f = 0.5 * 8 = 4 of the before model's own, d = (0, 4)
    assert torch.allclose(twice.apply(BEFORE, None), BEFORE - torch.tensor([[0.0, 16.0]]))
    with pytest.raises(UserError, match="latent 2 cannot be encoded from the before model alone"):
        feature_change(small(), [2], mode="ablate", acting="before", strength=1.0, encoding="own")


@pytest.mark.parametrize("activation", ["relu", "topk", "batchtopk", "jumprelu"])
def test_a_few_values_are_those_of_the_whole_code(activation: str) -> None:
    partition = Partition(latents=12, before_only=3, after_only=4)
    dictionary = Dictionary(
        DictionaryConfig(width=6, partition=partition, activation=activation, k=3), seed=1
    )
    with torch.no_grad():
        dictionary.threshold.fill_(0.2)
        dictionary.bias.normal_(generator=torch.Generator().manual_seed(0))
    rows = torch.randn((50, 2, 6), generator=torch.Generator().manual_seed(2))
    chosen = torch.tensor([11, 0, 5])
    whole = dictionary.encode(dictionary.scaled(rows)).dense(12)[:, chosen]
    found = dictionary.values(stacked(dictionary, rows[:, 1], rows[:, 0], "after"), chosen)
    assert torch.allclose(found, whole) and bool((whole > 0).any())
    assert torch.allclose(
        dictionary.values(stacked(dictionary, rows[:, 0], rows[:, 1], "before"), chosen), whole
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10_000))
def test_random_directions_keep_lengths_and_angles(number: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn((number, 6), generator=generator)
    turned = random_directions(directions, generator)
    assert torch.allclose(turned @ turned.T, directions @ directions.T, atol=1e-4)
    assert not torch.allclose(turned, directions, atol=1e-2)


def test_random_directions_have_no_favourite() -> None:
    """Over many draws of one vector the mean vanishes and all axes share the
    length alike (uniform on the sphere).
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat(
        [random_directions(torch.tensor([[3.0, 0.0, 0.0, 0.0]]), generator) for _ in range(4000)]
    )
    assert (
        drawn.mean(0).abs().max() < 5 * 1.5 / 4000**0.5
    )  # standard error of a coordinate: 3 / sqrt(4) / sqrt(4000)
    assert torch.allclose(drawn.square().mean(0), torch.full((4,), 9 / 4), atol=0.2)


def test_a_turned_change_moves_every_row_as_far() -> None:
    change = feature_change(small(), [1, 2], mode="ablate", acting="after", strength=1.0)
    rows, others = torch.randn((2, 30, 2), generator=torch.Generator().manual_seed(4)) * 4
    turned = change.turned(torch.Generator().manual_seed(3))
    far, as_far = (one.apply(rows, others) - rows for one in (change, turned))
    assert torch.allclose(far.norm(dim=-1), as_far.norm(dim=-1), atol=1e-4) and not torch.allclose(
        far, as_far
    )


def test_shift_and_subspace_by_hand() -> None:
    shift = shift_change(torch.tensor([1.0, -1.0]), mode="ablate", strength=2.0)
    assert torch.allclose(shift.apply(AFTER, None), torch.tensor([[2.0, 8.0]]))
    basis = torch.tensor([[0.0, 1.0]])
    out = subspace_change(basis, mode="ablate", acting="after", strength=1.0)
    assert torch.allclose(
        out.apply(AFTER, BEFORE), torch.tensor([[4.0, 8.0]])
    )  # the before model's part there
    into = subspace_change(basis, mode="add", acting="before", strength=1.0)
    assert torch.allclose(into.apply(BEFORE, AFTER), torch.tensor([[2.0, 6.0]]))


def test_routing_is_the_reconstruction() -> None:
    dictionary = small()
    pair = torch.stack([BEFORE, AFTER], 1)
    wanted = dictionary.decode(dictionary.encode(dictionary.scaled(pair)), 1) / dictionary.scale
    assert torch.allclose(routing_change(dictionary, acting="after").apply(AFTER, BEFORE), wanted)


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
    twice = feature_change(
        dictionary, [0], mode="ablate", acting="after", strength=1.0, encoding="twice"
    )
    assert torch.equal(twice.apply(AFTER, None), AFTER), "a model does not differ from itself"
    with pytest.raises(UserError, match="routing needs a dictionary over both models"):
        routing_change(dictionary, acting="after")


def test_only_the_mask_is_changed() -> None:
    activations = torch.randn((2, 3, 2), generator=torch.Generator().manual_seed(5))
    mask = torch.tensor([[False, True, False], [False, False, False]])
    new = changed(shift_change(torch.ones(2), mode="add", strength=1.0), activations, None, mask)
    assert torch.equal(new[~mask], activations[~mask]) and torch.allclose(
        new[mask], activations[mask] + 1
    )


def test_latents_that_are_not_there() -> None:
    with pytest.raises(UserError, match="no latent 7; this dictionary has 0 to 2"):
        feature_change(small(), [7], mode="ablate", acting="after", strength=1.0)
    with pytest.raises(UserError, match="median active value"):
        feature_change(small(), [2], mode="add", acting="before", strength=1.0)


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


def test_an_action_cut_by_its_limit_ends_there() -> None:
    steps = Steps(kinds=lambda ids: tuple(map(str, ids)), stops=frozenset(), most=2)
    assert in_kind("9", steps, [0, 2, 2, 9], [True, False, False, False], 4) == [False] * 4
