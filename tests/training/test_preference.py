"""DPO with token weights: closed forms, gradients, splits, masks, and that it
moves the token it should.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError

from forensics.errors import UserError
from forensics.policies.scorer import token_logprobs_and_entropies
from forensics.protocols import SamplingSettings
from forensics.records import PreferencePair, Provenance
from forensics.records.files import write_json_lines
from forensics.records.train_rows import read_pairs
from tests.tiny import tiny_qwen3
from training.dpo_trainer import dpo_loss, pair_rows

SETTINGS = SamplingSettings()


def pair(**changes: object) -> PreferencePair:
    values = {
        "id": "a",
        "prefix": (5, 6, 7),
        "chosen": (8, 9),
        "rejected": (10, 9, 11),
        "policy": "start",
        "provenance": Provenance(instrument="test"),
    }
    return PreferencePair(**values | changes)


def random_pairs(number: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def some(width: int) -> torch.Tensor:
        return torch.randn(number, width, generator=generator, dtype=torch.float64)

    weights = {
        f"{side}_weights": (torch.rand(number, width, generator=generator) > 0.4)
        * some(width).abs()
        for side, width in (("chosen", 4), ("rejected", 6))
    }
    values = {
        "chosen": some(4),
        "rejected": some(6),
        "reference_chosen": some(4),
        "reference_rejected": some(6),
    }
    return weights | values


def test_closed_form() -> None:
    """Gains 0.3 and -0.1 - 0.4 * 2 = -0.9, beta 0.5: margin 0.6, loss log(1 + e^-0.6)."""
    found = dpo_loss(
        torch.tensor([[-1.0, -2.0]]),
        torch.tensor([[-3.0, -1.5]]),
        beta=0.5,
        reference_chosen=torch.tensor([[-1.3, -9.0]]),
        reference_rejected=torch.tensor([[-2.9, -1.1]]),
        chosen_weights=torch.tensor([[1.0, 0.0]]),
        rejected_weights=torch.tensor([[1.0, 2.0]]),
    )
    assert found.loss.item() == pytest.approx(math.log1p(math.exp(-0.6)))
    sums = {name: value.item() for name, (value, _) in found.diagnostics.items()}
    assert sums == pytest.approx(
        {"chosen_gain": 0.15, "rejected_gain": -0.45, "margin": 0.6, "accuracy": 1}
    )


def test_at_the_reference_the_loss_is_log_two_and_the_gradient_half_of_beta() -> None:
    values = random_pairs(3, 0)
    values |= {"reference_chosen": values["chosen"], "reference_rejected": values["rejected"]}
    values |= {name: values[name].clone().requires_grad_() for name in ("chosen", "rejected")}
    found = dpo_loss(**values, beta=0.2)
    found.loss.backward()
    assert found.loss.item() == pytest.approx(math.log(2))
    torch.testing.assert_close(values["chosen"].grad, -0.1 * values["chosen_weights"] / 3)
    torch.testing.assert_close(values["rejected"].grad, 0.1 * values["rejected_weights"] / 3)


@given(st.integers(0, 10**6))
def test_swapping_the_sides_flips_the_margin(seed: int) -> None:
    values = random_pairs(4, seed)
    other = {"chosen": "rejected", "rejected": "chosen"}
    swapped = {
        name.replace(side, other[side]): value
        for name, value in values.items()
        for side in other
        if side in name
    }
    one, two = dpo_loss(**values), dpo_loss(**swapped)
    assert one.diagnostics["margin"][0].item() == pytest.approx(
        -two.diagnostics["margin"][0].item(), abs=1e-5
    )


@given(st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 10**6))
def test_any_split_of_the_pairs_gives_the_same(first: list[bool], seed: int) -> None:
    values = random_pairs(5, seed)
    values["chosen"].requires_grad_()
    together = dpo_loss(**values)
    together.loss.backward()
    wanted, values["chosen"].grad, total = values["chosen"].grad, None, 0.0
    for side in (True, False):
        rows = [row for row, chosen in enumerate(first) if chosen == side]
        part = dpo_loss(**{name: value[rows] for name, value in values.items()}, pairs=5).loss
        part.backward()
        total += part.item()
    assert total == pytest.approx(together.loss.item())
    torch.testing.assert_close(values["chosen"].grad, wanted)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_tokens_without_weight_have_no_gradient_whatever_they_hold(poison: float) -> None:
    clean, values = random_pairs(3, 1), random_pairs(3, 1)
    for name in ("chosen", "rejected", "reference_chosen", "reference_rejected"):
        side = name.removeprefix("reference_")
        values[name] = values[name].masked_fill(values[f"{side}_weights"] == 0, poison)
    for each in (clean, values):
        each["chosen"].requires_grad_()
    expected, found = dpo_loss(**clean), dpo_loss(**values)
    expected.loss.backward()
    found.loss.backward()
    assert found.loss.item() == expected.loss.item()
    assert torch.equal(values["chosen"].grad, clean["chosen"].grad)
    assert (values["chosen"].grad[values["chosen_weights"] == 0] == 0).all()


def test_reference_free_is_a_reference_of_zeros() -> None:
    values = random_pairs(3, 2)
    free = {name: value for name, value in values.items() if "reference" not in name}
    zeros = {f"reference_{side}": torch.zeros_like(values[side]) for side in ("chosen", "rejected")}
    assert torch.equal(dpo_loss(**free).loss, dpo_loss(**free, **zeros).loss)


def test_rows_hold_the_recorded_tokens_and_nothing_else() -> None:
    """All chosen rows, then all rejected ones, filled up to the longest."""
    tokens, weights = pair_rows([pair(), pair(prefix=(1,), chosen_weights=(0.5, 0.0))])
    assert tokens.tolist() == [
        [5, 6, 7, 8, 9, 0],
        [1, 8, 9, 0, 0, 0],
        [5, 6, 7, 10, 9, 11],
        [1, 10, 9, 11, 0, 0],
    ]
    assert weights.tolist() == [
        [0, 0, 1, 1, 0],
        [0.5, 0, 0, 0, 0],
        [0, 0, 1, 1, 1],
        [1, 1, 1, 0, 0],
    ]


def logprobs(model: Any, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of the tokens with weight."""
    return token_logprobs_and_entropies(model, tokens, SETTINGS, weights != 0)[0]


