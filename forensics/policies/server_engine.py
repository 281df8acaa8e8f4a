"""Many runs over one server, request by request: what episodes, plain continuations and
continuations of traces are all driven by.

1. A run is a driver (`sequences.SequenceDriver`) with a text. Each request draws the rest
   of its running action, up to an ending token or the token budgets, which count from the
   start of the run.
2. Requests wait in threads, up to `at_once` of them; whichever is answered first goes on.
   The environment answers between two requests, here, one step after the other, or in
   `threads` where it says that it may (`episodes.step_threads`).
3. Runs with one text whose seeds follow each other are asked for together where choice i
   is known to be drawn with the seed plus i, else one by one. A driver gives each request
   its seed, so that a run depends neither on how requests were cut nor on their order.
4. *Avoid*: the first token alone is drawn, with a bias of -100 on the one to avoid where
   the probe shows that it holds and nothing truncates (a bias acts before top-k and
   top-p, and would let other tokens in); else drawn until it is another one.
5. *Refused* actions are drawn again until another one comes, which has the distribution
   of the policy given that it is none of those refused so far. An action that was refused
   before does not count against the constraint, so that this is what the decoder in
   process does by taking its probability away.
6. *Missing*: what stays unanswered within the tries ends the run (`missing`) with the
   reason. It is never a failure of the policy.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from math import nan
from typing import Any, Final, Protocol

from forensics.policies.completions import Choice, Client, Declined, Unanswered, drawn_ids, ids_body
from forensics.policies.distribution import Refusals
from forensics.policies.server_abilities import Abilities
from forensics.protocols import SamplingSettings

WRONG_TOKENS: Final = (
    "an answer's tokens were not what was asked for: too many, none, or ended by a token that ends"
    " no action here"
)
NO_LOGPROBS: Final = "an answer did not tell the log-probability of each token that it drew"
BIAS: Final = -100.0
WARMEST_BIASED: Final = 2.0  # above this temperature a bias of -100 might let a token through
MOST_REDRAWS: Final = 4096  # draws of a token, or an action, that was to be another one


class ServedDriver(Protocol):
    """A `SequenceDriver`, and what a server needs beside. It draws no numbers of its own."""

    waiting: bool  # its action was refused: to be drawn again from the same text

    @property
    def refusals(self) -> Refusals | None: ...
    def request_seed(self, turn: int, shared: bool) -> int:
        """The seed of the run's request number `turn`. `shared`: those of runs that begin
        alike may follow each other by one, else none is near another.
        """
        ...

    def action_ended(
        self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str
    ) -> Sequence[int] | None: ...
    def out_of_room(self) -> None: ...
    def missing(self, reason: str, action: Sequence[int]) -> None:
        """The run cannot go on, and that is not the policy's doing. `action`: the
        tokens that the running action has.
        """
        ...


@dataclass(eq=False)
class ServedRun:
    """One run: the text `before` its running `action`, and what the server told of the
    latter. `avoid`: a token that is not to be drawn first. `turn`: how many requests were
    answered. `threads`: where the world answers an `Episode`; `answer` is what is waited
    for then.
    """

    driver: Any  # a ServedDriver
    settings: SamplingSettings
    stops: Collection[int]
    before: list[int]
    action: list[int] = field(default_factory=list)
    avoid: int | None = None
    threads: Executor | None = None
    turn: int = 0
    over: bool = False
    missed: str | None = None  # why it could not go on
    answer: Future[Any] | None = None

    def __post_init__(self) -> None:
        self.driver.waiting = False
        self.logprobs = [nan] * len(self.action)
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
    def most(self) -> int:
        """Tokens that the next request draws at most."""
        return self.room if self.avoid is None else 1

    @property
    def selects(self) -> bool:
        """Whether there is something that must not be drawn."""
        return self.avoid is not None or self.driver.refusals is not None

    def wants(self, tokens: tuple[int, ...]) -> bool:
        """Whether these may be what the next request draws."""
        if self.avoid is not None:
            return tokens != (self.avoid,)
        return self.driver.refusals is None or (*self.action, *tokens) not in self.driver.refusals

    def draw(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Go on with drawn tokens of the running action."""
        self.action += tokens
        self.logprobs += logprobs
        self.avoid = None
        self.turn += 1
        self._settle()

    def miss(self, reason: str) -> None:
        self.over, self.missed = True, reason
        self.driver.missing(reason, tuple(self.action))

    def _settle(self) -> None:
        """What follows from the tokens that are there: a whole action is taken, a full
        text ends the run.
        """
        ended = bool(self.action) and self.action[-1] in self.stops
        if ended or (self.action and self.room <= 0):
            self._end_action()
        elif not self.action:
            self._check_room()

    def _check_room(self) -> None:
        if not self.over and self.room <= 0:
            self.over = True
            self.driver.out_of_room()

    @property
    def _stop(self) -> str:
        return "stop-token" if self.action[-1] in self.stops else "length"

    def _end_action(self) -> None:
        driver, action, logprobs = self.driver, tuple(self.action), tuple(self.logprobs)
        if self.threads is None:
            self._follow(driver.action_ended(action, logprobs, self._stop))
        elif (text := driver.act(action, logprobs)) is None:
            self._follow(None)
        else:
            self.answer = self.threads.submit(driver.stepped, text)

    def hear(self) -> None:
        """Go on behind what the world has answered."""
        assert self.answer is not None
        result, self.answer = self.answer.result(), None
        self._follow(self.driver.observe(result, tuple(self.action), self._stop))

    def _follow(self, follow: Sequence[int] | None) -> None:
        action = tuple(self.action)
        self.over = follow is None and not self.driver.waiting
        if follow is not None:
            self.before += (*action, *follow)
        self.driver.waiting, self.action, self.logprobs = False, [], []
        self._check_room()


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One request. `draws`: its choices are tries for the one run, not one for each run."""

    runs: tuple[ServedRun, ...]
    body: dict[str, Any]
    draws: int = 0


class ServerEngine:
    """Drives runs. `logprobs`: the server tells those of drawn tokens, and a run without
    them is missing; else they are NaN. `more`: further fields of each request.
    """

    def __init__(
        self,
        client: Client,
        abilities: Abilities,
        stops: Collection[int],
        settings: SamplingSettings,
        logprobs: bool = False,
        more: Mapping[str, Any] = {},
    ) -> None:
        self._client, self._abilities, self._stops = client, abilities, stops
        self._settings = settings
        self._logprobs, self._more = logprobs, {**more, **({"logprobs": 1} if logprobs else {})}
        self._biased = (
            abilities.bias
            and settings.top_k == 0
            and settings.top_p == 1
            and settings.temperature <= WARMEST_BIASED
        )

    def start(
        self,
        driver: ServedDriver,
        before: Sequence[int],
        action: Sequence[int] = (),
        avoid: int | None = None,
        threads: Executor | None = None,
    ) -> ServedRun:
        """A run whose action has begun with tokens that nobody drew."""
        given = self._settings, self._stops, list(before), list(action), avoid, threads
        return ServedRun(driver, *given)

    def run(self, groups: Iterable[Sequence[ServedRun]]) -> Iterator[None]:
        """Drive every run of every group to its end; gives control back after each
        answer. A group's runs may be asked for together; the next group is
        taken when there is room for a request.
        """
        most, opened = self._client.config.at_once, self._openings(groups)
        ready, asked = deque[_Call](), dict[Future[Any], _Call]()
        stepping: dict[Future[Any], ServedRun] = {}
        pool = ThreadPoolExecutor(most)
        try:
            while True:
                while len(asked) < most:
                    call = ready.popleft() if ready else next(opened, None)
                    if call is None:
                        break
                    asked[pool.submit(self._answer, call)] = call
                yield
                if not asked and not stepping:
                    return
                for future in wait([*asked, *stepping], return_when=FIRST_COMPLETED).done:
                    runs: Sequence[ServedRun] = ()
                    if future in stepping:
                        runs = [stepping.pop(future)]
                        runs[0].hear()
                    elif again := self._advance(call := asked.pop(future), future.result()):
                        ready.append(again)
                    else:
                        runs = call.runs
                    stepping |= {run.answer: run for run in runs if run.answer is not None}
                    ready += [self._next(run) for run in runs if not (run.over or run.answer)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _openings(self, groups: Iterable[Sequence[ServedRun]]) -> Iterator[_Call]:
        for group in groups:
            together: list[ServedRun] = []
            for run in (run for run in group if not run.over):
                if together and not self._joins(run, together):
                    yield self._first(together)
                    together = []
                together.append(run)
            if together:
                yield self._first(together)

    def _joins(self, run: ServedRun, together: Sequence[ServedRun]) -> bool:
        first, number = together[0], len(together)
        return (
            self._abilities.choices
            and number < self._client.config.most_choices
            and not self._redraws(run)
            and run.driver.request_seed(0, True) == first.driver.request_seed(0, True) + number
            and (run.prompt, run.avoid) == (first.prompt, first.avoid)
        )

    def _redraws(self, run: ServedRun) -> bool:
        return run.selects and not (run.avoid is not None and self._biased)

    def _first(self, runs: Sequence[ServedRun]) -> _Call:
        run = runs[0]
        if self._redraws(run):
            return self._redraw(run, 0)
        fields: dict[str, Any] = {} if run.avoid is None else {"bias": {run.avoid: BIAS}}
        return self._call(runs, run.driver.request_seed(0, True), **fields)

    def _next(self, run: ServedRun) -> _Call:
        if self._redraws(run):
            return self._redraw(run, 0)
        return self._call([run], run.driver.request_seed(run.turn, False))

    def _redraw(self, run: ServedRun, drawn: int) -> _Call:
        """Tries for what is not to be avoided, after `drawn` of them; ever more at once."""
        least = 1 if run.avoid is None else 4
        n = min(self._client.config.most_choices, max(least, drawn))
        n = n if self._abilities.choices else 1
        return self._call([run], run.driver.request_seed(run.turn, False) + drawn, drawn + n, n=n)

    def _call(self, runs: Sequence[ServedRun], seed: int, draws: int = 0, **fields: Any) -> _Call:
        run = runs[0]
        fields = {"n": len(runs), "stops": self._stops, "seed": seed, **fields}
        fields |= {"max_tokens": run.most, **self._more}
        body = ids_body(self._abilities.model, run.prompt, self._settings, **fields)
        return _Call(runs=tuple(runs), body=body, draws=draws)

    def _answer(self, call: _Call) -> list[Choice] | str:
        """Choices, or why there are none. Runs in a thread of its own."""
        try:
            return self._client.complete(call.body)
        except Unanswered as error:
            return str(error)
        except Declined as error:
            return f"the server declined a completion ({error})"

    def _advance(self, call: _Call, answer: list[Choice] | str) -> _Call | None:
        """Give each run of the call its answer; more draws, where none was wanted."""
        if isinstance(answer, str):
            for run in call.runs:
                run.miss(answer)
        elif call.draws:
            return self._select(call, answer)
        else:
            for run, choice in zip(call.runs, answer, strict=True):
                self._take(run, choice)
        return None

    def _select(self, call: _Call, answer: Sequence[Choice]) -> _Call | None:
        """The first of several draws that the run may go on with, or more draws."""
        [run] = call.runs
        whole = ((choice, self._tokens(choice, run.most)) for choice in answer)
        wanted = (one for one, tokens in whole if tokens is not None and run.wants(tokens))
        if (choice := next(wanted, None)) is not None:
            self._take(run, choice)
        elif call.draws < MOST_REDRAWS:
            return self._redraw(run, call.draws)
        elif run.avoid is not None:
            run.miss(f"{call.draws} draws of the first token were the trace's own")
        else:
            run.miss(f"{call.draws} draws of an action had each been refused before")
        return None

    def _take(self, run: ServedRun, choice: Choice) -> None:
        tokens = self._tokens(choice, run.most)
        if tokens is None:
            run.miss(WRONG_TOKENS)
        elif (logprobs := self._told(choice, len(tokens))) is None:
            run.miss(NO_LOGPROBS)
        else:
            run.draw(tokens, logprobs)

    def _tokens(self, choice: Choice, most: int) -> tuple[int, ...] | None:
        tokens = drawn_ids(choice, self._stops)
        return tokens if tokens is not None and len(tokens) <= most else None

    def _told(self, choice: Choice, number: int) -> Sequence[float] | None:
        """Log-probabilities of the drawn tokens under the settings, nats."""
        if not self._logprobs:
            return [nan] * number
        if self._settings.temperature == 0:
            return [0.0] * number
        told = [value for value in choice.logprobs or () if value is not None]
        return told if len(told) == number else None
