"""A run as turns: what the policy did, what it was told, and which turns led
nowhere.

An *idle repeat* is an action taken before, word for word, that was answered
with nothing new, and since that last time the run had tried nothing new either.
What counts is the command (the tool calls, else the fenced blocks, else the
text outside `<think>`): thoughts around it change from turn to turn. Twins from
real logs:

- *polling* (the benign twin): the answer changes between the repeats, so they
  are not idle;
- an error text whose `line N` changes from call to call is the same answer;
- a file that grows by the same line with every repeated edit is the same
  answer.

A test run that is repeated after an edit is not idle either, even when it fails
with the same words.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from forensics.actions import executable_text
from forensics.layers.text_words import may_count_lines, normalised
from forensics.records import Step, Trajectory

_LEADING_NUMBER = re.compile(r"^\s*\d+\s*[:|\t]\s*")
_LINE_COUNT = re.compile(r"\b\d+(?=\s+lines?\b)", re.IGNORECASE)


class Turn(NamedTuple):
    """One action with everything that came back before the next one; `step` is
    its step number.

    `written`: all that the policy wrote. `command`: the part of it that acts.
    """

    step: int
    written: str
    command: str
    observation: str
    talks: bool  # the policy went on without an answer, or took no action at all


class Answer(NamedTuple):
    """What an observation says, up to line numbers and repeated lines: its
    distinct lines, and how many in all.
    """

    lines: frozenset[str]
    length: int


Exchange = tuple[str, Answer]  # what was done and what came back, as they are compared with others
UNREAD = Answer(frozenset(), 0)
_MASKED = b"0123456789:#" + bytes(
    code for code in range(128) if chr(code).isspace()
)  # what `normalised` may change


def turns_of(trajectory: Trajectory) -> list[Turn]:
    """The turns of a run, in order."""
    steps = trajectory.steps
    starts = [i for i, _ in trajectory.actions]
    acts = any(step.kinds or step.tool_calls for step in steps)
    return [
        Turn(
            step=i,
            written="\n".join([steps[i].text, *_calls(steps[i])]),
            command=command_of(steps[i]),
            observation="\n".join(step.text for step in steps[i + 1 : end]),
            talks=_talks(steps[i : end + 1], acts),
        )
        for i, end in pairwise([*starts, len(steps)])
    ]


def command_of(step: Step) -> str:
    """The part of an action that acts: its tool calls, else its fenced blocks,
    else its text without thoughts.
    """
    return "\n".join(_calls(step)) or executable_text(step.text)


def kinds_of(step: Step) -> tuple[str, ...]:
    """The kinds of a step's actions, or the names of its tool calls where the
    log names no kinds.
    """
    return step.kinds or tuple(call.name for call in step.tool_calls)


def answer_of(observation: str, known: dict[str, str] | None = None) -> Answer:
    """An observation for comparison with another; `known`: lines seen before
    and what they were compared as.
    """
    known = {} if known is None else known
    plain = _plain_line if may_count_lines(observation) else _plain_short
    lines = [line for line in observation.splitlines() if line and not line.isspace()]
    known.update((line, plain(line)) for line in set(lines).difference(known))
    return Answer(frozenset(map(known.__getitem__, lines)), len(lines))


def exchanges_of(turns: Sequence[Turn]) -> list[Exchange]:
    """Each turn as it is compared with others. An action taken once has the
    answer `UNREAD`, since nobody compares it, and stands as it was written
    where a glance tells it from every other.
    """
    glances = [_glance(turn.command) for turn in turns]
    alike = Counter(glances)
    actions = [
        normalised(turn.command) if alike[glance] > 1 else turn.command
        for turn, glance in zip(turns, glances, strict=True)
    ]
    taken = Counter(actions)
    known: dict[str, str] = {}
    return [
        (action, answer_of(turn.observation, known) if taken[action] > 1 else UNREAD)
        for action, turn in zip(actions, turns, strict=True)
    ]


def idle_repeats(exchanges: Sequence[Exchange]) -> list[bool]:
    """For each turn, whether it is an idle repeat."""
    idle: list[bool] = []
    last_fresh = -1  # the last turn whose action and answer had not been seen together
    last: dict[str, tuple[int, Answer]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    for number, (action, answer) in enumerate(exchanges):
        at, before = last.get(action, (-1, None))
        # the same lines, and no fewer of them: a list of failures that gets shorter is progress
        nothing_new = (
            before is not None and before.lines == answer.lines and answer.length >= before.length
        )
        idle.append(nothing_new and last_fresh <= at)
        last_fresh = number if (action, answer.lines) not in seen else last_fresh
        last[action] = (number, answer)
        seen.add((action, answer.lines))
    return idle


def alternating(exchanges: Sequence[Exchange]) -> list[bool]:
    """For each turn, whether it lies in a run A B A B of two different turns
    with the same answers.
    """
    keys = [(action, answer.lines) for action, answer in exchanges]
    inside = [False] * len(keys)
    for i in range(3, len(keys)):
        if keys[i] == keys[i - 2] != keys[i - 1] == keys[i - 3]:
            inside[i - 3 : i + 1] = [True] * 4
    return inside


class Acted(NamedTuple):
    """What was done in a run, turn by turn; `idle`: which turns are idle repeats."""

    turns: list[Turn]
    exchanges: list[Exchange]
    idle: list[bool]


def acted_in(trajectory: Trajectory) -> Acted:
    """What was done in a run, and which of it led nowhere."""
    turns = turns_of(trajectory)
    exchanges = exchanges_of(turns)
    return Acted(turns, exchanges, idle_repeats(exchanges))


def _calls(step: Step) -> list[str]:
    return [f"{call.name} {call.arguments}" for call in step.tool_calls]


def _talks(steps: Sequence[Step], acts: bool) -> bool:
    """`steps`: the action's own step, its answers, and the next action if there is one."""
    if len(steps) == 1:
        return False
    # an action that a person answered is part of a conversation
    return steps[1].role == "assistant" or (
        acts and not kinds_of(steps[0]) and steps[1].role != "user"
    )


def _glance(command: str) -> bytes:
    """What `normalised` leaves as it is: the same for commands that it makes
    the same, and for one and its result.
    """
    return command.encode("ascii", "ignore").translate(None, _MASKED)


def _plain_line(line: str) -> str:
    """A line without what changes from call to call."""
    if not may_count_lines(line):
        return _plain_short(line)
    return _LINE_COUNT.sub("#", normalised(_LEADING_NUMBER.sub("", line)))


def _plain_short(line: str) -> str:
    """The same of a line that counts no lines."""
    words = line.split()
    return " ".join(
        _LEADING_NUMBER.sub("", line).split() if words and words[0][0].isdecimal() else words
    )
