"""A step in standing buffers is the model's own step, whatever the rows did before.

Graphs themselves need a GPU; here the same step runs uncaptured.
"""

from itertools import chain
from typing import Any

import pytest
import torch

from forensics import policy_from
from forensics.policies import captured_step, huggingface
from forensics.policies.captured_step import CapturedSteps, StandingLayer, captured_steps
from forensics.policies.kv_cache import Spots
from forensics.protocols import SamplingSettings
from tests.forensics.test_one_token import MODELS, SMALL, made
from tests.tiny import tiny_tokenizer

PREFIXES = [[1, 5, 9], [1, 5, 9, 30, 31], [1, 7, 8, 12], [1, 5, 9, 30]]


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_steps_are_plain_passes(name: str) -> None:
    model = made(name)
    steps = CapturedSteps(model, capture=False)
    cache = steps.new_cache(5, 20)
    tokens = torch.randint(0, SMALL["vocab_size"], (5, 20), generator=torch.Generator())
    model(tokens[:, :4], past_key_values=cache, use_cache=True)
    for end in range(5, 21):
        assert steps.serves(cache)
        logits = steps(tokens[:, end - 1 : end], cache)
        wanted = model(tokens[:, :end], use_cache=False).logits[:, -1]
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=2e-5)
    assert cache is not None and cache.get_seq_length() == 20


def sampled(monkeypatch: pytest.MonkeyPatch, model: Any, standing: bool, **more: Any) -> Any:
    """Continuations with rows that part and end, by plain passes or by steps."""
    steps = CapturedSteps(model, capture=False)
    used = []

    monkeypatch.setattr(huggingface, "captured_steps", lambda _: steps if standing else None)
    monkeypatch.setattr(huggingface, "one_token_forward", lambda _: None)
    run = steps._run

    def noted(*given: Any) -> Any:
        used.append(1)
        return run(*given)

    monkeypatch.setattr(steps, "_run", noted)
    policy = policy_from(model, tiny_tokenizer(), "it")
    settings = SamplingSettings(max_turn_tokens=40, max_tokens=60, **more)
    found = policy.sample(PREFIXES, 7, settings, seed=3)
    assert bool(used) == standing
    return found


@pytest.mark.parametrize("more", [{}, {"temperature": 0.0}, {"repetition_penalty": 1.3}])
def test_the_same_tokens_are_drawn(monkeypatch: pytest.MonkeyPatch, more: Any) -> None:
    model = made("qwen3")
    plain = sampled(monkeypatch, model, False, **more)
    steps = sampled(monkeypatch, model, True, **more)
    for a, b in zip(chain(*plain), chain(*steps), strict=True):
        assert a.token_ids == b.token_ids and a.stop == b.stop
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


@pytest.mark.parametrize("wrong", [False, True])
@torch.inference_mode()
def test_rows_may_stand_apart(monkeypatch: pytest.MonkeyPatch, wrong: bool) -> None:
    model = made("qwen2, biases")
    steps = CapturedSteps(model, capture=False)
    cache: Any = steps.new_cache(3, 20)
    tokens = torch.randint(0, SMALL["vocab_size"], (3, 12), generator=torch.Generator())
    model(tokens, past_key_values=cache, use_cache=True)
    ends = torch.tensor([12, 5, 9])  # each row's own text is shorter
    other = (tokens.gather(1, ends[:, None] - 1) + 1).remainder(SMALL["vocab_size"])
    places = ends[:, None] - 1
    mask = torch.arange(12) <= places[:, None, :, None]
    for layer in cache.layers:
        layer.spots = Spots(rows=torch.arange(3), at=places, end=12)
    plain = steps._run
    if wrong:
        monkeypatch.setattr(steps, "_run", lambda *given: plain(*given).flip(-1))
        with pytest.warns(UserWarning, match="not captured"):
            assert steps.apart(other, cache, position_ids=places, attention_mask=mask) is None
        return
    found = steps.apart(other, cache, position_ids=places, attention_mask=mask)
    assert found is not None and cache.get_seq_length() == 12
    for row, end in enumerate(ends.tolist()):
        text = torch.cat([tokens[row, : end - 1], other[row]])[None]
        wanted = model(text, use_cache=False).logits[0, -1]
        torch.testing.assert_close(found[row], wanted, rtol=1e-4, atol=2e-5)


@torch.inference_mode()
def test_buffers_grow_and_serve_the_next_batch() -> None:
    model = made("qwen3")
    steps = CapturedSteps(model, capture=False)
    cache: Any = steps.new_cache(2, 8)
    text = torch.arange(200).remainder(SMALL["vocab_size"])[None].expand(2, -1)
    model(text[:, :100], past_key_values=cache, use_cache=True)
    for end in range(101, 180):
        logits = steps(text[:, end - 1 : end], cache)
    wanted = model(text[:, :179], use_cache=False).logits[:, -1]
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=2e-5)
    large = cache.layers[0].keys
    assert large.shape[2] == 256
    assert steps.new_cache(2, 8) is None  # another one stands there
    del cache
    again: Any = steps.new_cache(2, 8)
    model(text[:, :9], past_key_values=again, use_cache=True)
    assert again.layers[0].keys.data_ptr() == large.data_ptr()


@torch.inference_mode()
def test_a_step_that_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("qwen3")
    steps = CapturedSteps(model, capture=False)
    cache: Any = steps.new_cache(3, 20)
    tokens = torch.randint(0, SMALL["vocab_size"], (3, 6), generator=torch.Generator())
    model(tokens[:, :5], past_key_values=cache, use_cache=True)
    plain = steps._run
    monkeypatch.setattr(steps, "_run", lambda *given: plain(*given).flip(-1))
    with pytest.warns(UserWarning, match="not captured"):
        assert steps(tokens[:, 5:], cache) is None
    assert cache.get_seq_length() == 5 and not steps.serves(cache)
    assert steps.new_cache(3, 20) is None
    left = model(tokens[:, 5:], past_key_values=cache, use_cache=True).logits[:, -1]
    wanted = model(tokens, use_cache=False).logits[:, -1]
    torch.testing.assert_close(left, wanted, rtol=1e-4, atol=2e-5)


@torch.inference_mode()
def test_another_storage_of_a_parameter_starts_anew() -> None:
    model = made("qwen3")
    steps = CapturedSteps(model, capture=False)
    tokens = torch.ones((2, 1), dtype=torch.long)
    cache: Any = steps.new_cache(2, 20)
    model(tokens, past_key_values=cache, use_cache=True)
    assert steps(tokens, cache) is not None and len(steps._steps) == 1
    model.model.norm.weight.data.mul_(2)  # in place, as an optimizer does
    del cache
    cache = steps.new_cache(2, 20)
    assert len(steps._steps) == 1
    model.model.norm.weight.data = model.model.norm.weight.data.clone()
    del cache
    assert steps.new_cache(2, 20) is not None and not steps._steps


def test_none_on_a_cpu_or_with_a_hook() -> None:
    model = made("qwen3")
    assert captured_steps(model) is None
    assert captured_step._can_be_captured(model)
    handle = model.model.layers[0].register_forward_hook(lambda *_: None)
    assert not captured_step._can_be_captured(model)
    handle.remove()
    assert StandingLayer.is_sliding is False
