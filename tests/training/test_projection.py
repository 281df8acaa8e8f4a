"""Chunked equals dense: values and gradients, for heads of several kinds, and
the memory is what it claims.
"""

from typing import Any

import pytest
import torch
from torch import nn

from forensics.policies.distribution import log_distribution
from forensics.policies.output_head import LogitFormula, output_head
from forensics.policies.scorer import project, token_logprobs_and_entropies
from forensics.protocols import SamplingSettings
from tests.tiny import tiny_qwen3

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 304, "max_position_embeddings": 128, "pad_token_id": 0,
}  # fmt: skip


def seeded(kind: str, **more: Any) -> Any:
    """A tiny random model of a family; weights large enough that a soft cap bends the logits."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**SIZES | more)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model.eval()


def phi() -> Any:
    """A head with a bias that is not zero."""
    model = seeded("Phi", num_key_value_heads=2)
    torch.nn.init.normal_(model.lm_head.bias)
    return model


class Strange(nn.Module):
    """A model around another whose head does something that no config tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = seeded("Llama")
        self.config = self.inner.config
        self.shift = nn.Parameter(torch.linspace(0, 3, 304))

    def get_decoder(self) -> Any:
        return self.inner.model

    def get_output_embeddings(self) -> Any:
        return self.inner.lm_head

    def forward(self, *arguments: Any, **options: Any) -> Any:
        output = self.inner(*arguments, **options)
        output.logits = output.logits + self.shift
        return output


MODELS = {
    "qwen3, tied": lambda: tiny_qwen3(0),
    "llama": lambda: seeded("Llama"),
    "gemma2, soft cap": lambda: seeded(
        "Gemma2", head_dim=16, final_logit_softcapping=5.0, sliding_window=64
    ),
    "cohere, scale": lambda: seeded("Cohere", logit_scale=0.25),
    "granite, divisor": lambda: seeded("Granite", logits_scaling=4.0),
    "phi, bias": phi,
    "head that no config tells of": Strange,
}
SETTINGS = {
    "plain": SamplingSettings(),
    "temperature": SamplingSettings(temperature=0.7),
    "top-k": SamplingSettings(top_k=20),
    "top-p": SamplingSettings(top_p=0.9, temperature=1.3),
}


def dense(
    model: Any, ids: torch.Tensor, how: SamplingSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition, with all logits, through autograd."""
    spread = log_distribution(model(ids[:, :-1], use_cache=False).logits, how)
    summands = spread.exp() * spread.masked_fill(spread.isinf(), 0.0)
    return spread.gather(-1, ids[:, 1:, None]).squeeze(-1), -summands.sum(-1)


def some_rows(model: Any, how: SamplingSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows whose second half was drawn from the model, and a mask on part of it."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 304, (3, 14), generator=generator)
    with torch.no_grad():
        for at in range(7, 14):
            spread = log_distribution(model(ids[:, :at], use_cache=False).logits[:, -1], how)
            ids[:, at] = torch.multinomial(spread.exp(), 1, generator=generator).squeeze(-1)
    mask = torch.rand(3, 13, generator=generator) < 0.7
    mask[:, :6] = False
    return ids, mask


def gradients(
    model: Any, values: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Of a sum of both numbers with unequal factors."""
    model.zero_grad()
    factors = torch.linspace(-1, 2, mask.numel()).reshape(mask.shape)
    sum((factors * torch.where(mask, value, 0.0)).sum() for value in values).backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }


def assert_close(found: torch.Tensor, wanted: torch.Tensor, share: float) -> None:
    assert (found - wanted).abs().max() <= share * wanted.abs().max() + 1e-12


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("how", SETTINGS)
def test_chunked_equals_dense(kind: str, how: str) -> None:
    model = MODELS[kind]()
    ids, mask = some_rows(model, SETTINGS[how])
    chunked = token_logprobs_and_entropies(model, ids, SETTINGS[how], mask, chunk=5)
    definition = dense(model, ids, SETTINGS[how])
    for found, wanted in zip(chunked, definition, strict=True):
        assert (found[~mask] == 0).all() and found[mask].isfinite().all()
        assert_close(found[mask], wanted[mask], 2e-6)
    found, wanted = gradients(model, chunked, mask), gradients(model, definition, mask)
    for name in wanted:
        assert_close(found[name], wanted[name], 2e-5)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("qwen3, tied", LogitFormula()),
        ("gemma2, soft cap", LogitFormula(cap=5.0)),
        ("cohere, scale", LogitFormula(scale=0.25)),
        ("granite, divisor", LogitFormula(scale=0.25)),
        ("phi, bias", LogitFormula()),
        ("head that no config tells of", None),
    ],
)
def test_the_head_is_found_by_what_the_model_does(kind: str, formula: LogitFormula | None) -> None:
    head = output_head(MODELS[kind]())
    assert (head.formula if head else None) == formula


def test_a_head_with_an_adapter_a_hook_or_a_patch_is_run_as_a_whole() -> None:
    from peft import LoraConfig, get_peft_model

    hooked, patched = seeded("Llama"), seeded("Llama")
    hooked.lm_head.register_forward_hook(lambda module, arguments, output: output * 2)
    patched.lm_head.forward = lambda hidden: hidden @ patched.lm_head.weight.T * 3
    adapted = get_peft_model(seeded("Llama"), LoraConfig(r=2, target_modules=["lm_head", "q_proj"]))
    within = get_peft_model(seeded("Llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    assert (
        output_head(hooked) is None
        and output_head(patched) is None
        and output_head(adapted) is None
    )
    assert output_head(within) is not None
    ids, mask = some_rows(hooked, SamplingSettings())
    found = token_logprobs_and_entropies(hooked, ids, SamplingSettings(), mask)[0]
    assert_close(found[mask], dense(hooked, ids, SamplingSettings())[0][mask], 2e-6)


def test_an_adapter_inside_the_model_is_trained_and_the_frozen_head_has_no_gradient() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        tiny_qwen3(0), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    ).eval()
    ids, mask = some_rows(model, SamplingSettings())
    found = gradients(
        model, token_logprobs_and_entropies(model, ids, SamplingSettings(), mask, chunk=4), mask
    )
    wanted = gradients(model, dense(model, ids, SamplingSettings()), mask)
    trained = [name for name in wanted if "lora" in name]
    assert trained and all(found[name].abs().max() > 0 for name in trained)
    for name in wanted:
        assert_close(found[name], wanted[name], 2e-5)


def test_full_logits_never_exist() -> None:
    """Every tensor that any operation makes, forward and backward: none larger
    than the weights or a chunk.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(
            self, call: Any, types: Any, arguments: Any = (), options: Any = None
        ) -> Any:
            output = call(*arguments, **options or {})
            sizes = [leaf.numel() for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
            self.size = max([self.size, *sizes])
            return output

    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(n, 4, generator=generator, requires_grad=True) for n in (512, 3000)
    )
    with Largest() as largest:
        logprobs, entropies = project(
            hidden, weight, torch.zeros(512, dtype=torch.long), SamplingSettings(), chunk=8
        )
        (logprobs + entropies).sum().backward()
    assert largest.size == 8 * 3000
