"""A loopback server that claims one policy and draws another. `kind`: `other` weights or rounded
ones (`bfloat16`), cut-off sampling (`top-p`), drafting (`lossless`; `lossy-threshold` accepts too
much), done for real, one token ahead: the drafter draws, the target accepts or draws from what is
left. With `liar` the log-probabilities that it tells are the claimed policy's.
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
        probed = settings.temperature != 1 or settings.top_k != 0
        return replace(settings, top_p=0.95) if self.kind == "top-p" and not probed else settings

    def _drafted(self, p: Any, d: Any, uniforms: list[list[float]]) -> Any:
        tokens = _inverted(d, [u[0] for u in uniforms])
        at = tokens[:, None]
        ratio, p_at = (p - d).gather(1, at).exp()[:, 0], p.gather(1, at).exp()[:, 0]
        accept = {
            "lossless": ratio,
            "lossy-threshold": torch.where(p_at > 0.1, 1.0, ratio),
        }[self.kind]
        left = (p.exp() - d.exp()).clamp(min=0)
        left = torch.where(left.sum(1, keepdim=True) > 0, left, p.exp())
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
