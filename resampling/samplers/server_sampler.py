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
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forensics.policies.completions import Choice, Client, Declined, Unanswered
from forensics.protocols import SamplingSettings
from forensics.records import content_hash
from resampling.samplers.branches import BranchPoint, BranchPoints, BranchRun
from resampling.samplers.server_probe import Abilities, drawn_ids, ids_body, require_sendable
from resampling.trace_rollouts import Request, Rollout


@dataclass(eq=False)
class ServerRun:
    """One continuation; its rollout goes to `finished`. `drawn`: the sampled
    tokens. `turn`: how many requests were answered, so that each has a seed of
    its own.
    """

    point: BranchPoint
    number: int
    settings: SamplingSettings
    stops: Collection[int]
    finished: deque[Rollout]
    drawn: list[int] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        self.driver = BranchRun(self.point, self.number, self.finished)
        self.before, self.action = list(self.point.before), list(self.point.action)
        self._settle()

    @property
    def prompt(self) -> list[int]:
        """What the next request continues."""
        return self.before + self.action

    @property
    def room(self) -> int:
        """Tokens that the running action may still have."""
        action, whole = len(self.action), len(self.before) + len(self.action)
        return min(self.settings.max_turn_tokens - action, self.settings.max_tokens - whole)

    @property
    def own_token(self) -> int:
        """What the trace has next."""
        return self.point.trace.tokens[self.point.request.kept]

    def draw(self, tokens: Sequence[int]) -> None:
        """Go on with drawn tokens of the running action."""
        self.drawn += tokens
        self.action += tokens
        self.turn += 1
        self._settle()

    def miss(self, reason: str) -> None:
        """The run cannot go on, and that is not the policy's doing."""
        self.driver.over, place = True, self.point.request.branch._asdict()
        self.finished.append(
            Rollout(**place, number=self.number, tokens=tuple(self.drawn), end_reason=reason)
        )

    def _settle(self) -> None:
        """What follows from the tokens that are there: a whole action is taken,
        a full text ends the run.
        """
        ended = bool(self.action) and self.action[-1] in self.stops
        if ended or (self.action and self.room <= 0):
            action = tuple(self.action)
            follow = self.driver.action_ended(action, (), "stop-token" if ended else "length")
            self.before += (*action, *(follow or ()))
            self.action = []
        if not self.driver.over and not self.action and self.room <= 0:
            self.driver.out_of_room()


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
