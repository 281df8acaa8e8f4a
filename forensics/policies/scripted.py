"""A policy made of an agent: a known distribution over the *texts of actions*, as
`constructed` is one over tokens. For worlds in which every score is arithmetic.

1. An `Agent` is given what a model is given, texts: the prompt, and what it did
   and read so far. It never sees the environment, so that whatever changes those
   texts acts on it as on a model.
2. A *mood* is drawn once a run (skill or habit, say), an action in every turn,
   by inverting the cumulative distribution at the next uniform number of the
   run's own stream. The stream is a function of seed, task and sample, so that
   runs in altered worlds are coupled with the plain ones, equal up to the first
   draw that differs. Options are drawn in the order in which the agent names
   them: an agent that keeps its order is coupled beyond other words too.
3. A refused action is not drawn again at its turn: the next draw is from what is
   left, renormalised. Where nothing is left, or after `max_redraws` refusals, the
   run is *errored*, as that of any policy (`episodes`).
4. An agent that raises is its author's mistake, and loud. But in an altered world
   it may meet a text that nobody foresaw, where a model would write something
   that is worth nothing: there its run is truncated, and scores nothing.

Sampling settings are about tokens, and change nothing here. There are no tokens
and no log-probabilities.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isclose
from typing import Any, Protocol

from forensics.errors import UserError, environment_failure, stop_outside
from forensics.policies.distribution import row_stream, uniforms
from forensics.policies.episodes import ending_of, engine_ended, episode_id
from forensics.protocols import (
    Capability,
    Constraint,
    Environment,
    Intervention,
    Policy,
    SamplingSettings,
)
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import TOKEN_LIMIT, WORLD_RAISED

DRAWN_FIRST = 16  # uniform numbers of a run that are kept for the worlds coupled with it
ALWAYS = ""  # the mood of an agent that has but one


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What an agent knows when it acts. `turns`: each action and what came back."""

    prompt: str
    system: str | None = None
    turns: tuple[tuple[str, str], ...] = ()
    mood: str = ALWAYS

    @property
    def read(self) -> str:
        """What came back last, before that the prompt."""
        return self.turns[-1][1] if self.turns else self.prompt


class Agent(Protocol):
    """Something that acts. `identity` must say everything that matters, as it
    names what is stored. `moods`: the probability of each, drawn once a run.
    """

    @property
    def identity(self) -> str: ...
    @property
    def moods(self) -> Mapping[str, float]: ...
    def act(self, view: View) -> Mapping[str, float]:
        """The probability of each text that it might write now."""
        ...


def scripted_policy(agent: Agent, most_turns: int = 32) -> Policy:
    """An agent as a policy; `forensics.investigate` takes it where it takes a
    directory. A run that has not ended after `most_turns` is truncated.
    """
    policy: Any = ScriptedPolicy(agent=agent, most_turns=most_turns)
    made: Policy = policy
    return made


