"""Where continuations begin and how one ends: recorded runs replayed and cut at
their prefixes, for every sampler alike.

1. A run is read once: its trace, and its environment taken through it again
   (below).
2. A request is a point of it: the text before the running action, the tokens of
   that action which nobody draws, and the environment before it.
3. Each continuation has a driver of its own. It counts how far the drawn tokens
   repeat the trace, lets the environment answer, and tells how the run ended.

How recorded runs are taken again, so that continuations can start inside them:

1. The environment is reset as it was for the run (`start_episodes`: a run's
   seed, task and sample number give the seed of its reset) and the recorded
   actions are taken again, once a trace.
2. What the environment says must be what was recorded, in words and in tokens,
   and so must the outcome. The state before each action is kept (`snapshot`);
   afterwards each is restored once, and must say the same again.
3. Each continuation has an environment of its own, restored to the state before
   its running action.

Luck: a snapshot holds the random state, so continuations from one state all
meet the luck that the environment has in store there, and a potential is one
*given* that luck. An environment with a method `reseed(seed)` is reseeded for
each continuation, and the potential is then over fresh luck.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forensics.errors import UserError, environment_failure, stop_outside
from forensics.policies import Refusals, how_it_ended, row_stream, uniforms
from forensics.protocols import Environment, Renderer, StepResult
from forensics.records import TOKEN_LIMIT, WORLD_RAISED, Ending, Step, Trajectory, content_hash
from forensics.world import environment_key
from resampling.trace_rollouts import Request, Rollout, Trace, unscored_trace

CURE = "give the environment, its options and the tokenizer that the run was recorded with"


@dataclass(frozen=True, kw_only=True)
class Replay:
    """`states[a]`: what the environment was before the run's action number a."""

    environment: Environment
    states: tuple[Any, ...]

    @property
    def fresh_luck(self) -> bool:
        """Whether continuations meet other luck than the recorded run did."""
        return hasattr(self.environment, "reseed")

    def before(self, action: int, seed: int) -> Environment:
        """An environment of one's own, as it was before an action. `seed`: of
        its luck, where it can be reseeded.
        """
        environment = self.environment.spawn()
        environment.restore(self.states[action])
        if self.fresh_luck:
            environment.reseed(seed)  # type: ignore[attr-defined]
        return environment


def replay_run(
    trajectory: Trajectory, environment: Environment, renderer: Renderer | None = None
) -> Replay:
    """Take a run's actions again.

    `renderer`: of the policy that continues it, whose tokens must be the
    recorded ones. Raises `UserError` where the environment does not say again
    what it said, or has no snapshots.
    """
    worlds = (
        (trajectory.environment, tuple(sorted(trajectory.without))),
        (environment.name, environment.scrubbed),
    )
    if worlds[0] != worlds[1]:
        recorded, given = (
            name + (f" without {', '.join(channels)}" if channels else "")
            for name, channels in worlds
        )
        raise UserError(
            f"trajectory {trajectory.id} was recorded in {recorded}, not in {given}; give that"
            " world"
        )
    run, world = RecordedRun(trajectory, renderer), environment.spawn()
    run.begin(world)
    states, actions = [], [number for number, _ in trajectory.actions]
    for number in actions:
        state = None
        with suppress(AttributeError, NotImplementedError):
            state = world.snapshot()
        if state is None:
            raise UserError(
                f"the environment {world.name} has no snapshots, so runs cannot be continued from"
                " inside; give it snapshot() and restore()"
            )
        states.append(state)
        run.act(world, number)
    for number, state in zip(actions, states, strict=True):
        world = environment.spawn()
        world.restore(state)
        run.act(world, number)
    return Replay(environment=environment, states=tuple(states))


