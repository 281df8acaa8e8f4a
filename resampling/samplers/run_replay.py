"""Recorded runs taken again, so that continuations can start inside them.

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

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.distribution import row_stream
from forensics.protocols import Environment, Renderer, StepResult
from forensics.records import Step, Trajectory, content_hash

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
        start = world.reset(run.task, reset_seed(run))
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
        with suppress(Exception):
            result = world.step(action.text)
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
