"""The forward pass of one new token a row, for plain Llama-like models on a
CPU.

Lockstep decoding calls the model some hundred times with one token a row, and
for a small model the library's modules then cost more than their arithmetic.
This pass does the same arithmetic on the model's live parameters (no copy, so
it follows training) with a third of the operations. It is used only where it is
sure to be the same function: float32 without autocast, every module one of the
library's own or plain, no hooks, our KV cache. Anything else (LoRA, shards,
interventions, other architectures) goes through the model itself.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

from forensics.policies.kv_cache import GrowingLayer

ARCHITECTURES = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
PLAIN = (torch.nn.Linear, torch.nn.Embedding, torch.nn.ModuleList)

OneToken = Callable[[torch.Tensor, Any], torch.Tensor]


def one_token_forward(model: Any) -> OneToken | None:
    """`forward(input_ids [rows, 1], cache) -> logits [rows, vocabulary]`, or
    `None` where the model must do it.
    """
    return _Pass(model) if _is_plain(model) else None


def serves(cache: Any) -> bool:
    """Whether the pass can run now: the cache is ours in every layer, and no
    autocast rounds the residual stream.
    """
    return not torch.is_autocast_enabled("cpu") and all(
        type(layer) is GrowingLayer for layer in cache.layers
    )


def _is_plain(model: Any) -> bool:
    config = getattr(model, "config", None)
    home = type(model).__module__
    return (
        type(model).__name__ in ARCHITECTURES
        and home.startswith("transformers.models.")
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and getattr(config, "hidden_act", None) == "silu"
        and all(_is_own(module, home) for module in model.modules())
    )


def _is_own(module: torch.nn.Module, home: str) -> bool:
    """A class of the library's file for this architecture, or a plain one, and no
    hook on it; SwiGLU's activation is in `hidden_act`.
    """
    kind = type(module)
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    return kind in PLAIN or kind.__module__ == home or "silu" in kind.__name__.lower()


class _Pass:
    def __init__(self, model: Any) -> None:
        self._body, self._head = model.model, model.lm_head

    def __call__(self, input_ids: torch.Tensor, cache: Any) -> torch.Tensor:
        x = functional.embedding(input_ids[:, 0], self._body.embed_tokens.weight)
        turn = self._rotation(x, cache.get_seq_length())
        for layer, kept in zip(self._body.layers, cache.layers, strict=True):
            x = self._attention(layer.self_attn, _norm(x, layer.input_layernorm), x, turn, kept)
            mlp, y = layer.mlp, _norm(x, layer.post_attention_layernorm)
            gate = functional.silu(_linear(y, mlp.gate_proj), inplace=True)
            x = _add_linear(x, gate.mul_(_linear(y, mlp.up_proj)), mlp.down_proj)
        return _linear(_norm(x, self._body.norm), self._head)

    def _rotation(self, x: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines `[head_dim]`: every row stands at the same position."""
        cosines, sines = self._body.rotary_emb(x[None, :1], torch.tensor([[position]]))
        half = sines.shape[-1] // 2
        return cosines[0, 0], torch.cat([-sines[0, 0, :half], sines[0, 0, half:]])

    def _attention(
        self,
        attention: Any,
        y: torch.Tensor,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        kept: Any,
    ) -> torch.Tensor:
        shape = (y.shape[0], -1, attention.head_dim)
        query = _linear(y, attention.q_proj).view(shape)
        key = _linear(y, attention.k_proj).view(shape)
        value = _linear(y, attention.v_proj).view(shape)
        if hasattr(attention, "q_norm"):
            query, key = _norm(query, attention.q_norm), _norm(key, attention.k_norm)
        keys, values = kept.update(_turned(key, *turn)[:, :, None], value[:, :, None])
        # two products: the library's kernel is made for many queries and takes longer for one
        query = (_turned(query, *turn) * attention.scaling).view(
            y.shape[0], keys.shape[1], -1, shape[-1]
        )
        mixed = (query @ keys.transpose(-1, -2)).softmax(-1) @ values
        return _add_linear(x, mixed.reshape(y.shape[0], -1), attention.o_proj)


def _norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """RMSNorm over the last dimension."""
    mean_square = torch.linalg.vecdot(x, x).div_(x.shape[-1])
    scale: torch.Tensor = mean_square.add_(norm.variance_epsilon).rsqrt_().unsqueeze_(-1)
    return (x * scale).mul_(norm.weight)


def _linear(x: torch.Tensor, linear: Any) -> torch.Tensor:
    return functional.linear(x, linear.weight, linear.bias)


def _add_linear(x: torch.Tensor, y: torch.Tensor, linear: Any) -> torch.Tensor:
    """`x + linear(y)` in one operation."""
    added = torch.addmm(x, y, linear.weight.t())
    return added if linear.bias is None else added.add_(linear.bias)


def _turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of `[rows, heads, head_dim]`, halves rotated into each
    other (2104.09864).
    """
    rows, heads, width = x.shape
    other = x.view(rows, heads, 2, width // 2).flip(-2).view(rows, heads, width)
    return (x * cosines).addcmul_(other, sines)
