"""Recorded runs taken again, so that continuations can start inside them.

1. The environment is reset as it was for the run (`start_episodes`: a run's seed, task and sample number give the seed
   of its reset) and the recorded actions are taken again, once a trace.
2. What the environment says must be what was recorded, in words and in tokens, and so must the outcome. The state
   before each action is kept (`snapshot`); afterwards each is restored once, and must say the same again.
3. Each continuation has an environment of its own, restored to the state before its running action.

Luck: a snapshot holds the random state, so continuations from one state all meet the luck that the environment has in
store there, and a potential is one *given* that luck. An environment with a method `reseed(seed)` is reseeded for each
continuation, and the potential is then over fresh luck.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.policies.rendering import Rendering
from forensics.policies.sampling import row_stream
from forensics.protocols import Environment, StepResult
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
        """An environment of one's own, as it was before an action. `seed`: of its luck, where it can be reseeded."""
        environment = self.environment.spawn()
        environment.restore(self.states[action])
        if self.fresh_luck:
            environment.reseed(seed)  # type: ignore[attr-defined]
        return environment


def replay(trajectory: Trajectory, environment: Environment, rendering: Rendering | None = None) -> Replay:
    """Take a run's actions again.

    `rendering`: of the policy that continues it, whose tokens must be the recorded ones. Raises `UserError` where the
    environment does not say again what it said, or has no snapshots.
    """
    _require_world(trajectory, environment)
    world, turns = environment.spawn(), _turns(trajectory)
    _begin(world, trajectory, rendering)
    states = []
    for number, action, answer in turns:
        states.append(_snapshot(world))
        _require_same(trajectory, number, answer, _take(world, trajectory, number), action, rendering)
    for (number, action, answer), state in zip(turns, states, strict=True):
        world = environment.spawn()
        world.restore(state)
        _require_same(trajectory, number, answer, _take(world, trajectory, number), action, rendering)
    return Replay(environment=environment, states=tuple(states))


def reset_seed(trajectory: Trajectory) -> int:
    """The seed that the run's environment was reset with."""
    stream = row_stream(trajectory.seed, int(content_hash(trajectory.task, 15), 16), trajectory.sample)
    return int(stream.integers(2**31))


def _require_world(trajectory: Trajectory, environment: Environment) -> None:
    if trajectory.environment != environment.name or tuple(sorted(trajectory.without)) != environment.scrubbed:
        recorded, given = ((name, f" without {', '.join(channels)}" if channels else "") for name, channels in (
            (trajectory.environment, trajectory.without), (environment.name, environment.scrubbed)))
        raise UserError(f"trajectory {trajectory.id} was recorded in {''.join(recorded)}, not in {''.join(given)}; "
                        "give that world")


def _turns(trajectory: Trajectory) -> list[tuple[int, Step, Step | None]]:
    """Step number and action of each turn, with what the environment answered (`None`: it broke)."""
    following = (*trajectory.steps[1:], None)
    return [
        (number, step, answer) for number, (step, answer) in enumerate(zip(trajectory.steps, following, strict=True))
        if step.role == "assistant"
    ]


def _begin(world: Environment, trajectory: Trajectory, rendering: Rendering | None) -> None:
    start = world.reset(trajectory.task, reset_seed(trajectory))
    asked = next((step for step in trajectory.steps if step.role == "user"), None)
    if asked is None or asked.text != start.text:
        raise _differs(trajectory, 0)
    if rendering is not None:
        _require_tokens(trajectory, 0, rendering.prompt(start.text, start.system), asked)


def _snapshot(world: Environment) -> Any:
    try:
        state = world.snapshot()
    except (AttributeError, NotImplementedError):
        state = None
    if state is None:
        raise UserError(
            f"the environment {world.name} has no snapshots, so runs cannot be continued from inside; give it "
            "snapshot() and restore()"
        )
    return state


def _take(world: Environment, trajectory: Trajectory, number: int) -> StepResult | None:
    """What the environment answers to a recorded action, `None` where it breaks."""
    try:
        return world.step(trajectory.steps[number].text)
    except Exception:
        return None


def _require_same(
    trajectory: Trajectory, number: int, answer: Step | None, result: StepResult | None, action: Step,
    rendering: Rendering | None,
) -> None:
    if answer is None or result is None:
        if answer is not None or result is not None:
            raise _differs(trajectory, number + 1)
        return
    over = result.terminated or result.truncated
    if result.observation != answer.text or (over and result.outcome != trajectory.outcome):
        raise _differs(trajectory, number + 1)
    if rendering is not None and not over:
        _require_tokens(trajectory, number + 1, rendering.reply(result.observation, action.token_ids or ()), answer)


def _require_tokens(trajectory: Trajectory, number: int, ids: Sequence[int], step: Step) -> None:
    if step.token_ids != tuple(ids):
        raise UserError(
            f"step {number} of trajectory {trajectory.id} has other tokens than this policy's tokenizer gives its "
            f"text; {CURE}"
        )


def _differs(trajectory: Trajectory, number: int) -> UserError:
    return UserError(
        f"the environment does not replay trajectory {trajectory.id}: it does not say again what step {number} holds; "
        f"{CURE}"
    )
