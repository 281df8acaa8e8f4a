"""A server as a sampler, opened: the probe, the check that it serves the traces'
policy, then the sampler.

1. `echo` asks for the prompt's own log-probabilities beside one drawn token.
   They are the model's: at temperature 1 and without truncation they are those
   of the sampler, too, and only then can they be a trace's `pi`.
2. A server and a trace that disagree by a tenth of a nat a token are of two
   policies. That is worth one request before thousands are sent.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.compatibility import load_tokenizer, stop_tokens
from forensics.policies.completions import Client, Declined, ServerConfig, Unanswered
from forensics.policies.renderers import renderer_for, style_of
from forensics.policies.server import echoed_logprobs
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.branches import BranchPoints
from resampling.samplers.server_probe import Abilities, probe
from resampling.samplers.server_sampler import ServerSampler
from resampling.samplers.text_sampler import TextSampler
from resampling.trace_rollouts import Sampler, Trace, trace_of

# nats a token; a server in bfloat16 differs from float32 by about a tenth of that
LARGEST_GAP: Final = 0.1


def require_same_policy(
    client: Client, abilities: Abilities, trace: Trace, settings: SamplingSettings
) -> None:
    """Refuse a server that finds the trace's tokens otherwise likely than the
    trace says. Raises `UserError`.

    Silent where it cannot be known: no echo, settings that are not plain, a
    trace longer than the server's room.
    """
    room = abilities.room or len(trace.ids) + 1
    plain = (settings.temperature, settings.top_k, settings.top_p) == (1, 0, 1)
    told = abilities.echo and plain and not settings.penalises
    if not told or not len(trace) or len(trace.ids) >= room:
        return
    why: object = "it told too few log-probabilities"
    logprobs = None
    try:
        logprobs = echoed_logprobs(client, abilities.model, trace.ids)
    except (Unanswered, Declined) as error:
        why = error
    if logprobs is None:
        raise UserError(
            f"the server at {client.config.url} could not score a trace: {why}; see its log"
        )
    gap = float(np.abs(logprobs[np.array(trace.positions) - 1] - trace.logprobs).mean())
    if gap > LARGEST_GAP:
        raise UserError(
            f"the server at {client.config.url} gives the tokens of trace {trace.id} other"
            f" log-probabilities than it was recorded with (by {gap:.2f} nats a token); serve the"
            " policy that made it"
        )


def checkpoint_rendering(path: Path | str) -> dict[str, Any]:
    """What `open_server` needs to know of a policy (`open_server(...,
    **checkpoint_rendering(path))`), from its directory.

    The weights are not loaded; where they are not there, the policy has no
    content hash. Raises `UserError`.
    """
    folder = Path(path).expanduser()
    weights = any(folder.glob("*.safetensors"))
    return {
        "tokenizer": load_tokenizer(folder),
        "extra_stops": stop_tokens(folder),
        "policy": inspect_checkpoint(folder).identity if weights else None,
    }


def open_server(
    config: ServerConfig,
    environment: Environment,
    trajectories: Sequence[Trajectory],
    settings: SamplingSettings,
    seed: int,
    *,
    tokenizer: Any,
    extra_stops: Sequence[int] = (),
    policy: str | None = None,
    text: bool = False,
) -> Sampler:
    """A sampler that continues these trajectories on the server.

    `tokenizer`: the policy's own. `extra_stops`: further token ids that end an
    action (those that the policy's generation settings name). `policy`: its
    content hash, where known; it goes into the sampler's identity.
    `text`: the server takes texts only (see `text_sampler` for what is lost).
    Raises `UserError` where there is no server, it lacks what is needed, or it
    serves another policy.
    """
    if not trajectories:
        raise UserError("there is no trajectory to continue; give at least one")
    renderer = renderer_for(tokenizer, extra_stops, style_of(environment))
    points = BranchPoints(environment, renderer, trajectories, seed)
    client, name = Client(config), policy or f"server {config.model or ''}"
    trace = trace_of(trajectories[0])
    if text:
        return TextSampler(client, points, tokenizer, settings, seed, name, trace.prefix(0))
    abilities = probe(client, trace.prefix(0), settings)
    require_same_policy(client, abilities, trace, settings)
    return ServerSampler(client, abilities, points, settings, seed, name)
