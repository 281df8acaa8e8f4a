"""The memory plan of docs/training.md, counted from what the code itself allocates: a model
of seven billion parameters under an adapter, 64 rows of 2,048 tokens, one card of 80 GB.

Everything is made on the device `meta`, where tensors have a size and no memory; a counter
adds up what is alive at once.
"""

import copy
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, Qwen2Config, Qwen2ForCausalLM

from forensics import policy_from
from forensics.policies import new_adapter
from forensics.policies.kv_cache import GPU_SHARE as CACHE_SHARE, Room, cached_numbers, new_cache
from forensics.policies.scorer import project
from forensics.protocols import SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer
from tests.training.test_compute import recipe
from training.distributed import Process
from training.recipe import ComputeSection
from training.trained_model import (
    GPU_SHARE,
    Machine,
    Scorer,
    checkpoint_activations,
    frozen_copy,
    narrow_frozen,
    token_bytes,
)
from training.update import Batch, micro_batches

CARD, ROWS, LENGTH, SAMPLES = 80e9, 64, 2048, 8
SETTINGS = SamplingSettings(max_turn_tokens=LENGTH, max_tokens=LENGTH)
SEVEN = {
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}


class Alive(TorchDispatchMode):
    """Bytes of the tensors that are alive, but for those of a model; `peak`: at most."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.live = self.peak = 0
        tensors = [*model.parameters(), *model.buffers()]
        self._known: dict[int, Any] = {
            one.untyped_storage()._cdata: one.untyped_storage() for one in tensors
        }

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        found = function(*given, **(named or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self._note(one.untyped_storage())
        return found

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return

        def gone(_: Any) -> None:
            del self._known[key]
            self.live -= size

        self._known[key] = weakref.ref(storage, gone)
        self.live += size
        self.peak = max(self.peak, self.live)


def flash(module: Any, query: Any, key: Any, value: Any, mask: Any, **named: Any) -> Any:
    """Attention as a card does it, which keeps no scores."""
    key, value = (one.repeat_interleave(module.num_key_value_groups, 1) for one in (key, value))
    attend = torch.ops.aten._scaled_dot_product_flash_attention
    found = attend(query, key, value, 0.0, True, scale=named.get("scaling"))[0]
    return found.transpose(1, 2).contiguous(), None


AttentionInterface.register("counted", flash)


def weight_bytes(model: Any) -> int:
    return sum(one.numel() * one.element_size() for one in model.parameters())


@pytest.fixture
def seven(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model; autocast, which `meta` has not, is off, and so adapters count in float32."""
    enabled = torch.is_autocast_enabled
    monkeypatch.setattr(
        torch, "is_autocast_enabled", lambda kind="cuda": kind != "meta" and enabled(kind)
    )
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: nullcontext())
    config = Qwen2Config(**SEVEN)
    config._attn_implementation = "counted"
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
        return new_adapter(model, rank=16, alpha=32.0, targets="all-linear")


def scored(model: Any, ids: torch.Tensor) -> Any:
    """As the trainer scores, every position."""
    decoder = model.get_decoder()
    known = {"full_attention": None}  # where the library would ask the tensors
    hidden = decoder(ids[:, :-1], use_cache=False, attention_mask=known).last_hidden_state
    flat, targets = hidden.flatten(0, 1), ids[:, 1:].flatten()
    weight, chunk = model.get_output_embeddings().weight, ComputeSection().projection_rows
    return project(flat, weight, targets, SETTINGS, chunk=chunk)


def planned_rows(model: Any) -> int:
    """How many rows the update takes at once, with gradient checkpointing."""

    def each() -> float:
        return token_bytes(lambda ids, mask: scored(model, ids), "meta")

    again = each() / SEVEN["num_hidden_layers"]
    checkpoint_activations(model)
    weights = torch.ones(ROWS, LENGTH - 1)
    batch = Batch(
        token_ids=torch.arange(ROWS * LENGTH).view(ROWS, LENGTH),
        weights=weights,
        sampler_logprobs=weights,
        old_logprobs=weights,
        advantages=weights,
        lengths=torch.full((ROWS,), LENGTH),
    )
    most = GPU_SHARE * CARD / (again + each())
    parts = micro_batches(
        batch, Process(), rows=None, group=SAMPLES, most_tokens=most, shares=False
    )
    return max(map(len, parts))


