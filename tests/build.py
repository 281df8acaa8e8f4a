"""What small worlds, policies and cases of tests share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from forensics.case import Budget, Case
from forensics.protocols import Channel
from forensics.records import Step, Trajectory, content_hash
from tests.subjects import loaded


@dataclass(kw_only=True)
class SmallWorld:
    """A world of one dataclass, all of whose actions are answers. `changing`: the fields that
    change in an episode.
    """

    name: str = "small"
    channels: tuple[Channel, ...] = ()
    scrubbed: tuple[str, ...] = ()
    task: str = ""
    changing: ClassVar[tuple[str, ...]] = ("task",)

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def without(self, *channels: str) -> Any:
        return replace(self, scrubbed=channels)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(f"{split}-{i}" for i in range(number))

    def spawn(self) -> Any:
        return replace(self)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def snapshot(self) -> Any:
        return {name: getattr(self, name) for name in self.changing}

    def restore(self, state: Any) -> None:
        vars(self).update(state)


class Plays:
    """A policy that plays its episodes one by one, each by `_episode`."""

    capabilities = frozenset({"play", "constraint"})

    def play(
        self,
        environment: Any,
        tasks: Sequence[str],
        samples: int,
        settings: Any,
        seed: int,
        constraint: Any = None,
        interventions: Sequence[Any] = (),
    ) -> Iterator[Trajectory]:
        for task in tasks:
            for sample in range(samples):
                yield self._episode(environment.spawn(), task, sample, seed, constraint)

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        raise NotImplementedError


def stream_of(*parts: object) -> tuple[str, np.random.Generator]:
    """The name of an episode, and the random stream that belongs to it."""
    key = content_hash(list(parts), 15)
    return key, np.random.default_rng(int(key, 16))


def acted(world: Any, action: str, steps: list[Step]) -> Any:
    """Take an action; it and what comes back are the next two steps."""
    result = world.step(action)
    steps.append(Step(role="assistant", text=action, kinds=result.kinds))
    steps.append(Step(role="tool", text=result.observation))
    return result


@dataclass(frozen=True, kw_only=True)
class Habitual:
    """A scripted agent with a mood in each run. `habits`: how often each; else `none`."""

    name: str
    habits: Mapping[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return f"{self.name} {sorted(self.habits.items())}"

    @property
    def moods(self) -> Mapping[str, float]:
        return {**self.habits, "none": 1 - sum(self.habits.values())}


def sides_of(before: Any, *afters: Any) -> dict[str, Any]:
    return {"before": before, **{f"after-{i}": after for i, after in enumerate(afters)}}


def case_of(
    folder: Path,
    world: Any,
    policies: Mapping[str, Any],
    identities: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
    tasks: int = 100,
    samples: int = 4,
    **more: Any,
) -> Case:
    """A case of policies. Sides use independent streams, unless `identities` says otherwise."""
    return Case(
        folder=folder,
        environment=world,
        seed=seed,
        budget=Budget(tasks=tasks, samples=samples),
        subjects=loaded(
            {side: (lambda one=one: one) for side, one in policies.items()},
            identities or {side: content_hash([side, seed]) for side in policies},
        ),
        **more,
    )


def agent_case(folder: Path, world: Any, *agents: Any, **more: Any) -> Case:
    """A case of agents in a script's form: before training, then after."""
    from forensics.policies.scripted import scripted_policy  # loads torch

    sides = sides_of(*agents)
    policies = {side: scripted_policy(agent) for side, agent in sides.items()}
    identities = {side: agent.identity for side, agent in sides.items()}
    return case_of(folder, world, policies, identities, **{"tasks": 200, **more})
