"""Continuations the slow way, as an oracle: one at a time, the whole text
through the model for each token, the environment played again from its start.
Nothing of the engine but the formula of the distribution and the random
streams, which its contract names.
"""

import torch

from forensics.policies.distribution import Text, draw, log_distribution, row_stream, uniforms
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory, content_hash
from resampling.samplers.branches import reset_seed
from resampling.trace_rollouts import Request, Rollout, Trace, trace_of


def one_by_one(
    policy: Policy,
    world: Environment,
    run: Trajectory,
    request: Request,
    number: int,
    settings: SamplingSettings,
    seed: int,
) -> Rollout:
    """One rollout. (`followed` counts what stays in the very text of the trace
    up to the next token to draw.)
    """
    trace = trace_of(run)
    scene, ids, start = _scene(world, run, trace, request.kept)
    ids += request.append
    stream = _stream(request, number, seed)
    drawn: list[int] = []
    followed, following = 0, not request.append
    while True:
        stop = len(ids) > start and _over(ids, start, policy, settings)
        if stop:
            result = scene.step(policy.renderer.action_text(ids[start:]))
            over = result.terminated or result.truncated
            if not over:
                ids += policy.renderer.reply(result.observation, ids[start:])
                start = len(ids)
        place = request.kept + len(drawn)
        if following and drawn:
            # behind the last token nothing is drawn: there the trace is over, or out of room
            own = trace.prefix(place) if place < len(trace) else trace.ids
            following = place <= len(trace) and tuple(ids) == own
            followed += following
        if stop and over:
            end = (
                "truncated"
                if result.truncated or ids[-1] not in policy.renderer.stops
                else "terminated"
            )
            return _rollout(request, number, drawn, followed, result.outcome, end)
        if len(ids) >= settings.max_tokens:
            return _rollout(request, number, drawn, followed, 0.0, "truncated")
        distribution = _distribution(policy, ids, start, settings)
        if request.avoid and not drawn:
            distribution = distribution.clone()
            distribution[0, trace.tokens[request.kept]] = -torch.inf
            distribution = distribution.log_softmax(-1)
        drawn.append(int(draw(distribution, [0], [next(stream)])[0]))
        ids.append(drawn[-1])


def _stream(request: Request, number: int, seed: int):
    key = content_hash([request.trace, request.kept, list(request.append), request.avoid], 15)
    return uniforms(row_stream(seed, int(key, 16), number))


def _scene(
    world: Environment, run: Trajectory, trace: Trace, kept: int
) -> tuple[Environment, list[int], int]:
    """The environment before the running action, the prefix and where that action starts."""
    scene = world.spawn()
    scene.reset(run.task, reset_seed(run))
    steps = sorted(set(trace.steps))
    current = trace.steps[kept] if kept < len(trace) else steps[-1]
    for step in steps[: steps.index(current)]:
        scene.step(run.steps[step].text)
    return scene, list(trace.prefix(kept)), trace.positions[trace.steps.index(current)]


def _over(ids: list[int], start: int, policy: Policy, settings: SamplingSettings) -> bool:
    length = len(ids) - start >= settings.max_turn_tokens or len(ids) >= settings.max_tokens
    return ids[-1] in policy.renderer.stops or length


@torch.inference_mode()
def _distribution(
    policy: Policy, ids: list[int], start: int, settings: SamplingSettings
) -> torch.Tensor:
    logits = policy.model(torch.tensor([ids]), use_cache=False).logits[:, -1]
    return log_distribution(logits, settings, [Text(ids=ids, start=start)])


def _rollout(
    request: Request, number: int, drawn: list[int], followed: int, outcome: float | None, end
) -> Rollout:
    return Rollout(
        trace=request.trace,
        kept=request.kept,
        number=number,
        append=request.append,
        avoid=request.avoid,
        tokens=tuple(drawn),
        followed=followed,
        outcome=outcome,
        end=end,
    )
