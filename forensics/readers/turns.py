"""Texts of trainers as steps: what a chat template made one text of, taken apart again.

1. A prompt in ChatML (`<|im_start|>role ... <|im_end|>`) is a step for each message; any other one is one of the user.
2. In a completion, tool answers in `<tool_response>` stand between the turns of the policy, the role names that a
   decoder left around them (`user`, `tool`, `assistant` on lines of their own) included. Without them it is one turn.
3. A `<tool_call>` with a JSON object is a tool call (Hermes, Qwen). The text stays as it was written.

A policy may write these marks itself: then it played the environment's part, and its text cannot be told from a real
answer in a log that has no tokens.
"""

import json
import re
from collections.abc import Iterator

from forensics.readers.documents import entries
from forensics.readers.messages import ROLES
from forensics.readers.opening import Refused
from forensics.readers.parsing import parse
from forensics.records import Step, ToolCall

START, END = "<|im_start|>", "<|im_end|>"
OPEN, CLOSE = "<tool_response>", "</tool_response>"
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
NEAR = 64  # characters beside a mark in which a decoder leaves role names
LEFT_BEFORE = re.compile(r"(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?\s*\b(?:user|tool)[ \t]*\n?$")
LEFT_AFTER = re.compile(r"^\s*(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant[ \t]*(?:\n|$)")


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
        yield Step(role="tool", text=answer.strip("\n"))
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
        try:
            call = entries(parse(part.split(CALL_CLOSE, 1)[0].strip()))
        except Refused:
            continue
        if isinstance(call.get("name"), str):
            arguments = call.get("arguments", {})
            told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield ToolCall(name=call["name"], arguments=told)
