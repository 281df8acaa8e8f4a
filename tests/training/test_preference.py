"""DPO with token weights: closed forms, gradients, splits, masks, and that it
moves the token it should.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

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
