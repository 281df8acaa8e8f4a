"""Continuations at every prefix: our tree against
`model.generate(num_return_sequences=64)`.

A bundled policy's runs in `mini-repo`, from every token on to the end of the run. Both sides get
the same prefixes, number of continuations, settings and model. The peer goes prefix by prefix, as
the published method's code does, with a KV cache: it draws the rest of the running action with
`num_return_sequences=64`, and each later action of the 64 episodes with `generate` on their token
ids, filled up on the left; environments and snapshots are shared.

One long text of a random policy, and a GPU, were measured at commit 43009eee.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import in_turn, spread
from benchmarks.rollout import until_stop
from forensics import load_policy
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling import LocalSampler, Request, Trace, trace_of
from resampling.samplers import replay_run
from training import MiniRepo, checkpoint_path

LIMIT = 4.0
N = 64
EPISODES = 3
TURNS = SamplingSettings(max_turn_tokens=16, max_tokens=256)


@dataclass(frozen=True, kw_only=True)
class Made:
    """Rollouts, and their sampled tokens."""

    rollouts: int
    tokens: int
    success: float


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Tokens a second, and the ratio of rollouts a second, pair by pair."""
    policy = load_policy(checkpoint_path("bundled:open-base"), device=device, dtype="float32")
    world = MiniRepo(world="open")
    runs = list(policy.play(world, world.tasks("held-out", EPISODES, 0), 1, TURNS, 0))
    sides: dict[str, Callable[[int], Made]] = {
        "tree": lambda seed: tree(policy, world, runs, seed),
        "generate": lambda seed: turn_by_turn(policy, world, runs, seed),
    }
    seconds, made = in_turn(sides, repeats)
    return {
        "benchmark": f"{N} continuations at every token of {EPISODES} episodes",
        "limit": LIMIT,
        "ratio": spread([b / a for a, b in zip(seconds["tree"], seconds["generate"], strict=True)]),
        "tokens_per_second": {
            side: spread([made[side].tokens / t for t in times]) for side, times in seconds.items()
        },
        "work": {side: vars(value) for side, value in made.items()},
        "device": device,
    }


def tree(policy: Policy, world: Environment, runs: Sequence[Trajectory], seed: int) -> Made:
    """Ours. A sampler of its own each time: texts are read and runs replayed
    within the time that counts.
    """
    sampler = LocalSampler(policy, world, runs, TURNS, seed)
    requests = [
        Request(trace=run.id, kept=kept, n=N)
        for run in runs
        for kept in range(run.sampled_tokens or 0)
    ]
    rollouts = list(sampler.draw(requests))
    return Made(
        rollouts=len(rollouts),
        tokens=sum(len(rollout.tokens) for rollout in rollouts),
        success=statistics.mean(rollout.outcome or 0 for rollout in rollouts),
    )


def turn_by_turn(policy: Policy, world: Environment, runs: Sequence[Trajectory], seed: int) -> Made:
    """The library, prefix by prefix: 64 sequences of the running action, then
    64 episodes turn by turn.
    """
    import torch

    torch.manual_seed(seed)
    made = list[Made]()
    for run in runs:
        again, trace = replay_run(run, world, policy.renderer), trace_of(run)
        made += [_from_prefix(policy, again, trace, at) for at in range(run.sampled_tokens or 0)]
    return Made(
        rollouts=sum(one.rollouts for one in made),
        tokens=sum(one.tokens for one in made),
        success=sum(one.success for one in made) / len(made),
    )


def _from_prefix(policy: Policy, again: Any, trace: Trace, kept: int) -> Made:
    """`N` episodes from one prefix."""
    action = sorted(set(trace.steps)).index(trace.steps[kept])
    start = trace.positions[trace.steps.index(trace.steps[kept])]
    prefix = list(trace.prefix(kept))
    running = [
        {"ids": list(prefix), "start": start, "world": again.before(action, 0)} for _ in range(N)
    ]
    tokens, wins, repeated = 0, 0.0, True
    while running:
        drawn = _generated(policy, running, repeated)
        repeated, left = False, []
        for row, new in zip(running, drawn, strict=True):
            tokens += len(new)
            row["ids"] += new
            said = row["ids"][row["start"] :]
            result = row["world"].step(policy.renderer.action_text(said))
            wins += result.outcome or 0.0
            if not (result.terminated or result.truncated):
                row["ids"] += policy.renderer.reply(result.observation, said)
                row["start"] = len(row["ids"])
                left += [row] if len(row["ids"]) < TURNS.max_tokens else []
        running = left
    return Made(rollouts=N, tokens=tokens, success=wins / N)


def _generated(policy: Policy, rows: list[dict[str, Any]], same: bool) -> list[list[int]]:
    """The rest of each row's action; `same`: all rows are one prefix."""
    import torch

    width = max(len(row["ids"]) for row in rows)
    asked = rows[:1] if same else rows
    ids = torch.tensor([[0] * (width - len(row["ids"])) + row["ids"] for row in asked]).to(
        policy.model.device
    )
    mask = torch.tensor([[0] * (width - len(row["ids"])) + [1] * len(row["ids"]) for row in asked])
    most = TURNS.max_turn_tokens - (width - rows[0]["start"] if same else 0)
    with torch.inference_mode():
        made = policy.model.generate(
            ids,
            attention_mask=mask.to(ids.device),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=len(rows) if same else 1,
            max_new_tokens=most,
            eos_token_id=sorted(policy.renderer.stops),
            pad_token_id=0,
        )
    return [until_stop(new, policy.renderer.stops) for new in made[:, width:].tolist()]