@dataclass(frozen=True)
class RecordedRun:
    """A run against which an environment is held, step by step."""

    trajectory: Trajectory
    renderer: Renderer | None

    def begin(self, world: Environment) -> None:
        """Reset the environment as it was. Raises `UserError` where it asks another thing."""
        run = self.trajectory
        try:
            start = world.reset(run.task, reset_seed(run))
        except UserError as error:
            raise environment_failure(error) from error
        task = next((step for step in run.steps if step.role == "user"), None)
        if task is None or task.text != start.text:
            raise self._differs(0)
        if self.renderer is not None:
            self._require_tokens(0, self.renderer.prompt(start.text, start.system), task)

    def act(self, world: Environment, number: int) -> None:
        """Take an action again. Raises `UserError` where the answer is not the recorded one."""
        action, *rest = self.trajectory.steps[number:]
        answer = rest[0] if rest else None  # none: the environment broke
        result: StepResult | None = None
        try:
            result = world.step(action.text)
        except Exception as error:  # as when it was recorded, or another answer
            stop_outside(error)
        if answer is None or result is None:
            if answer is not None or result is not None:
                raise self._differs(number + 1)
            return
        over = result.terminated or result.truncated
        if result.observation != answer.text or (
            over and result.outcome != self.trajectory.outcome
        ):
            raise self._differs(number + 1)
        if self.renderer is not None and not over:
            ids = self.renderer.reply(result.observation, action.token_ids or ())
            self._require_tokens(number + 1, ids, answer)

    def _require_tokens(self, number: int, ids: Sequence[int], step: Step) -> None:
        if step.token_ids != tuple(ids):
            raise UserError(
                f"step {number} of trajectory {self.trajectory.id} has other tokens than this"
                f" policy's tokenizer gives its text; {CURE}"
            )

    def _differs(self, number: int) -> UserError:
        return UserError(
            f"the environment does not replay trajectory {self.trajectory.id}: it does not say"
            f" again what step {number} holds; {CURE}"
        )


def reset_seed(trajectory: Trajectory) -> int:
    """The seed that the run's environment was reset with."""
    stream = row_stream(
        trajectory.seed, int(content_hash(trajectory.task, 15), 16), trajectory.sample
    )
    return int(stream.integers(2**31))


NO_OTHER_TOKEN = "the sampler gives no other token there"
LUCK = 1  # the random stream of an environment's luck, apart from that of the tokens


@dataclass(frozen=True, kw_only=True)
class BranchPoint:
    """What all continuations of a request share.

    `index`: the number of the action that the prefix ends in. `before`: the
    text behind which that action stands, `action`: its tokens so far, which
    nobody draws, the appended ones included.
    """

    request: Request
    trace: Trace
    replay: Replay
    index: int
    before: tuple[int, ...]
    action: tuple[int, ...]
    renderer: Renderer
    seed: int

    @cached_property
    def number(self) -> int:
        """What tells this point from others in a random stream."""
        trace, kept, avoid, append = self.request.branch
        return int(content_hash([trace, kept, list(append), avoid], 15), 16)

    def environment(self, number: int) -> Environment:
        """The environment before the running action, with the luck of
        continuation `number` where it has any.
        """
        luck = row_stream(self.seed, self.number, number, LUCK) if self.replay.fresh_luck else None
        return self.replay.before(self.index, 0 if luck is None else int(luck.integers(2**31)))


class BranchPoints:
    """The prefixes of these runs. `renderer`: of the policy that continues
    them. `seed`: of the environment's luck.
    """

    def __init__(
        self,
        environment: Environment,
        renderer: Renderer,
        trajectories: Iterable[Trajectory],
        seed: int,
    ) -> None:
        self._environment, self.renderer, self._seed = environment, renderer, seed
        # a content hash of the environment and its options
        self.identity = environment_key(environment)
        self._runs = {run.id: run for run in trajectories}
        self._traces: dict[str, Trace] = {}
        self._replays: dict[str, Replay] = {}

    def fingerprint(self, name: str) -> str:
        """A content hash of a trace's text, for a store."""
        return self.trace(name).fingerprint

    def trace(self, name: str) -> Trace:
        """Raises `UserError` where it is not there, or holds no sampled token."""
        if name not in self._runs:
            raise UserError(f"there is no trace {name} to continue; give its trajectory")
        if name not in self._traces:
            trace = unscored_trace(self._runs[name])
            if not len(trace):
                raise UserError(
                    f"trace {name} has no sampled token, so it cannot be continued; leave it out"
                )
            self._traces[name] = trace
        return self._traces[name]

    def of(self, request: Request) -> BranchPoint:
        """Raises `UserError` for a trace that is not there, does not replay, or
        is shorter than what is kept.
        """
        trace, run = self.trace(request.trace), self._runs[request.trace]
        most = len(trace) - request.avoid
        if request.kept > most:
            raise UserError(
                f"trace {trace.id} has {len(trace)} sampled tokens, so {request.kept} cannot be"
                f" kept{' and the next one avoided' if request.avoid else ''}; ask for {most} at"
                " most"
            )
        if run.id not in self._replays:
            self._replays[run.id] = replay_run(run, self._environment, self.renderer)
        prefix = trace.prefix(request.kept)
        last = trace.positions[min(request.kept, len(trace) - 1)]
        index = bisect_right(trace.starts, last) - 1
        start = trace.starts[index]
        return BranchPoint(
            request=request,
            trace=trace,
            replay=self._replays[run.id],
            index=index,
            before=prefix[:start],
            action=(*prefix[start:], *request.append),
            renderer=self.renderer,
            seed=self._seed,
        )


