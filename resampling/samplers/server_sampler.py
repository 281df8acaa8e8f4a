"""A sampler whose policy is a server: vLLM, SGLang or anything else that the
probe finds able.

1. *Start*: a prefix is its own token ids and the environment restored to it,
   from the replayed trace; nothing is tokenised again.
2. *Requests*: `forensics.policies.server_engine` drives the continuations, many at once.
   Those of one prefix begin with seeds that are hashes of (our seed, trace, prefix),
   plus the continuation's number, so that a rollout does not depend on how requests
   were cut.
3. What the environment says, how a run ends and how far it follows its trace are those
   of a local continuation (`branches`). Budgets count from the start of the run, so a
   prefix has used up its part.
4. *Missing*: what stays unanswered within the tries is a rollout without an
   outcome, and the reason. It is never a failure of the policy.

Bits: with a server that keeps seeds, the same request gives the same tokens, as
far as its arithmetic does not depend on what else it computes at the time (a
server's business, not ours).

`open_server` asks the probe (`forensics.policies.server_abilities`), then checks by one
request that the server serves the traces' policy: `echo` asks for the prompt's own
log-probabilities. They are the model's, at temperature 1 and without truncation those
of the sampler too, and only then can they be a trace's `pi`. A server and a trace that
disagree by a tenth of a nat a token are of two policies.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import (
    Abilities,
    Client,
    Declined,
    ServedRun,
    ServerConfig,
    ServerEngine,
    Unanswered,
    echoed_logprobs,
    inspect_checkpoint,
    load_tokenizer,
    probe,
    renderer_for,
    require_sendable,
    stop_tokens,
    style_of,
    tools_of,
)
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory, content_hash
from resampling.samplers.branches import BranchPoints, BranchRun
from resampling.trace_rollouts import Request, Rollout, Sampler, Trace, trace_of


class ServerSampler:
    """A `Sampler` over HTTP. `policy`: what the server serves, by content where that is known."""

    def __init__(
        self,
        client: Client,
        abilities: Abilities,
        points: BranchPoints,
        settings: SamplingSettings,
        seed: int,
        policy: str,
    ) -> None:
        require_sendable(settings)
        room = abilities.room or settings.max_tokens
        settings = replace(settings, max_tokens=min(settings.max_tokens, room))
        self._points, self.fingerprint = points, points.fingerprint
        self._engine = ServerEngine(client, abilities, points.renderer.stops, settings)
        self.identity = content_hash(["server", policy, points.identity, settings.content(), seed])

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish; up to `at_once`
        requests are under way.
        """
        finished = deque[Rollout]()
        for _ in self._engine.run(self._runs(request, finished) for request in requests):
            while finished:
                yield finished.popleft()

    def _runs(self, request: Request, finished: deque[Rollout]) -> list[ServedRun]:
        point = self._points.of(request)
        avoid = point.trace.tokens[request.kept] if request.avoid else None
        return [
            self._engine.start(
                BranchRun(point, number, finished), point.before, point.action, avoid
            )
            for number in request.numbers
        ]


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
) -> Sampler:
    """A sampler that continues these trajectories on the server.

    `tokenizer`: the policy's own. `extra_stops`: further token ids that end an
    action (those that the policy's generation settings name). `policy`: its
    content hash, where known; it goes into the sampler's identity.
    Raises `UserError` where there is no server, it lacks what is needed, or it
    serves another policy.
    """
    if not trajectories:
        raise UserError("there is no trajectory to continue; give at least one")
    style, tools = style_of(environment), tools_of(environment)
    renderer = renderer_for(tokenizer, extra_stops, style, tools)
    points = BranchPoints(environment, renderer, trajectories, seed)
    client, name = Client(config), policy or f"server {config.model or ''}"
    trace = trace_of(trajectories[0])
    abilities = probe(client, trace.prefix(0), settings)
    require_same_policy(client, abilities, trace, settings)
    return ServerSampler(client, abilities, points, settings, seed, name)
