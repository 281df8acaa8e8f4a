"""Texts of trainers as steps: what a chat template made one text of, taken
apart again; and what their rollouts have in common.

1. A prompt in ChatML (`<|im_start|>role ... <|im_end|>`) is a step for each
   message; any other one is one of the user.
2. In a completion, tool answers in `<tool_response>` stand between the turns of
   the policy, the role names that a decoder left around them (`user`, `tool`,
   `assistant` on lines of their own) included. Without them it is one turn.
3. A `<tool_call>` with a JSON object is a tool call (Hermes, Qwen). The text
   stays as it was written.
4. The reward that is named as a success is the outcome, else the only one.

A policy may write these marks itself: then it played the environment's part,
and its text cannot be told from a real answer in a log that has no tokens.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forensics.readers.content import JsonObject
from forensics.readers.json_rows import parse_or
from forensics.readers.messages import ROLES, message_steps, tool_call, tool_step
from forensics.readers.values import as_mapping, field_names, number, prompt_hash, score_of
from forensics.records import Step, ToolCall

START, END = "<|im_start|>", "<|im_end|>"
OPEN, CLOSE = "<tool_response>", "</tool_response>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
NEAR = 64  # characters beside a mark in which a decoder leaves role names
LEFT_BEFORE = re.compile(r"(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?\s*\b(?:user|tool)[ \t]*\n?$")
LEFT_AFTER = re.compile(r"^\s*(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant[ \t]*(?:\n|$)")
_REWARDS = field_names("rewards")


def prompt_steps(text: str) -> tuple[Step, ...]:
    """The messages of a prompt; a last one of the assistant that is empty only opens the answer."""
    if not text.lstrip().startswith(START):
        return (Step(role="user", text=text),)
    steps = []
    for part in text.split(START)[1:]:
        name, _, rest = part.partition("\n")
        body = rest.split(END, 1)[0]
        if name.strip() != "assistant" or body.strip():
            steps.append(Step(role=ROLES.get(name.strip().lower(), "user"), text=body))
    return tuple(steps)


def completion_steps(text: str) -> tuple[Step, ...]:
    """The turns of a completion and what came back between them."""
    return tuple(_turns(text))


def _turns(text: str) -> Iterator[Step]:
    first, *rest = text.split(OPEN)
    yield _turn(_without_left(first) if rest else first)
    for at, part in enumerate(rest):
        answer, closed, after = part.partition(CLOSE)
        yield tool_step(answer.strip("\n"))
        written = LEFT_AFTER.sub("", after[:NEAR]) + after[NEAR:]
        written = _without_left(written) if at + 1 < len(rest) else written
        if closed and written.strip():
            yield _turn(written)


def _without_left(text: str) -> str:
    return text[:-NEAR] + LEFT_BEFORE.sub("", text[-NEAR:])


def _turn(text: str) -> Step:
    return Step(role="assistant", text=text, tool_calls=tuple(_calls(text)))


def _calls(text: str) -> Iterator[ToolCall]:
    for part in text.split(CALL_OPEN)[1:]:
        call = as_mapping(parse_or(part.split(CALL_CLOSE, 1)[0].strip()))
        if isinstance(call.get("name"), str):
            yield tool_call(call["name"], call.get("arguments", {}))


def prompt_and_completion(prompt: Any, completion: Any) -> tuple[tuple[Step, ...], str]:
    """The steps of a prompt and its completion, each a text or messages, and
    the name of the task.
    """
    asked = prompt_steps(prompt) if isinstance(prompt, str) else message_steps(prompt)
    answered = (
        completion_steps(completion) if isinstance(completion, str) else message_steps(completion)
    )
    return (*asked, *answered), prompt_hash(asked)


def numbers(values: JsonObject) -> dict[str, float | None]:
    """Those values that are numbers, or missing ones (`None`), by name."""
    kinds = (bool, int, float, type(None))
    return {str(name): number(value) for name, value in values.items() if isinstance(value, kinds)}


def named_outcome(rewards: Mapping[str, float | None]) -> float | None:
    """The reward that has the name of a success (`_REWARDS.success`), where it lies in [0, 1]."""
    bare = {name.lower(): value for name, value in rewards.items()}
    named = [
        score_of(bare[name + ending])
        for name in _REWARDS.success
        for ending in ("", *_REWARDS.endings)
        if name + ending in bare
    ]
    return next((value for value in named if value is not None), None)


def outcome_of(rewards: Mapping[str, float | None]) -> float | None:
    """The reward that is named as a success, else the only one; in [0, 1], else `None`."""
    only = score_of(next(iter(rewards.values()))) if len(rewards) == 1 else None
    found = named_outcome(rewards)
    return only if found is None else found
