"""A sampler whose policy is a server: vLLM, SGLang or anything else that the
probe finds able.

1. *Start*: a prefix is its own token ids and the environment restored to it,
   from the replayed trace; nothing is tokenised again.
2. *First action*: the continuations of one prefix are asked for together where
   choice i is known to be drawn with the seed plus i, else one by one. Seeds
   are hashes of (our seed, trace, prefix), plus the continuation's number, so
   that a rollout does not depend on how requests were cut.
3. *Further actions*: the environment answers between two requests, here, in one
   thread; only requests wait, up to `at_once` of them, and whichever is
   answered first goes on. What the environment says, how a run ends and how far
   it follows its trace are those of a local continuation (`branches`). Budgets
   count from the start of the run, so a prefix has used up its part.
4. *Avoid*: the first token alone is drawn, with a bias of -100 on the trace's
   own where the probe shows that it holds and nothing truncates (a bias acts
   before top-k and top-p, and would let other tokens in); else drawn until it
   is another one.
5. *Missing*: what stays unanswered within the tries is a rollout without an
   outcome, and the reason. It is never a failure of the policy.

Bits: with a server that keeps seeds, the same request gives the same tokens, as
far as its arithmetic does not depend on what else it computes at the time (a
server's business, not ours).

`open_server` asks the probe (`forensics.policies.server`), then checks by one request
that the server serves the traces' policy: `echo` asks for the prompt's own
log-probabilities. They are the model's, at temperature 1 and without truncation those
of the sampler too, and only then can they be a trace's `pi`. A server and a trace that
disagree by a tenth of a nat a token are of two policies.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import (
    Abilities,
    Choice,
    Client,
    Declined,
    ServerConfig,
    Unanswered,
    drawn_ids,
    echoed_logprobs,
    ids_body,
    inspect_checkpoint,
    load_tokenizer,
    probe,
    renderer_for,
    require_sendable,
    stop_tokens,
    style_of,
)
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory, content_hash
from resampling.samplers.branches import BranchPoints
from resampling.samplers.server_run import ServerRun
from resampling.samplers.text_sampler import TextSampler
from resampling.trace_rollouts import Request, Rollout, Sampler, Trace, trace_of

WRONG_TOKENS: Final = (
    "an answer's tokens were not what was asked for: too many, none, or ended by a token that ends"
    " no action here"
)
BIAS: Final = -100.0
WARMEST_BIASED: Final = 2.0  # above this temperature a bias of -100 might let a token through
MOST_REDRAWS: Final = 4096  # draws of a first token that was to be another one


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One request to the server. `draws`: its choices are tries for the one
    run's first token, not one for each run.
    """

    runs: tuple[ServerRun, ...]
    body: dict[str, Any]
    draws: int = 0


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
        self.abilities = abilities
        self._client, self._points, self._seed = client, points, seed
        self.fingerprint = points.fingerprint
        self._stops = points.renderer.stops
        self._settings = replace(settings, max_tokens=min(settings.max_tokens, room))
        self._biased = (
            abilities.bias
            and settings.top_k == 0
            and settings.top_p == 1
            and settings.temperature <= WARMEST_BIASED
        )
        self.identity = content_hash(
            ["server", policy, points.identity, self._settings.content(), seed]
        )

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish; up to `at_once`
        requests are under way.
        """
        config, finished = self._client.config, deque[Rollout]()
        opened, ready = self._openings(requests, finished), deque[_Call]()
        running: dict[Future[list[Choice] | str], _Call] = {}
        pool = ThreadPoolExecutor(config.at_once)
        try:
            while True:
                while len(running) < config.at_once:
                    call = ready.popleft() if ready else next(opened, None)
                    if call is None:
                        break
                    running[pool.submit(self._answer, call)] = call
                while finished:
                    yield finished.popleft()
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ready += self._advance(running.pop(future), future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _openings(self, requests: Iterable[Request], finished: deque[Rollout]) -> Iterator[_Call]:
        for request in requests:
            point = self._points.of(request)
            runs = [
                ServerRun(point, number, self._settings, self._stops, finished)
                for number in request.numbers
            ]
            runs = [run for run in runs if not run.driver.over]
            together = self.abilities.choices and not self._rejects(request)
            size = self._client.config.most_choices if together else 1
            for first in range(0, len(runs), size):
                yield self._first(runs[first : first + size])

    def _rejects(self, request: Request) -> bool:
        return request.avoid and not self._biased

    def _first(self, runs: Sequence[ServerRun]) -> _Call:
        """The first request of runs that share their prefix."""
        run, request = runs[0], runs[0].point.request
        if self._rejects(request):
            return self._redraw(run, 0)
        seed = self._stream(run, shared=True) + run.number
        if not request.avoid:
            return self._call(runs, seed, max_tokens=run.room)
        return self._call(runs, seed, max_tokens=1, bias={run.own_token: BIAS})

    def _redraw(self, run: ServerRun, drawn: int) -> _Call:
        """Tries for a first token that is not the trace's own, after `drawn` of
        them; ever more at once.
        """
        n = min(self._client.config.most_choices, max(4, drawn)) if self.abilities.choices else 1
        return self._call([run], self._stream(run) + drawn, drawn + n, max_tokens=1, n=n)

    def _call(self, runs: Sequence[ServerRun], seed: int, draws: int = 0, **fields: Any) -> _Call:
        fields = {"n": len(runs), "stops": self._stops, "seed": seed, **fields}
        body = ids_body(self.abilities.model, runs[0].prompt, self._settings, **fields)
        return _Call(runs=tuple(runs), body=body, draws=draws)

    def _stream(self, run: ServerRun, shared: bool = False) -> int:
        """A seed of 48 bits: of the prefix where it is shared, else of this
        run's present request.
        """
        trace, kept, avoid, append = run.point.request.branch
        own = [] if shared else [run.number, run.turn]
        return int(content_hash([self._seed, trace, kept, list(append), avoid, own], 12), 16)

    def _answer(self, call: _Call) -> list[Choice] | str:
        """Choices, or why there are none. Runs in a thread of its own."""
        try:
            return self._client.complete(call.body)
        except Unanswered as error:
            return str(error)
        except Declined as error:
            return f"the server declined a completion ({error})"

    def _advance(self, call: _Call, answer: list[Choice] | str) -> list[_Call]:
        """What follows from an answer, for each run of the call."""
        if isinstance(answer, str):
            for run in call.runs:
                run.miss(answer)
        elif call.draws:  # for a first token that is not the trace's own
            [run] = call.runs
            known = (None, (run.own_token,))
            drawn = (self._tokens(choice, 1) for choice in answer)
            other = next((tokens for tokens in drawn if tokens not in known), None)
            if other is None and call.draws < MOST_REDRAWS:
                return [self._redraw(run, call.draws)]
            otherwise = f"{call.draws} draws of the first token were the trace's own"
            self._take(run, other, otherwise)
        else:
            for run, choice in zip(call.runs, answer, strict=True):
                self._take(run, self._tokens(choice, call.body["max_tokens"]), WRONG_TOKENS)
        left = (run for run in call.runs if not run.driver.over)
        return [self._call([run], self._stream(run), max_tokens=run.room) for run in left]

    def _take(self, run: ServerRun, tokens: tuple[int, ...] | None, otherwise: str) -> None:
        if tokens is None:
            run.miss(otherwise)
        else:
            run.draw(tokens)

    def _tokens(self, choice: Choice, most: int) -> tuple[int, ...] | None:
        tokens = drawn_ids(choice, self._stops)
        return tokens if tokens is not None and len(tokens) <= most else None


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
    `text`: the server takes texts only (see above for what is lost).
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
