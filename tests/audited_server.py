"""A loopback server that claims one policy and draws another: other weights, rounded ones,
cut-off sampling, drafting that accepts too much. Speculative decoding is done for real, one
token ahead: the drafter draws, the target accepts or draws from what is left.

`faults` are named in `FAULTS`; with `liar` the log-probabilities that it tells are the claimed
policy's, whatever it draws from.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from forensics.policies.distribution import draw, log_distribution, row_stream
from forensics.policies.kv_cache import new_cache
from forensics.protocols import Policy, SamplingSettings
from tests.resampling.completion_stub import CompletionStub

HEALTHY = ("float32", "bfloat16", "lossless")
FAULTS = (
    "lossy-1.3",
    "lossy-threshold",
    "lossy-typical",
    "other",
    "stale",
    "int8",
    "int4",
    "top-p",
    "top-k",
    "hot",
)


def rounded(model: Any, bits: int) -> Any:
    """Weights of linear layers rounded to so many bits, symmetric, a scale a row."""
    other, most = copy.deepcopy(model), 2 ** (bits - 1) - 1
    for module in other.modules():
        if isinstance(module, torch.nn.Linear):
            weight = module.weight.data
            scale = weight.abs().amax(1, keepdim=True) / most
            module.weight = torch.nn.Parameter((weight / scale).round() * scale)
    return other.eval()


def blended(model: Any, before: Any, share: float) -> Any:
    """Weights this share of the way back to those of before."""
    other, old = copy.deepcopy(model), dict(before.named_parameters())
    for name, weight in other.named_parameters():
        weight.data.lerp_(old[name].data, share)
    return other.eval()


class AuditedServer(CompletionStub):
    """Serves `claimed`, or what it passes for. `drafter`: of speculative decoding; also the
    policy before training.
    """

    def __init__(self, claimed: Policy, drafter: Policy, kind: str, liar: bool = False) -> None:
        super().__init__(claimed)
        model, self.liar, self.kind = claimed.model, liar, kind
        made: dict[str, Callable[[], Any]] = {
            "bfloat16": lambda: copy.deepcopy(model).bfloat16(),
            "other": lambda: drafter.model,
            "stale": lambda: blended(model, drafter.model, 0.1),
            "int8": lambda: rounded(model, 8),
            "int4": lambda: rounded(model, 4),
        }
        self.target = made.get(kind, lambda: model)()
        self.drafter = drafter.model if kind.startswith("loss") else None

    def generate(
        self, policy: Policy, body: dict[str, Any], seeds: list[int]
    ) -> list[tuple[list[int], list[float | None], str]]:
        settings = SamplingSettings(
            temperature=body.get("temperature", 1.0), top_k=max(body.get("top_k", 0), 0)
        )
        with torch.inference_mode():
            return self._drawn(policy, body, seeds, settings)

    def _drawn(self, policy: Policy, body: dict[str, Any], seeds: list[int], settings: Any) -> Any:
        models = [self.target, policy.model if self.liar else None, self.drafter]
        passes = [None if model is None else _Pass(model) for model in models]
        streams, stops = [row_stream(seed) for seed in seeds], set(body.get("stop_token_ids", ()))
        new = torch.tensor([body["prompt"]]).repeat(len(seeds), 1)
        rows: list[list[int]] = [[] for _ in seeds]
        told: list[list[float | None]] = [[] for _ in seeds]
        living = set(range(len(seeds)))
        for _ in range(body["max_tokens"]):
            target, claimed, drafter = (None if one is None else one(new) for one in passes)
            for token, bias in body.get("logit_bias", {}).items():
                target[:, int(token)] += bias
            p = log_distribution(target, self._served(settings))
            uniforms = [stream.random(3).tolist() for stream in streams]
            if drafter is None:
                tokens = _inverted(p, [u[0] for u in uniforms])
            else:
                tokens = self._drafted(p, log_distribution(drafter, settings), uniforms)
            says = p if claimed is None else log_distribution(claimed, replace(settings, top_k=0))
            for i in living:
                rows[i].append(int(tokens[i]))
                told[i].append(float(says[i, tokens[i]]))
            living = {i for i in living if rows[i][-1] not in stops}
            if not living:
                break
            new = tokens[:, None]
        ends = ["length" if i in living else "stop" for i in range(len(seeds))]
        return list(zip(rows, told, ends, strict=True))

    def _served(self, settings: SamplingSettings) -> SamplingSettings:
        if self.kind == "hot":
            return replace(settings, temperature=1.1 * settings.temperature)
        if settings.temperature == 1 and settings.top_k == 0:  # not where it is being probed
            cut = {"top-p": {"top_p": 0.95}, "top-k": {"top_k": 20}}.get(self.kind, {})
            return replace(settings, **cut)
        return settings

    def _drafted(self, p: Any, d: Any, uniforms: list[list[float]]) -> Any:
        tokens = _inverted(d, [u[0] for u in uniforms])
        at = tokens[:, None]
        ratio, p_at = (p - d).gather(1, at).exp()[:, 0], p.gather(1, at).exp()[:, 0]
        entropy = -(p.exp() * p.clamp(min=-1e4)).sum(1)
        accept = {
            "lossless": ratio,
            "lossy-1.3": 1.3 * ratio,
            "lossy-threshold": torch.where(p_at > 0.1, 1.0, ratio),
            "lossy-typical": (
                p_at > torch.minimum(0.09 * torch.ones(()), 0.3 * (-entropy).exp())
            ).float(),
        }[self.kind]
        left = (p.exp() - d.exp()).clamp(min=0)
        left = torch.where(left.sum(1, keepdim=True) > 0, left, p.exp())
        if self.kind == "lossy-typical":  # what is refused is drawn greedily
            left = torch.nn.functional.one_hot(p.argmax(1), p.shape[1]).float()
        again = _inverted(left.log(), [u[2] for u in uniforms])
        kept = torch.tensor([u[1] for u in uniforms]) < accept
        return torch.where(kept, tokens, again)


class _Pass:
    def __init__(self, model: Any) -> None:
        self.model, self.cache = model, new_cache(model.config)

    def __call__(self, new: Any) -> Any:
        found = self.model(new, past_key_values=self.cache, use_cache=True)
        return found.logits[:, -1].float()


def _inverted(log_p: Any, uniforms: list[float]) -> Any:
    return draw(log_p, range(len(uniforms)), uniforms)