def test_seven_billion_with_an_adapter_fit_on_one_card_of_80_gb(seven: Any) -> None:
    weights = weight_bytes(seven)
    assert weights == pytest.approx(15.4e9, rel=0.01)
    trained = [one for one in seven.parameters() if one.requires_grad]
    assert {one.dtype for one in trained} == {torch.float32}

    room = Room(cached_numbers(seven.config), 2, int((CARD - weights) * CACHE_SHARE), "cuda")
    assert room.rows(LENGTH) >= ROWS, "one batch"
    cache = new_cache(seven.config, ROWS, LENGTH)
    for layer in cache.layers:
        for new in (LENGTH // 2, 1, LENGTH // 2 - 1):
            shape = (ROWS, SEVEN["num_key_value_heads"], new, 128)
            layer.update(*(torch.empty(shape, dtype=torch.bfloat16, device="meta"),) * 2)
    kept = sum(2 * layer.keys.numel() * layer.keys.element_size() for layer in cache.layers)
    assert kept == ROWS * LENGTH * room.numbers * 2 == pytest.approx(7.5e9, rel=0.01)

    rows = planned_rows(seven)
    assert rows == 16, "two whole groups"
    alive = Alive(seven)
    with alive:
        ids = torch.zeros(rows, LENGTH, dtype=torch.long, device="meta")
        logprobs, entropies = scored(seven, ids)
        kept_for_backward = alive.live
        (logprobs.sum() + entropies.sum()).backward()
    optimizer = torch.optim.AdamW(trained, lr=1e-6)
    optimizer.step()
    moments = sum(
        value.numel() * value.element_size()
        for state in optimizer.state.values()
        for value in state.values()
    )
    gradients = sum(one.grad.numel() * one.grad.element_size() for one in trained)
    assert kept_for_backward < 9e9 and alive.peak < GPU_SHARE * CARD * 1.2
    assert weights + moments + gradients + kept + alive.peak < 0.6 * CARD


def test_thirty_two_billion_in_eight_shards_leave_no_room_to_sample() -> None:
    """By arithmetic alone; why docs/training.md sends its sampling to a server."""
    numbers = 32.8e9
    shard = numbers * 4 * (1 + 1 + 2) / 8  # weight, gradient, two moments
    assert shard < CARD - 13e9 and numbers * 4 > CARD


# frozen weights


def rounded(seed: int) -> Any:
    """A model in float32 whose every weight bfloat16 holds exactly, as one that was loaded."""
    return tiny_qwen3(seed).to(torch.bfloat16).float()


def narrow_machine(**sections: Any) -> Machine:
    policy = policy_from(rounded(3), tiny_tokenizer(), "start")
    plan = recipe(compute={"dtype": "bfloat16"}, **sections)
    return Machine(policy, plan, SamplingSettings(), Process(), 0)


def test_frozen_weights_under_an_adapter_are_held_as_they_are_multiplied() -> None:
    machine = narrow_machine(lora={"rank": 2})
    kinds = {
        name.split(".")[-2]: weight.dtype
        for name, weight in machine.model.named_parameters()
        if name.endswith("weight")
    }
    assert kinds["base_layer"] == torch.bfloat16 and kinds["embed_tokens"] == torch.float32
    assert {one.dtype for one in machine.model.parameters() if one.requires_grad} == {torch.float32}
    ids = torch.arange(5, 37).view(2, 16)
    mask = torch.ones(2, 15, dtype=torch.bool)
    found = machine.old(ids, mask)[0]
    for one in machine.model.modules():
        if isinstance(one, torch.nn.Linear):
            one.float()
    assert torch.equal(found, machine.old(ids, mask)[0]), "bit for bit"


def test_a_weight_that_would_be_rounded_stays() -> None:
    model = tiny_qwen3(3).requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    narrow_frozen(model, torch.bfloat16)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_the_reference_takes_half_and_says_the_same_bit_for_bit() -> None:
    machine = narrow_machine(objective={"kl": "k3", "kl_weight": 0.1})
    ids, mask = torch.arange(5, 37).view(2, 16), torch.ones(2, 15, dtype=torch.bool)
    reference = machine._reference
    assert reference is not None and reference.model is not machine.model
    found = machine.reference(ids, mask)
    machine._reference = Scorer(copy.deepcopy(machine.model), SamplingSettings(), ComputeSection())
    assert torch.equal(found, machine.reference(ids, mask))
    model = tiny_qwen3(3)
    embedded = model.get_input_embeddings().weight
    linear = sum(
        one.weight.numel()
        for one in model.modules()
        if type(one) is torch.nn.Linear and one.weight is not embedded
    )
    saved = weight_bytes(model) - weight_bytes(frozen_copy(model, torch.bfloat16))
    assert saved == 2 * linear > 0
