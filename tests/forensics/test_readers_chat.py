"""Chat conversations, a line or a file each, in the shapes of several tools;
the same run comes out of all of them.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, chat, read_logs
from forensics.readers.messages import SPECIAL, steps_of
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import DATA, damaged, survives

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
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "c", "name": "bash", "input": json.loads(ARGUMENTS)},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": [{"type": "text", "text": "abc fix"}],
            }
        ],
    },
    LAST,
]
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


@pytest.mark.parametrize(
    "row",
    [
        OPENAI,
        {"messages": OPENAI},
        {"conversations": OPENAI},
        {"messages": OPENAI[:-1], "response": "Done."},
        {"messages": OPENAI[:-1], "completion": [LAST]},
        {"prompt": OPENAI[:-1], "completion": "Done."},
        {"messages": OPENAI[:-1], "choices": [{"message": LAST, "finish_reason": "stop"}]},
        {"request": {"messages": OPENAI[:-1]}, "response": {"choices": [{"message": LAST}]}},
        {
            "body": {"messages": OPENAI[:-1]},
            "response": {"status_code": 200, "body": {"choices": [{"message": LAST}]}},
        },
        {"request": {"body": {"messages": OPENAI[:-1]}}, "response": LAST},
    ],
)
def test_rows_of_many_shapes_hold_the_same_run(tmp_path: Path, row: Any) -> None:
    first, second = runs(write(tmp_path / "a.jsonl", row, row))
    assert first.steps == second.steps == STEPS
    assert first.id != second.id and (first.outcome, first.rewards, first.end) == (
        None,
        {},
        "terminated",
    )
    assert (first.policy, first.environment, first.seed, first.sample) == ("a", "chat", 0, 0)
    document = write(tmp_path / "b.json", [row, row] if isinstance(row, dict) else row)
    assert {run.steps for run in runs(document)} == {STEPS}


def test_a_file_may_be_one_conversation(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps(OPENAI, indent=2))
    write(tmp_path / "lines.jsonl", *OPENAI)
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(json.dumps(OPENAI).encode()))
    found = runs(tmp_path)
    assert [run.steps for run in found] == [STEPS] * 3
    assert [run.policy for run in found] == ["lines", "list", "packed"]
    assert len({run.task for run in found}) == 1  # the prompt names the task


def test_long_lists_a_line_are_runs_each(tmp_path: Path) -> None:
    long = [{"role": "user", "content": "x" * 100_000}, LAST]
    assert [len(run.steps) for run in runs(write(tmp_path / "a.jsonl", long, OPENAI, long))] == [
        2,
        5,
        2,
    ]


def test_what_a_row_says_about_its_run_is_kept(tmp_path: Path) -> None:
    row = {
        "id": "run-1",
        "task_id": 17,
        "model": "m",
        "dataset": "d",
        "seed": 3,
        "trial": 2,
        "score": 0.25,
        "messages": OPENAI,
        "metadata": {"task_id": "other", "reward": 5},
        "exit_status": "max_tokens",
    }
    (found,) = runs(write(tmp_path / "a.jsonl", row))
    assert found == Trajectory(
        id="run-1",
        task="17",
        policy="m",
        environment="d",
        seed=3,
        sample=2,
        steps=STEPS,
        outcome=0.25,
        rewards={"score": 0.25, "reward": 5.0},
        end="truncated",
        end_reason="max_tokens",
    )


@pytest.mark.parametrize("extra, expected", [
    ({"reward": -1}, (None, {"reward": -1.0}, "terminated")),
    ({"success": True}, (1.0, {"success": 1.0}, "terminated")),
    ({"score": None, "rewards": {"a": 1, "b": None}}, (None, {"a": 1.0, "b": None}, "terminated")),
    ({"resolved": False, "error": "boom"}, (0.0, {"resolved": 0.0}, "errored")),
    ({"choices": [{"finish_reason": "length"}]}, (None, {}, "truncated")),
])  # fmt: skip
def test_scores_and_endings(tmp_path: Path, extra: dict[str, Any], expected: Any) -> None:
    (found,) = runs(write(tmp_path / "a.jsonl", {"messages": OPENAI, **extra}))
    assert (found.outcome, found.rewards, found.end) == expected


def test_rows_that_are_no_conversation_are_told_by_line(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"messages": OPENAI},
        {"no": 1},
        3,
        {"messages": [{"role": "alien", "content": ""}]},
    ]
    path = write(tmp_path / "a.jsonl", *rows, {"messages": [LAST, 5]})
    first, *rest = read_logs(path)
    assert isinstance(first, Trajectory)
    assert [item.where for item in rest if isinstance(item, Unreadable)] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
    ]


def test_reasoning_stands_in_front_and_what_is_no_text_is_named() -> None:
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": [
        {"type": "thinking", "thinking": "Ha."}, {"type": "text", "text": "Yes"},
        {"type": "image_url", "image_url": {"url": "data:"}}]}  # fmt: skip
    assert steps_of([message]) == (
        Step(role="assistant", text="<think>\nHm.\nHa.\n</think>\nYes\n[image_url]"),
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_lines_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    dialect = data.draw(st.sampled_from([OPENAI, OLDER, RESPONSES, ANTHROPIC, PAIRS]))
    content = "\n".join(
        json.dumps(row) for row in [dialect, {"messages": dialect, "score": 1}, *dialect]
    )
    survives(
        chat.reader, tmp_path_factory.getbasetemp() / "bad", data.draw(damaged(content.encode()))
    )


odd: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "choices", "message", "function", "name"]),
            inner,
        )
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        ["response", "choices", "metadata", "request", "error", "rewards", "seed", "trial", "id"]
    ),
    st.sampled_from(["content", "tool_calls", "function_call", "reasoning", "summary"]),
    odd,
    odd,
)
def test_fields_of_another_kind_never_crash(
    tmp_path_factory: pytest.TempPathFactory, key: str, part: str, value: Any, other: Any
) -> None:
    row = {"messages": [*OPENAI, {"role": "assistant", part: other}], key: value}
    assert len(list(chat.reader.read(write(tmp_path_factory.getbasetemp() / "odd", row)))) == 1


@pytest.mark.parametrize(
    "row",
    [
        {
            "question": "Mend it.",
            "response": "Done.",
            "is_correct": False,
            "problem_id": "p",
            "id": "r",
            "_model": "m",
        },
        {
            "prompt": "Mend it.",
            "response": "Done.",
            "correct": 0,
            "task": "p",
            "id": "r",
            "model": "m",
        },
        {
            "cue_text": "Mend it.",
            "response_text": "Done.",
            "score": 0,
            "task_id": "p",
            "id": "r",
            "policy": "m",
        },
    ],
)
def test_a_question_and_its_answer_are_a_run_of_two_messages(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    for content in (json.dumps(row), json.dumps(row, indent=2), json.dumps([row], indent=2)):
        (tmp_path / "log.json").write_text(content)
        (found,) = read_logs(tmp_path / "log.json")
        assert isinstance(found, Trajectory)
        assert found.steps == (
            Step(role="user", text="Mend it."),
            Step(role="assistant", text="Done."),
        )
        assert (found.id, found.task, found.policy, found.outcome) == ("r", "p", "m", 0.0)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "How many?", "answer": "8"},
        {"question": "How many?"},
        {"question": "How many?", "response": None},
        {"response": "Done."},
        {"question": ["How"], "response": "Done."},
    ],
)
def test_a_question_without_a_sampled_answer_is_no_run(tmp_path: Path, row: dict[str, Any]) -> None:
    """A benchmark's own questions and right answers are not what a policy did."""
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    assert all(isinstance(found, Unreadable) for found in read_logs(tmp_path / "log.jsonl"))


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
@pytest.mark.parametrize("folder, runs", [("cliff_token", 3), ("thought_branches", 7)])
def test_published_single_answers(folder: str, runs: int) -> None:
    found = [run for run in read_logs(DATA / folder) if isinstance(run, Trajectory)]
    assert len(found) == runs and all(run.turns == 1 for run in found)
    assert all(run.steps[1].text and run.steps[0].text != run.steps[1].text for run in found)


PATCH = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


@pytest.mark.parametrize("beside,kept", [({}, True), ({"test_patch": "x"}, False)])
def test_the_patch_that_a_row_names_is_what_it_left(
    tmp_path: Path, beside: dict[str, Any], kept: bool
) -> None:
    """In a row of a benchmark `patch` is the task's own answer."""
    row = {"messages": [{"role": "assistant", "content": "Done."}], "patch": PATCH, **beside}
    (found,) = runs(write(tmp_path / "log.jsonl", row))
    assert (found.patch == PATCH) is kept
    (empty,) = runs(write(tmp_path / "log.jsonl", {**row, "patch": ""}))
    assert empty.submission == ("" if kept else None)