@dataclass(kw_only=True)
class ScriptedPolicy:
    """An agent behind the protocol `Policy`: it plays, and redraws what is refused."""

    agent: Agent
    identity: str = ""
    most_turns: int = 32
    capabilities: frozenset[Capability] = frozenset({"play", "constraint"})

    def __post_init__(self) -> None:
        self.identity = self.identity or self.agent.identity

    def rendered_for(self, environment: Environment) -> "ScriptedPolicy":
        """Itself: there are no tokens."""
        return self

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Episodes, `samples` of each task, in the order of `tasks`."""
        if interventions:
            raise UserError(f"the policy {self.identity} has no activations to change")
        for task in tasks:
            number = int(content_hash(task, 15), 16)
            for sample in range(samples):
                draws = _draws(seed, number, sample)
                run = _Run(self.agent, environment.spawn(), draws, constraint, self.most_turns)
                ending = run.to_its_end(task, _drawn_first(seed, number, sample)[0])
                yield Trajectory(
                    id=episode_id(self.identity, environment, seed, task, sample, constraint),
                    task=task,
                    policy=self.identity,
                    environment=environment.name,
                    without=environment.scrubbed,
                    seed=seed,
                    sample=sample,
                    steps=tuple(run.steps),
                    redraws=run.refused,
                    **ending,
                )


class _Raised(Exception):
    """By a world."""


class _Lost(Exception):
    """An agent, in an altered world."""


@dataclass(eq=False)
class _Run:
    """One episode."""

    agent: Agent
    world: Environment
    draws: Iterator[float]
    constraint: Constraint | None
    most_turns: int
    steps: list[Step] = field(default_factory=list)
    refused: int = 0

    def to_its_end(self, task: str, seed: int) -> dict[str, Any]:
        """Play; how it ended, as a trajectory says it."""
        try:
            start = self._of_world(self.world.reset, task, seed)
            if start.system:
                self.steps.append(_step("system", start.system))
            self.steps.append(_step("user", start.text, channels=start.channels))
            mood = self._drawn(self._whole(self.agent.moods))
            view = View(prompt=start.text, system=start.system, mood=mood)
            for _ in range(self.most_turns):
                if (action := self._action(self._wished(view))) is None:
                    assert self.constraint is not None
                    why = f"every draw was refused by {self.constraint.name}"
                    return engine_ended("errored", why)
                result = self._of_world(self.world.step, action)
                said = result.observation
                self.steps.append(_step("tool", said, channels=result.channels))
                if result.terminated or result.truncated:
                    return ending_of(result)
                turns = (*view.turns, (action, said))
                view = View(prompt=start.text, system=start.system, turns=turns, mood=mood)
        except _Raised as raised:
            return engine_ended("errored", f"{WORLD_RAISED} {raised}")
        except _Lost as lost:
            return engine_ended("truncated", f"the agent raised {lost}")
        return engine_ended("truncated", TOKEN_LIMIT)

    def _of_world(self, call: Callable[..., Any], *given: Any) -> Any:
        """What the world answers; a mishap of its own ends the run, one of the agent does not."""
        try:
            return call(*given)
        except UserError as error:
            raise environment_failure(error) from error
        except Exception as error:
            stop_outside(error)
            raise _Raised(f"{type(error).__name__}: {error}") from error

    def _wished(self, view: View) -> Mapping[str, float]:
        """What the agent may do now."""
        try:
            return self._whole(self.agent.act(view))
        except Exception as error:
            if "altered" not in self.world.options:
                raise
            stop_outside(error)
            raise _Lost(f"{type(error).__name__}: {error}") from error

    def _action(self, options: Mapping[str, float]) -> str | None:
        """The next action; `None` where every draw was refused."""
        left = dict(options)
        while any(left.values()):
            action = self._drawn(left)
            kinds = self._of_world(self.world.kinds, action)
            if self.constraint is None or self.constraint.allows(action, kinds):
                self.steps.append(_step("assistant", action, kinds))
                return action
            self.refused += 1
            if self.refused > self.constraint.max_redraws:
                break
            del left[action]
        return None

    def _drawn(self, options: Mapping[str, float]) -> str:
        """One of them, at the run's next uniform number."""
        target, drawn = next(self.draws) * sum(options.values()), ""
        for option, probability in options.items():
            if probability > 0:  # the last possible one, where rounding leaves a rest
                drawn = option
                target -= probability
                if target < 0:
                    break
        return drawn

    def _whole(self, options: Mapping[str, float]) -> Mapping[str, float]:
        if not isclose(total := sum(options.values()), 1, abs_tol=1e-6):
            raise UserError(f"what {self.agent.identity} may do has probability {total:g}, not 1")
        return options


@lru_cache(maxsize=8192)
def _drawn_first(seed: int, number: int, sample: int) -> tuple[int, tuple[float, ...]]:
    """A run's start and its first uniform numbers: each world that is coupled
    with it asks for the same.
    """
    stream = row_stream(seed, number, sample)
    return int(stream.integers(2**31)), tuple(stream.random(DRAWN_FIRST).tolist())


def _draws(seed: int, number: int, sample: int) -> Iterator[float]:
    """All of a run's uniform numbers."""
    yield from _drawn_first(seed, number, sample)[1]
    stream = row_stream(seed, number, sample)
    stream.integers(2**31), stream.random(DRAWN_FIRST)  # these were given
    yield from uniforms(stream)


@lru_cache(maxsize=4096)
def _known_step(role: Any, text: str, kinds: tuple[str, ...], channels: tuple[str, ...]) -> Step:
    """A message. Runs repeat each other, and a step is immutable."""
    return Step(role=role, text=text, kinds=kinds, channels=channels)


def _step(
    role: Any, text: str, kinds: tuple[str, ...] = (), channels: tuple[str, ...] = ()
) -> Step:
    try:
        return _known_step(role, text, kinds, channels)
    except TypeError:  # somebody's world says it in a list
        return Step(role=role, text=text, kinds=kinds, channels=channels)
