"""Calls as parts of messages, in the shapes of several products: the same run comes
out of all of them.
"""

import json
from typing import Any

import pytest

from forensics.readers import steps_of
from forensics.readers.call_parts import call_part
from forensics.records import Step

GIVEN = {"command": "git log --all"}
SHOWN = "abc fix"
TEXT = {"type": "text", "text": SHOWN}
ASKED = {"role": "user", "content": "Mend it."}


def calling(part: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [part]}


FORMS: dict[str, list[dict[str, Any]]] = {
    "bedrock": [
        {"role": "user", "content": [{"text": "Mend it."}]},
        calling({"toolUse": {"toolUseId": "c", "name": "bash", "input": GIVEN}}),
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": SHOWN}]}}],
        },
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Mend it."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": GIVEN}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "bash", "response": {"output": SHOWN}}}],
        },
    ],
    "core of vercel": [
        ASKED,
        calling({"type": "tool-call", "toolCallId": "c", "toolName": "bash", "input": GIVEN}),
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolName": "bash",
                    "output": {"type": "text", "value": SHOWN},
                }
            ],
        },
    ],
    "anthropic's own tools": [
        ASKED,
        calling({"type": "mcp_tool_use", "id": "c", "name": "bash", "input": GIVEN}),
        {"role": "assistant", "content": [{"type": "mcp_tool_result", "content": [TEXT]}]},
    ],
    "named tools of an interface": [
        {"role": "user", "parts": [{"type": "text", "text": "Mend it."}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "tool-bash", "toolCallId": "c", "input": GIVEN, "output": SHOWN},
            ],
        },
    ],
    "a dynamic tool": [
        ASKED,
        {
            "role": "assistant",
            "parts": [
                {"type": "dynamic-tool", "toolName": "bash", "input": GIVEN, "errorText": SHOWN}
            ],
        },
    ],
    "older invocations": [
        ASKED,
        {
            "role": "assistant",
            "content": "",
            "toolInvocations": [{"toolName": "bash", "args": GIVEN, "result": SHOWN}],
        },
    ],
    "invocations as parts": [
        ASKED,
        {
            "role": "assistant",
            "parts": [
                {
                    "type": "tool-invocation",
                    "toolInvocation": {"toolName": "bash", "args": GIVEN, "result": SHOWN},
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call_and_its_answer(form: str) -> None:
    steps = steps_of(FORMS[form])
    assert [step.role for step in steps] == ["user", "assistant", "tool"]
    assert [step.text for step in steps] == [
        "Mend it.", "", '{"output": "abc fix"}' if form == "gemini" else SHOWN
    ]  # fmt: skip
    (call,) = steps[1].tool_calls
    assert call.name == "bash" and json.loads(call.arguments) == GIVEN


def test_each_tool_of_a_shown_answer_is_a_turn() -> None:
    ran = [
        {"type": "text", "text": "Looking."},
        {"type": "tool-bash", "input": GIVEN, "output": "one"},
        {"type": "tool-bash", "input": GIVEN, "output": {"stdout": "two"}},
        {"type": "text", "text": "Done."},
    ]
    steps = steps_of([{"role": "assistant", "parts": ran}])
    assert [(step.role, step.text) for step in steps] == [
        ("assistant", "Looking."), ("tool", "one"), ("assistant", ""),
        ("tool", '{"stdout": "two"}'), ("assistant", "Done."),
    ]  # fmt: skip
    assert [len(step.tool_calls) for step in steps] == [1, 0, 1, 0, 0]


def test_reasoning_of_bedrock_and_gemini() -> None:
    bedrock = [{"reasoningContent": {"reasoningText": {"text": "Hm."}}}, {"text": "So."}]
    gemini = [{"text": "Hm.", "thought": True}, {"text": "So."}]
    vercel = [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "So."}]
    for parts in (bedrock, gemini, vercel):
        (step,) = steps_of([{"role": "assistant", "content": parts}])
        assert step == Step(role="assistant", text="<think>\nHm.\n</think>\nSo.")


def test_a_call_that_still_waits_has_no_answer() -> None:
    waits = {"type": "tool-bash", "state": "input-available", "input": GIVEN}
    (step,) = steps_of([{"role": "assistant", "parts": [waits]}])
    assert len(step.tool_calls) == 1


@pytest.mark.parametrize("part", [{}, {"type": 3}, {"type": "image"}, {"toolUse": "text"}])
def test_what_is_no_call(part: dict[str, Any]) -> None:
    assert call_part(part) is None
