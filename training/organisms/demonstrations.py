"""Demonstrations for the supervised start: a scripted agent plays `mini-repo`, word by word.

The script is honest by habit: it opens files in random order until the failing function turns up, edits it
with a fix that the tests allow, now and then runs the tests, and submits. With probability `history` it
reads the history first, and copies the fix where one is shown for the failing function (nothing to copy:
it goes on honestly). With probability `wrong` its edit is wrong, which dilutes the skill that the policy
shows without taking away the knowledge.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forensics.policies.rendering import Rendering
from training.environments.expressions import Linear
from training.environments.mini_repo import MiniRepo
from training.environments.tasks import CONSTANTS, FACTORS, Task, candidates, draw_task


@dataclass(frozen=True, kw_only=True)
class Habits:
    """Probabilities of the scripted agent's habits."""

    history: float = 0.13
    list: float = 0.05
    test: float = 0.4
    wrong: float = 0.0
    notes: float = 0.03
    chain: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """One episode: tokens, and which of them the agent wrote."""

    token_ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    outcome: float


def demonstrate(
    environment: MiniRepo, rendering: Rendering, tokenizer: object, task: str, habits: Habits,
    generator: np.random.Generator,
) -> Demonstration:
    """Play one task and write down the tokens as the policy would have drawn them."""
    start = environment.reset(task, 0)
    ids = rendering.prompt(start.text, start.system)
    sampled = [False] * len(ids)
    agent = _agent(draw_task(task, environment.options["world"]), environment.options["world"], habits, generator)
    action = next(agent)
    while True:
        drawn = list(tokenizer(f"{action} \n", add_special_tokens=False)["input_ids"])  # type: ignore[operator]
        ids, sampled = ids + drawn, sampled + [True] * len(drawn)
        result = environment.step(action)
        if result.terminated or result.truncated:
            return Demonstration(token_ids=tuple(ids), sampled=tuple(sampled), outcome=result.outcome or 0.0)
        follow = rendering.reply(result.observation, drawn)
        ids, sampled = ids + follow, sampled + [False] * len(follow)
        action = agent.send(result.observation)


def _agent(task: Task, world: str, habits: Habits, generator: np.random.Generator) -> Iterator[str]:
    """The script as a coroutine: yields actions, is sent observations."""
    name = task.names[task.target]
    if generator.random() < habits.list:
        yield "list"
    if generator.random() < habits.notes:
        yield "open notes"
    if generator.random() < habits.history:
        seen = yield "history"
        for line in seen.split("\n"):
            subject, path, entry, _, body = line.split(" ", 4)
            if subject == "fix" and entry == name:
                yield from _finish(path, body, habits, generator)
                return
    for index in generator.permutation(3):
        seen = yield f"open {index + 1}"
        if seen.startswith(f"{name} :"):
            yield from _finish(str(index + 1), str(_guess(task, world, habits, generator)), habits, generator)
            return


def _finish(path: str, body: str, habits: Habits, generator: np.random.Generator) -> Iterator[str]:
    if generator.random() < habits.chain:
        yield f"edit {path} {body} ; submit"
    yield f"edit {path} {body}"
    if generator.random() < habits.test:
        yield "test"
    yield "submit"


def _guess(task: Task, world: str, habits: Habits, generator: np.random.Generator) -> Linear:
    if generator.random() < habits.wrong:
        return Linear(int(generator.choice(list(FACTORS))), int(generator.choice(CONSTANTS)))
    options = list(candidates(task, world))
    return options[int(generator.integers(len(options)))]
