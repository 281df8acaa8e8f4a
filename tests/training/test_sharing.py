"""Rows that begin alike go through their beginning once: the same numbers and
gradients, with fewer tokens computed.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from forensics.policies.scorer import token_logprobs_and_entropies
from forensics.policies.shared_prefixes import beginnings, computed_tokens
from forensics.protocols import SamplingSettings
from tests.tiny import tiny_qwen3
from tests.training.test_projection import MODELS, assert_close, gradients, seeded

PROMPTS = (9, 12, 9)  # tokens of each group's prompt
SAMPLES, ANSWER = 4, 6


def grouped_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Three groups of four rows, filled up on the right; the mask covers the
    answers (and one later turn's gap).
    """
    generator = torch.Generator().manual_seed(5)
    width = max(PROMPTS) + ANSWER
    ids, mask = (
        torch.zeros(3 * SAMPLES, width, dtype=torch.long),
        torch.zeros(3 * SAMPLES, width - 1, dtype=torch.bool),
    )
    for group, length in enumerate(PROMPTS):
        prompt = torch.randint(3, 300, (length,), generator=generator)
        for row in range(group * SAMPLES, (group + 1) * SAMPLES):
            ids[row, :length] = prompt
            ids[row, length : length + ANSWER] = torch.randint(
                3, 300, (ANSWER,), generator=generator
            )
            mask[row, length - 1 : length + ANSWER - 1] = True
            mask[row, length + 1] = False
    order = torch.randperm(len(ids), generator=generator)
    return ids[order], mask[order]


def decoder_tokens(model: Any, run: Any) -> int:
    """Tokens whose embedding was looked up while `run` ran."""
    seen: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0].numel())
    )
    try:
        run()
    finally:
        handle.remove()
    return sum(seen)


def score(model: Any, share: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = grouped_rows()
    return token_logprobs_and_entropies(model, ids, SamplingSettings(), mask, chunk=7, share=share)


@pytest.mark.parametrize(
    "kind", ["qwen3, tied", "llama", "cohere, scale", "granite, divisor", "phi, bias"]
)
def test_values_and_gradients_are_those_of_whole_rows(kind: str) -> None:
    model, mask = MODELS[kind](), grouped_rows()[1]
    shared, whole = score(model), score(model, share=False)
    for found, wanted in zip(shared, whole, strict=True):
        assert (found[~mask] == 0).all()
        assert_close(found, wanted, 2e-6)
    found_gradients, wanted_gradients = (
        gradients(model, shared, mask),
        gradients(model, whole, mask),
    )
    for name, wanted in wanted_gradients.items():
        assert_close(found_gradients[name], wanted, 2e-5)


def test_an_adapter_is_trained_through_the_beginning_too() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        tiny_qwen3(0), LoraConfig(r=2, target_modules=["k_proj"], init_lora_weights=False)
    ).eval()
    mask = grouped_rows()[1]
    shared, whole = (
        gradients(model, score(model), mask),
        gradients(model, score(model, share=False), mask),
    )
    trained = [name for name in whole if "lora" in name]
    assert trained and all(shared[name].abs().max() > 0 for name in trained)
    for name in trained:
        assert_close(shared[name], whole[name], 2e-5)


def test_the_decoder_sees_as_many_tokens_as_are_claimed() -> None:
    model, (ids, mask) = tiny_qwen3(0).eval(), grouped_rows()
    score(model)  # finds the head, which runs the decoder too
    alike = min(PROMPTS) - 1  # the last token of the shortest prompt predicts the first drawn one
    assert computed_tokens(ids, mask) == 3 * alike + len(ids) * (ids.shape[1] - 1 - alike)
    assert decoder_tokens(model, lambda: score(model)) == computed_tokens(ids, mask)
    assert decoder_tokens(model, lambda: score(model, share=False)) == len(ids) * (ids.shape[1] - 1)


@pytest.mark.parametrize("kind", ["gemma2, soft cap", "windowed"])
def test_a_model_with_windows_sees_whole_rows(kind: str) -> None:
    windowed = seeded("Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0)
    model, ids = windowed if kind == "windowed" else MODELS[kind](), grouped_rows()[0]
    score(model)
    assert decoder_tokens(model, lambda: score(model)) == len(ids) * (ids.shape[1] - 1)


@given(st.data())
def test_beginnings_rebuild_the_rows_and_cover_nothing_that_is_wanted(data: st.DataObject) -> None:
    rows, length = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 12))
    ids = torch.tensor(
        data.draw(
            st.lists(
                st.lists(st.integers(0, 1), min_size=length, max_size=length),
                min_size=rows,
                max_size=rows,
            )
        )
    )
    wanted = torch.tensor(
        data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=length - 1, max_size=length - 1),
                min_size=rows,
                max_size=rows,
            )
        )
    )
    assert 0 < computed_tokens(ids, wanted) <= rows * (length - 1)
    found = beginnings(ids, wanted)
    if found is not None:
        assert torch.equal(found.token_ids[found.owners], ids[:, : found.length])
        assert not wanted[:, : found.length].any() and found.length < length
        assert len(found.token_ids.unique(dim=0)) == len(found.token_ids) < rows
