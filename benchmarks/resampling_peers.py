"""The peers of the resampling engine: `generate(num_return_sequences=64)`, prefix by prefix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rollout import _until_stop
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from resampling import Trace, trace_of
from resampling.samplers import replay_run

N = 64
TURNS = SamplingSettings(max_turn_tokens=16, max_tokens=256)


@dataclass(frozen=True, kw_only=True)
class Size:
    """`tokens`: of an answer; `every`: the distance between prefixes."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    tokens: int
    every: int
    texts: int


@dataclass(frozen=True, kw_only=True)
class Made:
    """Rollouts, and their sampled tokens."""

    rollouts: int
    tokens: int
    success: float = 1.0


def prefixes(run: Trajectory, every: int) -> Iterator[int]:
    yield from range(0, run.sampled_tokens or 0, every)


def turn_by_turn(policy: Policy, world: Environment, runs: Sequence[Trajectory], seed: int) -> Made:
    """The library, prefix by prefix: 64 sequences of the running action, then
    64 episodes turn by turn.
    """
    import torch

    torch.manual_seed(seed)
    made = list[Made]()
    for run in runs:
        again, trace = replay_run(run, world, policy.renderer), trace_of(run)
        made += [_from_prefix(policy, again, trace, kept) for kept in prefixes(run, 1)]
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
    return [_until_stop(new, policy.renderer.stops) for new in made[:, width:].tolist()]


def generate(
    policy: Policy,
    runs: Sequence[Trajectory],
    size: Size,
    settings: SamplingSettings,
    seed: int,
) -> Made:
    """The library, prefix by prefix."""
    import torch

    torch.manual_seed(seed)
    rollouts = tokens = 0
    for run in runs:
        ids = [token for step in run.steps for token in step.token_ids or ()]
        begin = len(ids) - (run.sampled_tokens or 0)
        for kept in prefixes(run, size.every):
            prefix = torch.tensor([ids[: begin + kept]], device=policy.model.device)
            with torch.inference_mode():
                made = policy.model.generate(
                    prefix,
                    attention_mask=torch.ones_like(prefix),
                    do_sample=True,
                    temperature=settings.temperature,
                    top_k=0,
                    top_p=1.0,
                    num_return_sequences=N,
                    max_new_tokens=size.tokens - kept,
                    pad_token_id=0,
                )
            rollouts, tokens = rollouts + len(made), tokens + made[:, prefix.shape[1] :].numel()
    return Made(rollouts=rollouts, tokens=tokens)
