"""Episodes: an environment and a policy taking turns, recorded as trajectories.

Refused actions (a constraint) are drawn again at the step where they fell: the
episode leaves the batch and re-enters a later one with the text it had before
that action, so the environment never sees what was refused, and nothing is
refused twice at one step (`refusals`). An environment that raises gives an
*errored* trajectory; a bad rollout is data, not a crash.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from forensics.errors import UserError, environment_failure, stop_outside
from forensics.policies.decoder import BatchDecoder
from forensics.policies.distribution import Refusals, row_stream, uniforms
from forensics.protocols import Constraint, Continuation, Environment, Renderer, StepResult
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import LAST_ACTION_CUT, TOKEN_LIMIT, WORLD_RAISED


class OneAction:
    """Drives one row from `ids` on for one action; `result` once it does not wait any more.

    `key`: of its random stream, the last part the number of the continuation.
    """

    result: Continuation

    def __init__(
        self,
        ids: Sequence[int],
        renderer: Renderer,
        key: tuple[int, ...],
        constraint: Constraint | None,
    ) -> None:
        self.ids, self.uniforms, self.waiting = ids, uniforms(row_stream(*key)), True
        self.refusals: Refusals | None = None
        self._renderer, self._constraint, self._refused = renderer, constraint, 0
        self._key = key

    def action_ended(self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str) -> None:
        constraint = self._constraint
        if constraint and not constraint.allows(self._renderer.action_text(token_ids), ()):
            self._refused += 1
            self.refusals = (self.refusals or Refusals()).also(token_ids, logprobs)
            self.waiting = self._refused <= constraint.max_redraws
            token_ids, logprobs, stop = (), (), "refused"
        self.result = Continuation(token_ids=tuple(token_ids), logprobs=tuple(logprobs), stop=stop)

    def out_of_room(self) -> None:
        self.result = Continuation(token_ids=(), logprobs=(), stop="length")

    def request_seed(self, turn: int, shared: bool) -> int:
        """Where a server draws: continuations of one text begin with seeds that follow each
        other, and share a request.
        """
        *start, number = self._key
        if shared:
            return int(content_hash(start, 12), 16) + number
        return int(content_hash([*start, number, turn], 12), 16)

    def missing(self, reason: str, action: Sequence[int]) -> None:
        raise UserError(f"a continuation could not be drawn: {reason}; see the server's log")


def start_actions(
    prefixes: Sequence[Sequence[int]],
    n: int,
    renderer: Renderer,
    seed: int,
    constraint: Constraint | None,
) -> list[OneAction]:
    """`n` of each text, in order, each with a random stream of its own."""
    numbers = [int(content_hash(list(prefix), 15), 16) for prefix in prefixes]
    return [
        OneAction(prefix, renderer, (seed, number, k), constraint)
        for prefix, number in zip(prefixes, numbers, strict=True)
        for k in range(n)
    ]


@dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """What all episodes of a batch share."""

    renderer: Renderer
    policy: str
    environment: Environment
    seed: int
    constraint: Constraint | None = None


@dataclass(eq=False)
class Episode:
    """One running episode; drives one row of the lockstep decoder."""

    context: EpisodeContext
    environment: Environment
    task: str
    sample: int
    uniforms: Iterator[float]
    ids: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ending: dict[str, Any] = field(default_factory=dict)
    refused: int = 0
    refusals: Refusals | None = None
    waiting: bool = True  # to be drawn (again) in the next batch

    def reset(self, seed: int) -> Any:
        """What the world starts with, or what it raised; for any thread."""
        try:
            return self.environment.reset(self.task, seed)
        except Exception as error:
            return error

    def begin(self, start: Any) -> None:
        """Render the prompt. An environment that cannot start ends the episode."""
        if isinstance(start, UserError):
            raise environment_failure(start) from start
        if isinstance(start, Exception):
            self._broken(start)
            return
        self.ids = self.context.renderer.prompt(start.text, start.system)
        if start.system:
            self.steps.append(
                _given("system", start.system, (), ())
            )  # its tokens stand with those of the question
        self.steps.append(_given("user", start.text, tuple(self.ids), start.channels))

    def action_ended(
        self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str
    ) -> Sequence[int] | None:
        text = self.act(token_ids, logprobs)
        return None if text is None else self.observe(self.stepped(text), token_ids, stop)

    def act(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> str | None:
        """Take an action down; its text, `None` where the world is not to see it."""
        text = self.context.renderer.action_text(token_ids)
        try:
            kinds = self.environment.kinds(text)
            if self._is_refused(text, kinds):
                self.refusals = (self.refusals or Refusals()).also(token_ids, logprobs)
                return None
        except Exception as error:
            self._broken(error)
            return None
        self.refusals = None
        self._record_action(text, kinds, token_ids, logprobs)
        return text

    def stepped(self, text: str) -> StepResult | Exception:
        """What the world says to an action; for any thread."""
        try:
            return self.environment.step(text)
        except Exception as error:
            return error

    def observe(
        self, result: StepResult | Exception, token_ids: Sequence[int], stop: str
    ) -> Sequence[int] | None:
        """Take down what the world said to the action; the tokens that follow, if any."""
        if isinstance(result, Exception):
            self._broken(result)
            return None
        return self._record_result(result, token_ids, cut=stop == "length")

    def _broken(self, error: Exception) -> None:
        stop_outside(error)
        self._end("errored", f"{WORLD_RAISED} {type(error).__name__}: {error}")

    def out_of_room(self) -> None:
        self._end("truncated", TOKEN_LIMIT)

    def request_seed(self, turn: int, shared: bool) -> int:
        """Where a server draws (`server_engine`): a seed for each request of the episode."""
        return int(content_hash([self.context.seed, self.task, self.sample, turn], 12), 16)

    def missing(self, reason: str, action: Sequence[int]) -> None:
        self._end("errored", reason)

    def _is_refused(self, text: str, kinds: tuple[str, ...]) -> bool:
        constraint = self.context.constraint
        if constraint is None or constraint.allows(text, kinds):
            return False
        self.refused += 1
        self.waiting = self.refused <= constraint.max_redraws
        if not self.waiting:
            self._end("errored", f"every draw was refused by {constraint.name}")
        return True

    def _record_action(
        self, text: str, kinds: tuple[str, ...], token_ids: Sequence[int], logprobs: Sequence[float]
    ) -> None:
        self.ids += token_ids
        self.steps.append(
            Step(
                role="assistant",
                text=text,
                kinds=kinds,
                token_ids=tuple(token_ids),
                sampled=(True,) * len(token_ids),
                logprobs=tuple(logprobs),
            )
        )

    def _record_result(
        self, result: StepResult, action: Sequence[int], cut: bool
    ) -> Sequence[int] | None:
        over = result.terminated or result.truncated
        follow = [] if over else self.context.renderer.reply(result.observation, action)
        self.steps.append(_given("tool", result.observation, tuple(follow), result.channels))
        self.ids += follow
        if not over:
            return follow
        self.ending = ending_of(result, cut)
        return None

    def _end(self, end: str, reason: str) -> None:
        self.waiting = False
        self.ending = engine_ended(end, reason)

    def trajectory(self) -> Trajectory:
        context, world = self.context, self.context.environment
        return Trajectory(
            id=episode_id(
                context.policy, world, context.seed, self.task, self.sample, context.constraint
            ),
            task=self.task,
            policy=context.policy,
            environment=world.name,
            without=world.scrubbed,
            seed=context.seed,
            sample=self.sample,
            steps=tuple(self.steps),
            redraws=self.refused,
            **self.ending,
        )


def episode_id(
    policy: str,
    world: Environment,
    seed: int,
    task: str,
    sample: int,
    constraint: Constraint | None,
) -> str:
    """What a run is called in its log."""
    key = [policy, world.name, list(world.scrubbed), seed, task, sample]
    if constraint is not None:  # coupled: the seed is that of the plain run
        key.append(constraint.name)
    return content_hash(key, 12)


def engine_ended(end: str, reason: str) -> dict[str, Any]:
    """The engine ended a run: a truncated one scored nothing, an errored one has no score."""
    return {"end": end, "end_reason": reason, "outcome": 0.0 if end == "truncated" else None}


def ending_of(result: StepResult, cut: bool = False) -> dict[str, Any]:
    """What a trajectory says of a run that the environment ended."""
    return {
        "rewards": dict(result.rewards),
        "outcome": result.outcome,
        "submission": result.submission,
        **how_it_ended(result, cut),
    }


def how_it_ended(result: StepResult, cut: bool) -> dict[str, Any]:
    """The environment's word, but that a run whose last action was `cut` off by
    a token limit is truncated.

    The environment graded what was there, and its score stands. Any earlier
    action that is cut is just an action.
    """
    if not result.terminated or not cut:
        return {
            "end": "terminated" if result.terminated else "truncated",
            "end_reason": result.end_reason,
        }
    return {
        "end": "truncated",
        "end_reason": "; ".join(filter(None, (LAST_ACTION_CUT, result.end_reason))),
    }


@lru_cache(maxsize=4096)
def _given(role: Any, text: str, token_ids: tuple[int, ...], channels: tuple[str, ...]) -> Step:
    """A message that the policy did not write. Worlds repeat themselves, and a
    step is immutable.
    """
    return Step(
        role=role,
        text=text,
        channels=channels,
        token_ids=token_ids,
        sampled=(False,) * len(token_ids),
        logprobs=(),
    )


def start_episodes(
    context: EpisodeContext, tasks: Sequence[str], samples: int, threads: Executor | None = None
) -> list[Episode]:
    """`samples` episodes of each task, in order, each with its own environment
    and random stream; worlds are reset in `threads` if given.
    """
    episodes, seeds = [], []
    for task in tasks:
        number = int(content_hash(task, 15), 16)
        for sample in range(samples):
            stream = row_stream(context.seed, number, sample)
            seeds.append(int(stream.integers(2**31)))
            episodes.append(
                Episode(context, context.environment.spawn(), task, sample, uniforms(stream))
            )
    for episode, start in zip(
        episodes, (threads.map if threads else map)(Episode.reset, episodes, seeds), strict=True
    ):
        episode.begin(start)
    return episodes


@contextmanager
def step_threads(environment: Any) -> Iterator[Executor | None]:
    """Threads for the steps of as many episodes as the world says may step at once, in its
    attribute `steps_at_once`, which it need not have; `None`: one after the other.
    """
    number = getattr(environment, "steps_at_once", 1)
    if number < 2:
        yield None
        return
    with ThreadPoolExecutor(number) as threads:
        yield threads


Driver = TypeVar("Driver")


class Waiting(Protocol):
    """A driver (`sequences`) that goes on from `ids` for as long as it is `waiting`."""

    @property
    def ids(self) -> Sequence[int]: ...

    waiting: bool


def in_batches(drivers: Sequence[Driver], rows: Callable[[], int]) -> Iterator[Sequence[Driver]]:
    """Drivers in order, as many at a time as `rows` says by then."""
    first = 0
    while first < len(drivers):
        batch = drivers[first : first + rows()]
        yield batch
        first += len(batch)


def play_out(drivers: Sequence[Waiting], decoder: BatchDecoder) -> None:
    """Run drivers until none waits for another draw; equal texts share a row."""
    while pending := [driver for driver in drivers if driver.waiting]:
        shared: dict[tuple[int, ...], list[Waiting]] = {}
        for driver in pending:
            driver.waiting = False
            shared.setdefault(tuple(driver.ids), []).append(driver)
        decoder.run(list(shared), list(shared.values()))
