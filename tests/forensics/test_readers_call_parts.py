"""Calls as parts of messages, in the shapes of several products: the same run comes
out of all of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.readers import steps_of
from forensics.readers.messages import call_part
from forensics.records import Step

GIVEN = {"command": "git log --all"}
SHOWN = "abc fix"
TEXT = {"type": "text", "text": SHOWN}
ASKED = {"role": "user", "content": "Mend it."}


def calling(part: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [part]}


FORMS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "call_forms.json").read_text()
)


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
