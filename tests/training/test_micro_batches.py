"""What goes through the update at once: as much as memory allows, and the same gradient."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional

from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from tests.training.test_grpo import SETTINGS, fresh, played, recipe
from tests.training.test_projection import seeded
from tests.training.test_sharing import SAMPLES, grouped_rows
from training.distributed import Process
from training.losses import Objective
from training.recipe import ComputeSection
from training.trained_model import FEW, Machine, Scorer, held_bytes, token_bytes
from training.trainer import make_batch
from training.update import Batch, micro_batches, update

LIVE = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]


def adapted(model: Any) -> Any:
    return get_peft_model(model, LoraConfig(r=2, target_modules="all-linear")).eval()


def some_rows(beginning: int = 0) -> Batch:
    """Three groups of four rows; those of the second are longer. So many more tokens
    stand before each.
    """
    ids, mask = (functional.pad(part, (beginning, 0)) for part in grouped_rows())
    order = torch.unique(ids[:, : beginning + 9], dim=0, return_inverse=True)[1].argsort(
        stable=True
    )
    ids, weights = ids[order], mask[order].float()
    lengths = torch.where(weights[:, -1] > 0, ids.shape[1], ids.shape[1] - 3)
    return Batch(
        token_ids=ids,
        weights=weights,
        sampler_logprobs=weights,
        old_logprobs=weights,
        advantages=weights,
        lengths=lengths,
    )


def gradient(batch: Batch, aggregation: str, most: float | None = None) -> torch.Tensor:
    """Of one update over the batch, at most so many tokens at once."""
    plan = recipe(gradient_norm=1e9)
    plan = plan.model_copy(update={"objective": Objective(aggregation=aggregation)})
    policy = fresh()
    machine = Machine(policy, plan, SETTINGS, Process(), 0)
    machine.most_tokens = machine.most_tokens if most is None else most
    still = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    update(machine, batch, still, plan, (0,), played=8)
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("aggregation", ["sequence-mean", "token-mean", "dr-grpo"])
@pytest.mark.parametrize("rewards", [LIVE, [LIVE[0], [1.0] * 4]], ids=["all", "one dead group"])
def test_the_gradient_is_that_of_one_pass(
    rewards: list[list[float | None]], aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch(played(fresh(), rewards))
    assert batch is not None
    batch.lengths[::3] -= 4  # rows of several lengths
    batch.weights[::3, -4:] = 0
    scored: list[int] = []
    score = Machine.score

    def counted(machine: Machine, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        scored.append(len(ids))
        return score(machine, ids, mask)

    monkeypatch.setattr(Machine, "score", counted)
    whole = gradient(batch, aggregation)
    assert scored == [len(batch)], "a small model goes through in one piece"
    for most in (0, 80):
        scored.clear()
        split = gradient(batch, aggregation, most)
        assert sum(scored) == len(batch) and len(scored) > 1
        assert torch.allclose(whole, split, rtol=1e-4, atol=1e-7) and whole.abs().max() > 0


def test_rows_go_in_whole_groups_as_far_as_they_fit_or_as_many_as_the_recipe_says() -> None:
    batch = some_rows()
    half = batch.rows(torch.arange(8)).held

    def sizes(**how: Any) -> list[int]:
        parts = micro_batches(batch, Process(), **{"rows": None, "group": SAMPLES} | how)
        assert sorted(torch.cat(parts).tolist()) == list(range(len(batch)))
        return [len(part) for part in parts]

    assert sizes() == [12]
    assert sizes(most_tokens=half) == [8, 4]
    assert sizes(most_tokens=half - 1) == [4, 4, 4]
    assert max(sizes(most_tokens=batch.rows(torch.arange(4, 8)).held - 1)) < SAMPLES
    assert sizes(most_tokens=0) == [1] * 12
    assert sizes(rows=5, most_tokens=0) == [5, 5, 2]


@pytest.mark.parametrize(
    "make",
    [lambda: seeded("Qwen3", num_hidden_layers=16), lambda: seeded("Llama", num_hidden_layers=16)],
    ids=["qwen3", "llama"],
)
@pytest.mark.parametrize("change", [lambda model: model, adapted], ids=["all", "an adapter"])
@pytest.mark.parametrize("shares", [True, False])
def test_what_is_held_is_what_was_reckoned(make: Any, change: Any, shares: bool) -> None:
    """Beside the memory that a pass really keeps; of the copies of keys and values
    the reckoning knows a bound only.
    """
    score = Scorer(change(make()), SamplingSettings(), ComputeSection(), whole_rows=not shares)
    batch = some_rows(beginning=60)
    mask = batch.weights != 0
    each = token_bytes(score, "cpu")
    one = torch.zeros(1, FEW + 1, dtype=torch.long)
    rest = held_bytes(lambda: score(one, one[:, 1:] == 0)) - FEW * each  # weights
    held = held_bytes(lambda: score(batch.token_ids, mask)) - rest
    tokens = batch.held if shares else mask.numel()
    assert held <= each * tokens < 1.4 * held


@pytest.mark.parametrize("most", [None, 80.0])
def test_an_update_that_does_not_fit_goes_on_in_halves_with_the_same_gradient(
    most: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card on which more than one row fails, but for the first part."""
    batch = make_batch(played(fresh(), LIVE))
    assert batch is not None
    whole, score, failed = gradient(batch, "token-mean"), Machine.score, list[int]()
    seen: list[int] = []

    def short(machine: Machine, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        seen.append(len(ids))
        if len(ids) > 1 and len(seen) > (most is not None):
            failed.append(len(ids))
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return score(machine, ids, mask)

    monkeypatch.setattr(Machine, "score", short)
    halved = gradient(batch, "token-mean", most)
    assert failed and torch.allclose(whole, halved, rtol=1e-4, atol=1e-7)


def test_one_row_that_does_not_fit_and_several_processes_are_one_sentence() -> None:
    machine = Machine(fresh(), recipe(), SETTINGS, Process(), 0)
    planted = torch.OutOfMemoryError("planted")
    with pytest.raises(UserError, match="gradient_checkpointing"):
        machine.halve(1, planted)
    assert machine.stated() == {}
    machine.halve(12, planted)
    assert machine.stated() == {"update_rows": 6}
    again = Machine(fresh(), recipe(), SETTINGS, Process(), 0)
    again.restore(machine.stated())
    assert again.most_rows == 6
    machine.process = Process(size=2)
    with pytest.raises(UserError, match="rows = 3"):
        machine.halve(6, planted)