def probability(model: torch.nn.Module, prefix: tuple[int, ...], token: int) -> float:
    with torch.no_grad():
        return model(torch.tensor([prefix])).logits[0, -1].softmax(-1)[token].item()


def test_training_moves_the_weighted_token() -> None:
    """A cliff: token 8 instead of 10 after the prefix, weight on that token alone."""
    model, reference = tiny_qwen3(0), tiny_qwen3(0)
    cliff = pair(chosen=(8,), rejected=(10, 9, 11), rejected_weights=(1.0, 0.0, 0.0))
    tokens, weights = pair_rows([cliff])
    before = [probability(model, cliff.prefix, token) for token in (8, 10)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.no_grad():
            fixed = logprobs(reference, tokens, weights).split(1)
        chosen, rejected = logprobs(model, tokens, weights).split(1)
        found = dpo_loss(
            chosen,
            rejected,
            reference_chosen=fixed[0],
            reference_rejected=fixed[1],
            chosen_weights=weights[:1],
            rejected_weights=weights[1:],
            beta=0.5,
        )
        found.loss.backward()
        optimizer.step()
        losses.append(found.loss.item())
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4) and losses[-1] < 0.9 * losses[0]
    after = [probability(model, cliff.prefix, token) for token in (8, 10)]
    assert after[0] > 1.2 * before[0] and after[1] < before[1]


def test_tokens_behind_a_cliff_of_weight_one_token_change_nothing() -> None:
    """What follows the weighted token may be anything: loss and gradients are
    bit for bit the same.
    """
    gradients = []
    for tail in ((9, 11), (200, 201)):
        model = tiny_qwen3(0)
        cliff = pair(chosen=(8,), rejected=(10, *tail), rejected_weights=(1.0, 0.0, 0.0))
        tokens, weights = pair_rows([cliff])
        chosen, rejected = logprobs(model, tokens, weights).split(1)
        dpo_loss(
            chosen, rejected, chosen_weights=weights[:1], rejected_weights=weights[1:]
        ).loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"prefix": ()}, "prefix. needs at least one"),
        ({"chosen": ()}, "chosen. has no tokens"),
        ({"rejected": (8, 9)}, "same tokens"),
        ({"chosen_weights": (1.0,)}, "one number for each of the 2 tokens"),
        ({"rejected_weights": (0.0, 0.0, 0.0)}, "no token of .rejected. would count"),
        ({"chosen_weights": (1.0, math.nan)}, "finite"),
    ],
)
def test_pairs_that_say_nothing_are_refused(changes: dict[str, object], wanted: str) -> None:
    with pytest.raises(ValidationError, match=wanted):
        pair(**changes)


def test_bad_arguments_are_refused() -> None:
    values = random_pairs(2, 0)
    del values["reference_chosen"]
    with pytest.raises(ValueError, match="both sides or of neither"):
        dpo_loss(**values)
    with pytest.raises(ValueError, match="beta 0 prefers nothing"):
        dpo_loss(**random_pairs(2, 0), beta=0.0)


def test_pairs_survive_a_file_and_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    pairs = [pair(), pair(id="b", chosen_weights=(0.5, 1.0), task="t")]
    write_json_lines(path, pairs)
    assert read_pairs(path) == pairs
    bad = json.loads(path.read_text().splitlines()[0]) | {"chosen": []}
    path.write_text(path.read_text() + json.dumps(bad) + "\n")
    with pytest.raises(UserError, match=r"line 3 of .*chosen. has no tokens"):
        read_pairs(path)
    path.write_text("{")
    with pytest.raises(UserError, match=r"line 1 .*Invalid JSON"):
        read_pairs(path)
    with pytest.raises(UserError, match="does not exist"):
        read_pairs(tmp_path / "none.jsonl")
