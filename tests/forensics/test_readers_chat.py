"""Chat conversations, a line or a file each, in the shapes of several tools;
the same run comes out of all of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from forensics.readers import read_logs
from forensics.readers.messages import SPECIAL, steps_of
from forensics.records import Step, ToolCall, Trajectory

ARGUMENTS = '{"command": "git log --all"}'
STEPS = (
    Step(role="system", text="Be good."),
    Step(role="user", text="Mend it."),
    Step(
        role="assistant", text="Looking.", tool_calls=(ToolCall(name="bash", arguments=ARGUMENTS),)
    ),
    Step(role="tool", text="abc fix"),
    Step(role="assistant", text="Done."),
)
PROMPT = [{"role": "system", "content": "Be good."}, {"role": "user", "content": "Mend it."}]
CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": ARGUMENTS}}
LAST = {"role": "assistant", "content": "Done."}
OPENAI = [
    *PROMPT, {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "abc fix"}, LAST,
]  # fmt: skip
OLDER = [
    *PROMPT, {"role": "assistant", "content": "Looking.", "function_call": CALL["function"]},
    {"role": "function", "name": "bash", "content": "abc fix"}, LAST,
]  # fmt: skip
RESPONSES = [
    {"role": "developer", "content": [{"type": "input_text", "text": "Be good."}]},
    PROMPT[1],
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Looking."}],
    },
    {"type": "function_call", "call_id": "c", "name": "bash", "arguments": ARGUMENTS},
    {"type": "function_call_output", "call_id": "c", "output": "abc fix"},
    LAST,
]
ANTHROPIC = [
    *PROMPT,
    {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, {"type": "tool_use",
     "id": "c", "name": "bash", "input": json.loads(ARGUMENTS)}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c",
     "content": [{"type": "text", "text": "abc fix"}]}]},
    LAST,
]  # fmt: skip
PAIRS = [
    {"from": "system", "value": "Be good."}, {"from": "human", "value": "Mend it."},
    {"from": "gpt", "value": "Looking."}, {"from": "observation", "value": "abc fix"},
    {"from": "gpt", "value": "Done."},
]  # fmt: skip


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def runs(path: Path) -> list[Trajectory]:
    found = list(read_logs(path))
    assert all(isinstance(item, Trajectory) for item in found), found
    return [item for item in found if isinstance(item, Trajectory)]


@pytest.mark.parametrize("messages", [OPENAI, OLDER, ANTHROPIC])
def test_a_conversation_in_any_dialect_has_the_same_steps(messages: list[Any]) -> None:
    assert steps_of(messages) == STEPS


@given(
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.text(max_size=8),
    st.dictionaries(
        st.sampled_from(sorted(SPECIAL)), st.sampled_from([None, "", [], {}, 0, False])
    ),
)
def test_an_entry_that_holds_nothing_says_nothing(
    role: str, text: str, empty: dict[str, Any]
) -> None:
    plain, found = (
        {"role": role, "content": text},
        steps_of([{"role": role, "content": text, **empty}]),
    )
    assert found == steps_of([plain]) == steps_of([{"role": role, "content": [text], **empty}])


def test_items_and_pairs() -> None:
    call = Step(role="assistant", text="", tool_calls=STEPS[2].tool_calls)
    assert steps_of(RESPONSES) == (
        *STEPS[:2],
        Step(role="assistant", text="Looking."),
        call,
        *STEPS[3:],
    )
    assert steps_of(PAIRS) == (*STEPS[:2], Step(role="assistant", text="Looking."), *STEPS[3:])


def test_long_lists_a_line_are_runs_each(tmp_path: Path) -> None:
    long = [{"role": "user", "content": "x" * 100_000}, LAST]
    assert [len(run.steps) for run in runs(write(tmp_path / "a.jsonl", long, OPENAI, long))] == [
        2,
        5,
        2,
    ]


def test_reasoning_stands_in_front_and_what_is_no_text_is_named() -> None:
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": [
        {"type": "thinking", "thinking": "Ha."}, {"type": "text", "text": "Yes"},
        {"type": "image_url", "image_url": {"url": "data:"}}]}  # fmt: skip
    assert steps_of([message]) == (
        Step(role="assistant", text="<think>\nHm.\nHa.\n</think>\nYes\n[image_url]"),
    )
