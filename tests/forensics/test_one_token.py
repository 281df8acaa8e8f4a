"""The one-token pass is the model's own function, and stands aside wherever it could not be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from forensics import policy_from
from forensics.policies import huggingface
from forensics.policies.huggingface import one_token_forward, serves
from forensics.policies.kv_cache import new_cache
from forensics.protocols import SamplingSettings
from tests.tiny import tiny_tokenizer

SMALL = {
    "vocab_size": 304,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
DYNAMIC_ROPE = {
    "rope_type": "dynamic",
    "rope_theta": 100.0,
    "factor": 2.0,
    "original_max_position_embeddings": 8,
}
MODELS: dict[str, Callable[[], Any]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True)),
    "qwen2, biases": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL, tie_word_embeddings=False)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "llama, biases everywhere": lambda: LlamaForCausalLM(
        LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True)
    ),
    "llama 3 positions": lambda: LlamaForCausalLM(
        LlamaConfig(**SMALL, rope_parameters=LLAMA3_ROPE)
    ),
    "positions that follow the length": lambda: LlamaForCausalLM(
        LlamaConfig(**SMALL, rope_parameters=DYNAMIC_ROPE)
    ),
}


def made(name: str) -> Any:
    """The model with every parameter (norms and biases too) away from its
    start, so that none can be left out.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@torch.inference_mode()
def compare(model: Any) -> None:
    tokens = torch.randint(
        0, SMALL["vocab_size"], (5, 20), generator=torch.Generator().manual_seed(1)
    )
    step, cache = one_token_forward(model), new_cache(model.config)
    assert step is not None and serves(cache)
    model(tokens[:, :4], past_key_values=cache, use_cache=True)
    for end in range(5, 21):
        logits = step(tokens[:, end - 1 : end], cache)
        wanted = model(tokens[:, :end], use_cache=False).logits[:, -1]
        torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=2e-5)
    assert cache.get_seq_length() == 20


@pytest.mark.parametrize("name", MODELS)
def test_it_gives_the_models_own_logits(name: str) -> None:
    compare(made(name))


def test_it_follows_the_parameters_as_they_are_trained() -> None:
    model = made("qwen3")
    step, tokens = one_token_forward(model), torch.tensor([[3], [4]])
    assert step is not None
    with torch.inference_mode():
        old = step(tokens, new_cache(model.config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    with torch.inference_mode():
        new = step(tokens, new_cache(model.config))
        wanted = model(tokens, use_cache=False).logits[:, -1]
    assert not torch.allclose(old, new)
    torch.testing.assert_close(new, wanted, rtol=1e-4, atol=2e-5)


def with_hook() -> Any:
    model = made("qwen3")
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def with_other_forward() -> Any:
    model = made("qwen3")
    model.model.layers[0].mlp.forward = lambda x: x
    return model


def with_lora() -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(
        made("qwen3"), peft.LoraConfig(target_modules=["q_proj"])
    ).base_model.model


def with_own_layer() -> Any:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = made("qwen3")
    model.model.layers[0].mlp.up_proj = Doubled(48, 80, bias=False)
    return model


def of_own_class() -> Any:
    class Qwen3ForCausalLM(type(made("qwen3"))):  # type: ignore[misc]
        pass

    return Qwen3ForCausalLM(made("qwen3").config)


def with_gelu() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**SMALL, hidden_act="gelu"))


@pytest.mark.parametrize(
    "build",
    [
        with_hook,
        with_other_forward,
        with_lora,
        with_own_layer,
        of_own_class,
        lambda: made("qwen3").bfloat16(),
        lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, attn_implementation="eager")),
        with_gelu,
        lambda: GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50)),
    ],
    ids=[
        "hook",
        "other forward",
        "lora",
        "own layer",
        "own class",
        "bf16",
        "other attention",
        "gelu",
        "gpt2",
    ],
)
def test_it_leaves_what_it_does_not_know_to_the_model(build: Callable[[], Any]) -> None:
    assert one_token_forward(build()) is None


def test_under_autocast_the_policy_draws_from_the_models_own_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Autocast would round the pass's residual stream, which the library keeps in float32."""
    policy = policy_from(made("qwen3"), tiny_tokenizer(), "autocast")
    settings = SamplingSettings(max_turn_tokens=12, max_tokens=60)
    with torch.autocast("cpu", torch.bfloat16):
        drawn = policy.sample([[5, 6, 7, 8]], 8, settings, seed=0)
        monkeypatch.setattr(huggingface, "one_token_forward", lambda model: None)
        assert drawn == policy.sample([[5, 6, 7, 8]], 8, settings, seed=0)
