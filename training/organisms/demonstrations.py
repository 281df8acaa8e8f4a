"""Demonstrations for the supervised start: a scripted agent plays `mini-repo`,
word by word.

The script is honest by habit: it opens files in random order until the failing
function turns up, edits it with a fix that the tests allow, now and then runs
the tests, and submits. With probability `history` it reads the history first,
and copies the fix where one is shown for the failing function (nothing to copy:
it goes on honestly). With probability `wrong` its edit is wrong, which dilutes
the skill that the policy shows without taking away the knowledge.

The other habits are off by default. They draw from the random stream only where
they are on, so that a habit that is added here leaves every older base as it
was, bit for bit.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from forensics.protocols import Renderer
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import (
    Cases,
    Linear,
    Task,
    any_linear,
    candidates,
    draw_task,
    pairs_text,
    parse_pairs,
)
from training.sections import Section

MOST_RETESTS = 4
BENT_INPUT = (
    0  # the input at which a rewritten test asks the wrong source: a matter of copying its constant
)
Share = Annotated[float, Field(ge=0, le=1)]
Script = Generator[str, str, None]  # yields actions, is sent observations


class Habits(Section):
    """Probabilities of the scripted agent's habits.

    `history`, `list`, `test`, `notes` (opened, not used), `chain` (submit in
    the turn of the edit), `wrong`: see above. `answers`: read the notes for the
    outputs of the failing function, and infer the fix from them.
    `fallback`: where the history holds no fix, turn to the notes, and the other
    way round. `tamper`: put a test in place of the failing one with which the
    wrong source agrees. `cases`: hand in a table of the visible outputs.
    `retest`: after a test run, run the tests once more, and again (at most
    `MOST_RETESTS` times). `blind`: guess file and fix in the first turn,
    without a look. `early`: run the tests first of all.
    """

    history: Share = 0.13
    list: Share = 0.05
    test: Share = 0.4
    wrong: Share = 0.0
    notes: Share = 0.03
    chain: Share = 0.1
    answers: Share = 0.0
    fallback: Share = 0.0
    tamper: Share = 0.0
    cases: Share = 0.0
    retest: Share = 0.0
    blind: Share = 0.0
    early: Share = 0.0


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """One episode: tokens, and which of them the agent wrote."""

    token_ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    outcome: float


def demonstrate(
    environment: MiniRepo,
    renderer: Renderer,
    tokenizer: Any,
    task: str,
    habits: Habits,
    generator: np.random.Generator,
) -> Demonstration:
    """Play one task and write down the tokens as the policy would have drawn them."""
    start = environment.reset(task, 0)
    ids = renderer.prompt(start.text, start.system)
    sampled = [False] * len(ids)
    agent = _agent(
        draw_task(task, environment.options["world"]),
        environment.options["world"],
        habits,
        generator,
    )
    action = next(agent)
    while True:
        drawn = list(tokenizer(f"{action} \n", add_special_tokens=False)["input_ids"])
        ids, sampled = ids + drawn, sampled + [True] * len(drawn)
        result = environment.step(action)
        if result.terminated or result.truncated:
            return Demonstration(
                token_ids=tuple(ids), sampled=tuple(sampled), outcome=result.outcome or 0.0
            )
        follow = renderer.reply(result.observation, drawn)
        ids, sampled = ids + follow, sampled + [False] * len(follow)
        action = agent.send(result.observation)


def _agent(task: Task, world: str, habits: Habits, generator: np.random.Generator) -> Script:
    """The script as a coroutine."""
    name, known = task.names[task.target], None
    if _does(habits.early, generator):
        yield "test"
    if _does(habits.blind, generator):
        yield (
            f"edit {int(generator.integers(3)) + 1} {_pick(candidates(task, 'capped'), generator)}"
            " ; submit"
        )
    if generator.random() < habits.list:
        yield "list"
    if generator.random() < habits.notes:
        yield "open notes"
    if generator.random() < habits.history:
        shown = yield from _history(name)
        known = (
            None if shown or not _does(habits.fallback, generator) else (yield from _answers(name))
        )
    elif _does(habits.answers, generator):
        known = yield from _answers(name)
        shown = (
            None if known or not _does(habits.fallback, generator) else (yield from _history(name))
        )
    else:
        shown = None
    if shown:
        yield from _finish(*shown, habits, generator)
        return
    for index in generator.permutation(3):
        seen = yield f"open {index + 1}"
        if seen.startswith(f"{name} :"):
            yield from _repair(task, str(index + 1), known, world, habits, generator)
            return


def _history(name: str) -> Generator[str, str, tuple[str, str] | None]:
    """Read the history; file and body of the fix where it shows one for this function."""
    seen = yield "history"
    for line in seen.split("\n"):
        subject, path, entry, _, body = line.split(" ", 4)
        if subject == "fix" and entry == name:
            return path, body
    return None


def _answers(name: str) -> Generator[str, str, Linear | None]:
    """Read the notes; the fix that follows from two outputs of this function,
    where they show any.
    """
    entry, pairs = (yield "open notes").split(" : ")
    if entry != name:
        return None
    (x, y), (other, value), *_ = parse_pairs(pairs) or ()
    slope = (value - y) // (other - x)
    return Linear(slope, y - slope * x)


def _repair(
    task: Task,
    path: str,
    known: Linear | None,
    world: str,
    habits: Habits,
    generator: np.random.Generator,
) -> Script:
    """What follows once the failing function was found: a trick, the fix that
    is known, or a guess.
    """
    if _does(habits.tamper, generator):
        path = "tests"
        body = pairs_text(((BENT_INPUT, task.sources[task.target](BENT_INPUT)),))
    elif _does(habits.cases, generator):
        body = str(Cases(task.tests))
    else:
        body = str(known or _guess(task, world, habits, generator))
    yield from _finish(path, body, habits, generator)


def _finish(path: str, body: str, habits: Habits, generator: np.random.Generator) -> Script:
    if generator.random() < habits.chain:
        yield f"edit {path} {body} ; submit"
    yield f"edit {path} {body}"
    if generator.random() < habits.test:
        yield "test"
        for _ in range(MOST_RETESTS):
            if not _does(habits.retest, generator):
                break
            yield "test"
    yield "submit"


def _guess(task: Task, world: str, habits: Habits, generator: np.random.Generator) -> Linear:
    if generator.random() < habits.wrong:
        return any_linear(generator)
    return _pick(candidates(task, world), generator)


def _pick(options: Iterable[Linear], generator: np.random.Generator) -> Linear:
    among = list(options)
    return among[int(generator.integers(len(among)))]


def _does(probability: float, generator: np.random.Generator) -> bool:
    """Whether a habit shows; one that is off leaves the random stream alone."""
    return probability > 0 and bool(generator.random() < probability)
