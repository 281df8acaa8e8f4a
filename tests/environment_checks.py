"""What every environment must keep, ours or a stranger's. Call
`check_environment` from a test of it.

`actions`: a few texts that a policy might write, valid ones and nonsense, the
last of which may end the episode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from forensics.protocols import Environment, Observation, StepResult


def check_environment(world: Environment, actions: Sequence[str]) -> None:
    """Run every check on one environment."""
    check_identity(world)
    check_splits(world)
    check_scrubbing(world)
    for scene in (world, world.without(*[channel.name for channel in world.channels])):
        check_replay(scene, actions)
        check_snapshot(scene, actions)
        check_neighbours(scene, actions)
        check_end(scene, actions)


def check_identity(world: Environment) -> None:
    """A name and options of text; a spawned instance is the same world."""
    assert isinstance(world, Environment)
    assert isinstance(world.options, Mapping)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in world.options.items())
    other = world.spawn()
    assert (other.name, dict(other.options), other.channels) == (
        world.name,
        dict(world.options),
        world.channels,
    )
    assert other is not world


def check_splits(world: Environment) -> None:
    """The splits never share a task, no task comes twice, and the same seed
    gives the same tasks.
    """
    train, held = world.tasks("train", 50, 0), world.tasks("held-out", 50, 0)
    assert train and held and not set(train) & set(held)
    assert len(set(held)) == len(held) <= 50
    assert world.tasks("held-out", 50, 0) == held
    assert not set(world.tasks("train", 50, 1)) & set(held)


def check_scrubbing(world: Environment) -> None:
    """Each channel can be taken out, alone and with the others; the original is left as it was."""
    names = [channel.name for channel in world.channels]
    assert world.scrubbed == ()
    for name in names:
        scrubbed = world.without(name)
        assert [channel.name for channel in scrubbed.channels] == [
            other for other in names if other != name
        ]
        assert scrubbed.scrubbed == (name,)
        assert dict(scrubbed.options) != dict(world.options)
        assert scrubbed.tasks("held-out", 20, 3) == world.tasks("held-out", 20, 3)
    everything = world.without(*names)
    assert everything.channels == () and everything.scrubbed == tuple(sorted(names))
    assert [channel.name for channel in world.channels] == names


def play(
    world: Environment, task: str, actions: Sequence[str], seed: int = 5
) -> list[Observation | StepResult]:
    """An episode until it ends or the actions do."""
    seen: list[Observation | StepResult] = [world.reset(task, seed)]
    for action in actions:
        result = world.step(action)
        seen.append(result)
        if result.terminated or result.truncated:
            break
    return seen


def check_replay(world: Environment, actions: Sequence[str]) -> None:
    """The same task, seed and actions give the same episode; kinds can be told without acting."""
    for task in world.tasks("held-out", 5, 0):
        first = play(world.spawn(), task, actions)
        assert play(world.spawn(), task, actions) == first
        for action, result in zip(actions, first[1:], strict=False):
            assert isinstance(result, StepResult)
            assert world.kinds(action)[: len(result.kinds)] == result.kinds


def check_snapshot(world: Environment, actions: Sequence[str]) -> None:
    """From a snapshot an episode goes on as it did, in another instance too,
    whatever happened since.
    """
    for task in world.tasks("held-out", 5, 0):
        whole = play(world.spawn(), task, actions)
        for cut in range(len(whole) - 1):
            running = world.spawn()
            play(running, task, actions[:cut])
            state = running.snapshot()
            rest = whole[1 + cut :]
            assert _go_on(running, actions[cut:], len(rest)) == rest
            other = world.spawn()
            other.restore(state)
            assert _go_on(other, actions[cut:], len(rest)) == rest


def _go_on(world: Environment, actions: Sequence[str], number: int) -> list[Any]:
    return [world.step(action) for action in actions[:number]]


def check_neighbours(world: Environment, actions: Sequence[str]) -> None:
    """Episodes side by side do not touch each other."""
    tasks = world.tasks("held-out", 2, 0)
    alone = [play(world.spawn(), task, actions) for task in tasks]
    running = [world.spawn() for _ in tasks]
    together: list[list[Any]] = [
        [instance.reset(task, 5)] for instance, task in zip(running, tasks, strict=True)
    ]
    for turn, action in enumerate(actions):
        for i, instance in enumerate(running):
            if turn + 1 < len(alone[i]):
                together[i].append(instance.step(action))
    assert together == alone


def check_end(world: Environment, actions: Sequence[str]) -> None:
    """At the end, and only there, an episode has an outcome; ended and cut off are two things."""
    for task in world.tasks("held-out", 5, 0):
        for result in play(world.spawn(), task, actions)[1:]:
            assert isinstance(result, StepResult)
            over = result.terminated or result.truncated
            assert not (result.terminated and result.truncated)
            assert over or (result.outcome is None and not result.rewards)
            assert result.outcome is None or 0 <= result.outcome <= 1
            assert set(result.channels) <= {channel.name for channel in world.channels}