class BranchRun:
    """A driver (see `forensics.policies.sequences.ForkDriver`); its rollout goes to `finished`."""

    def __init__(self, point: BranchPoint, number: int, finished: deque[Rollout]) -> None:
        self._point, self._number, self._finished = point, number, finished
        self.uniforms: Iterator[float] = uniforms(row_stream(point.seed, point.number, number))
        self.refusals: Refusals | None = None
        self._environment: Environment | None = None
        self._known = len(point.action)
        self._tokens: list[int] = []
        self._followed = 0
        self._following = not point.request.append
        self.over = self.waiting = False

    def request_seed(self, turn: int, shared: bool) -> int:
        """Where a server draws: a seed of 48 bits for each request; runs of one prefix begin
        with seeds that follow each other.
        """
        trace, kept, avoid, append = self._point.request.branch
        own = [] if shared else [self._number, turn]
        start = content_hash([self._point.seed, trace, kept, list(append), avoid, own], 12)
        return int(start, 16) + (self._number if shared else 0)

    def action_ended(
        self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str
    ) -> Sequence[int] | None:
        point = self._point
        drawn, self._known = token_ids[self._known :], 0
        self._tokens += drawn
        own = point.trace.tokens[point.request.kept + self._followed :]
        if self._following:  # how far what was drawn repeats the trace
            same = [token == known for token, known in zip(drawn, own, strict=False)]
            repeated = [*same, False].index(False)
            self._following = repeated == len(drawn)
            self._followed += repeated
        try:
            if self._environment is None:
                self._environment = point.environment(self._number)
            result = self._environment.step(point.renderer.action_text(token_ids))
        except Exception as error:
            stop_outside(error)
            self._leave(bool(drawn))
            self._end(None, "errored", f"{WORLD_RAISED} {type(error).__name__}: {error}")
            return None
        over = result.terminated or result.truncated
        follow = [] if over else point.renderer.reply(result.observation, token_ids)
        if self._following and (point.replay.fresh_luck or not self._says_the_trace(follow, over)):
            self._leave(bool(drawn))
        if not over:
            return follow
        ending = how_it_ended(result, stop == "length")
        self._end(result.outcome, ending["end"], ending["end_reason"], result.submission)
        return None

    def out_of_room(self) -> None:
        self._end(0.0, "truncated", TOKEN_LIMIT)

    def no_other_token(self) -> None:
        self._end(None, "errored", NO_OTHER_TOKEN)

    def missing(self, reason: str, action: Sequence[int]) -> None:
        """A server did not answer: what was drawn is kept, without an outcome."""
        self._tokens += action[self._known :]
        self._followed = 0
        self._end(None, "errored", reason)

    def _says_the_trace(self, follow: Sequence[int], over: bool) -> bool:
        """Whether the run is where the trace is after its next action: over, or
        behind the same words.
        """
        trace, at = self._point.trace, self._point.request.kept + self._followed
        if at == 0 or over != (at == len(trace) and not trace.ids[trace.positions[-1] + 1 :]):
            return False
        end = trace.positions[at] if at < len(trace) else len(trace.ids)
        return tuple(follow) == trace.ids[trace.positions[at - 1] + 1 : end]

    def _leave(self, drawn: bool) -> None:
        """The run parts from the trace in what the environment says: the
        action's last token leads elsewhere.
        """
        if self._following:
            self._following = False
            self._followed -= drawn

    def _end(
        self, outcome: float | None, end: Ending, reason: str | None, submission: str | None = None
    ) -> None:
        self.over = True
        self._finished.append(
            Rollout(
                **self._point.request.branch._asdict(),
                number=self._number,
                tokens=tuple(self._tokens),
                followed=self._followed,
                outcome=outcome,
                end=end,
                end_reason=reason,
                submission=submission,
            )
        )
