"""Models whose memory cannot be forked from a stem: windows, states, states out
of reach. The tree gives with each of them what reading every text anew gives,
and so does scoring.
"""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from forensics import policy_from
from forensics.policies.distribution import log_distribution
from forensics.policies.kv_cache import find_cache_kind
from forensics.protocols import Policy, SamplingSettings
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.trace_rollouts import Request
from tests.resampling.lucky_world import Lucky
from tests.resampling.one_by_one import one_by_one
from tests.tiny import tiny_qwen3, tiny_tokenizer

SETTINGS = SamplingSettings(temperature=0.7, max_turn_tokens=9, max_tokens=200)
SMALL = {
    "vocab_size": 304,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "initializer_range": 0.3,
}
WINDOW = 6  # tokens: every text here is longer
NEXT = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 0,
    "mlp_only_layers": [0, 1],
    "layer_types": ["linear_attention", "full_attention"],
}
MAMBA = {
    "num_experts": 2,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "mamba_d_state": 4,
    "mamba_dt_rank": 4,
}


def made(kind: str) -> Any:
    t = transformers
    return {
        "qwen3": lambda: tiny_qwen3(0),
        "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**SMALL, sliding_window=WINDOW)),
        "gemma3": lambda: t.Gemma3ForCausalLM(
            t.Gemma3TextConfig(
                **SMALL,
                head_dim=16,
                sliding_window=WINDOW,
                layer_types=["sliding_attention", "full_attention"],
            )
        ),
        "qwen3-next": lambda: t.Qwen3NextForCausalLM(
            t.Qwen3NextConfig(**SMALL, head_dim=16, **NEXT)
        ),
        "jamba": lambda: t.JambaForCausalLM(t.JambaConfig(**SMALL, **MAMBA)),
        "mamba": lambda: t.MambaForCausalLM(
            t.MambaConfig(
                vocab_size=304,
                hidden_size=32,
                num_hidden_layers=2,
                state_size=4,
                eos_token_id=2,
                initializer_range=0.3,
            )
        ),
        "recurrent-gemma": lambda: t.RecurrentGemmaForCausalLM(
            t.RecurrentGemmaConfig(
                **{**SMALL, "num_hidden_layers": 3},
                head_dim=16,
                attention_window_size=WINDOW,
                lru_width=32,
            )
        ),
    }[kind]()


KINDS = {
    "qwen3": "own",
    "mistral": "library",
    "gemma3": "library",
    "qwen3-next": "one-token",
    "jamba": "one-token",
    "mamba": "none",
    "recurrent-gemma": "none",
}


QUICK = ("qwen3", "mistral", "jamba", "mamba")  # one of each kind


@pytest.fixture(
    params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KINDS],
    scope="module",
)
def policy(request: pytest.FixtureRequest) -> Policy:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = made(request.param).eval()
    assert find_cache_kind(model) == KINDS[request.param]
    return policy_from(model, tiny_tokenizer(), request.param)


def test_the_tree_gives_what_one_by_one_gives(policy: Policy) -> None:
    world = Lucky(turns=2)
    runs = {run.id: run for run in policy.play(world, world.tasks("train", 2, 0), 1, SETTINGS, 4)}
    requests = [
        Request(trace=trace.id, kept=kept, n=3)
        for trace in traces(policy, runs.values(), SETTINGS)
        for kept in (0, 3, len(trace) // 2 + 1, len(trace) - 1)
    ]
    assert (policy.prefix_caches([[3, 4]]) is None) == (policy.cache_kind != "own")
    parted = set()
    for rollout in LocalSampler(policy, world, runs.values(), SETTINGS, 2).draw(requests):
        wanted = next(r for r in requests if (r.trace, r.kept) == (rollout.trace, rollout.kept))
        alone = one_by_one(policy, world, runs[rollout.trace], wanted, rollout.number, SETTINGS, 2)
        assert (rollout.tokens, rollout.followed, rollout.outcome) == (
            alone.tokens,
            alone.followed,
            alone.outcome,
        )
        parted.add(rollout.tokens)
    assert len(parted) > len(requests)


def test_recorded_and_scored_log_probabilities_are_those_of_a_plain_pass(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.policies.score_columns.WINDOW_POSITIONS", 5)
    for run in policy.play(Lucky(turns=2), ["try 0", "try 1"], 2, SETTINGS, 4):
        ids = [i for step in run.steps for i in step.token_ids or ()]
        with torch.inference_mode():
            logits = policy.model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
        plain = (
            log_distribution(logits, SETTINGS)
            .gather(-1, torch.tensor(ids[1:])[:, None])
            .squeeze(-1)
            .numpy()
        )
        assert np.abs(policy.logprobs([ids], SETTINGS)[0] - plain).max() < 1e-3
        drawn = np.array([flag for step in run.steps for flag in step.sampled or ()])[1:]
        recorded = [value for step in run.steps for value in step.logprobs or ()]
        assert np.abs(plain[drawn] - recorded).max() < 1e-3
