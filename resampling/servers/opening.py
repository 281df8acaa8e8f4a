"""A server as a sampler, opened: the probe, the check that it serves the traces' policy, then the sampler."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.completions import Client, ServerConfig
from forensics.policies.loading import load_tokenizer, stop_tokens
from forensics.policies.rendering import rendering_for, style_of
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.rollouts import Sampler
from resampling.servers.probe import probe
from resampling.servers.sampler import ServerSampler
from resampling.servers.scores import require_same_policy
from resampling.servers.starts import Starts
from resampling.servers.text import TextSampler
from resampling.traces import trace_of


def described(path: Path | str) -> dict[str, Any]:
    """What `open_server` needs to know of a policy (`open_server(..., **described(path))`), from its directory.

    The weights are not loaded; where they are not there, the policy has no content hash. Raises `UserError`.
    """
    folder = Path(path).expanduser()
    weights = any(folder.glob("*.safetensors"))
    return {"tokenizer": load_tokenizer(folder), "extra_stops": stop_tokens(folder),
            "policy": inspect_checkpoint(folder).identity if weights else None}


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
