"""A server as a sampler, opened: the probe, the check that it serves the traces' policy, then the sampler."""

from collections.abc import Sequence
from typing import Any

from forensics.errors import UserError
from forensics.policies.rendering import rendering_for, style_of
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.rollouts import Sampler
from resampling.server_client import Client, ServerConfig
from resampling.server_probe import probe
from resampling.server_sampler import ServerSampler
from resampling.server_scores import require_same_policy
from resampling.server_starts import Starts
from resampling.server_text import TextSampler
from resampling.traces import trace_of


def open_server(
    config: ServerConfig, environment: Environment, trajectories: Sequence[Trajectory], settings: SamplingSettings,
    seed: int, *, tokenizer: Any, extra_stops: Sequence[int] = (), policy: str | None = None, text: bool = False,
) -> Sampler:
    """A sampler that continues these trajectories on the server.

    `tokenizer`: the policy's own. `extra_stops`: further token ids that end an action (those that the policy's
    generation settings name). `policy`: its content hash, where known; it goes into the sampler's identity.
    `text`: the server takes texts only (see `server_text` for what is lost).
    Raises `UserError` where there is no server, it lacks what is needed, or it serves another policy.
    """
    if not trajectories:
        raise UserError("there is no trajectory to continue; give at least one")
    rendering = rendering_for(tokenizer, extra_stops, style_of(environment))
    starts = Starts(environment, rendering, trajectories, seed)
    client, name = Client(config), policy or f"server {config.model or ''}"
    trace = trace_of(trajectories[0])
    if text:
        return TextSampler(client, starts, tokenizer, settings, seed, name, trace.prefix(0))
    abilities = probe(client, trace.prefix(0), settings)
    require_same_policy(client, abilities, trace, settings)
    return ServerSampler(client, abilities, starts, settings, seed, name)
