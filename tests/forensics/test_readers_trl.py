"""TRL's completions and GRPO samples, by hand after its `log`, and published
ones; texts of trainers taken apart.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, read_logs
from forensics.readers.rollout_text import completion_steps, prompt_steps
from forensics.records import Step, ToolCall, Trajectory
from tests.episodes import episode_of
from tests.work import calls

CALL = {"type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
TEXTS = {
    "step": [5, 5, 5],
    "prompt": ["p", "p", "q"],
    "completion": ["a", "b", "c"],
    "accuracy_reward": [1.0, float("nan"), 0.0],
    "length": [0.5, 0.25, 9.0],
    "solution": ["s", "s", "s"],
    "advantage": [0.1, 0.2, 0.3],
}
MESSAGES = {
    "step": [7],
    "prompt": [[{"role": "user", "content": "Add"}]],
    "completion": [[{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool",
     "content": "2", "name": "add"}, {"role": "assistant", "content": "2"}]],
    "reward": [0.75],
    "advantage": [0.0],
}  # fmt: skip
PROMPT = "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
LINE = {"run": "r", "step": 3, "sample": 1, "prompt": PROMPT, "completion": "A", "solution": "A",
        "rewards": {"accuracy": 1.0, "total": 1.5}, "step_stats": None}  # fmt: skip


MARKS = [
    "<tool_response>", "</tool_response>", "\nuser\n", "\nassistant\n", "<tool_call>",
    "</tool_call>", "{}", "<|im_start|>", "<|im_end|>", "a", "\n",
]  # fmt: skip


def write(path: Path, table: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path)
    return path


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def runs(path: Path) -> list[Trajectory]:
    found = list(read_logs(path))
    assert all(isinstance(run, Trajectory) for run in found), found
    return [run for run in found if isinstance(run, Trajectory)]


def test_completions_as_texts(tmp_path: Path) -> None:
    first, second, third = runs(
        write(tmp_path / "completions" / "completions_00005.parquet", TEXTS)
    )
    assert first == episode_of(
        id="completions_00005.parquet row 0",
        task=second.task,
        policy="step 5",
        environment="trl",
        sample=0,
        steps=(Step(role="user", text="p"), Step(role="assistant", text="a")),
        rewards={"accuracy_reward": 1.0, "length": 0.5},
    )
    assert (second.sample, second.rewards["accuracy_reward"], second.outcome) == (1, None, None)
    assert third.task != first.task and (third.sample, third.outcome) == (0, 0.0)


def test_completions_as_messages(tmp_path: Path) -> None:
    (found,) = runs(write(tmp_path / "completions_00007.parquet", MESSAGES))
    assert found.steps == (
        Step(role="user", text="Add"),
        Step(role="assistant", text="", tool_calls=(ToolCall(name="add", arguments='{"x": 1}'),)),
        Step(role="tool", text="2"), Step(role="assistant", text="2"),
    )  # fmt: skip
    assert (found.outcome, found.rewards) == (0.75, {"reward": 0.75})


def test_broken_rows_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", LINE, {"step": 1}, LINE)
    path.write_text(path.read_text() + "\n{")
    assert [item.where for item in read_logs(path) if isinstance(item, Unreadable)] == [
        "line 2",
        "line 4",
    ]
    cut = write(tmp_path / "b.parquet", TEXTS)
    cut.write_bytes(cut.read_bytes()[:-9])
    assert isinstance(next(iter(read_logs(cut))), Unreadable)


ENDED = "<|im_end|>\n<|im_start|>"
HERMES = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'


@pytest.mark.parametrize("text", [
    f"Hm. {HERMES}\nuser\n<tool_response>\n2\n</tool_response>\nassistant\nTwo.",
    f"Hm. {HERMES}{ENDED}user\n<tool_response>\n2\n</tool_response>{ENDED}assistant\nTwo.",
    f"Hm. {HERMES}\ntool\n<tool_response>2</tool_response>\nassistant\nTwo.",
])  # fmt: skip
def test_turns_of_a_completion(text: str) -> None:
    asked, answer, last = completion_steps(text)
    assert asked == Step(role="assistant", text=f"Hm. {HERMES}",
                         tool_calls=(ToolCall(name="add", arguments='{"x": 1}'),))  # fmt: skip
    assert (answer, last) == (Step(role="tool", text="2"), Step(role="assistant", text="Two."))


def test_texts_without_marks_are_one_step() -> None:
    assert prompt_steps("user\nassistant\n") == (Step(role="user", text="user\nassistant\n"),)
    assert completion_steps("The user\nsays") == (Step(role="assistant", text="The user\nsays"),)
    answers = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    two = completion_steps(f"a\nuser\n{answers}\nassistant\n")
    assert two == (
        Step(role="assistant", text="a"),
        Step(role="tool", text="1"),
        Step(role="tool", text="2"),
    )
    assert completion_steps("<tool_call>{broken</tool_call>")[0].tool_calls == ()


HOSTILE = (
    " " * 300_000 + "<tool_response>1</tool_response>" + "\n" * 300_000 + "b",
    "user\n" * 100_000 + "<tool_response>",
    "<tool_call>" * 100_000,
    "<tool_response></tool_response>" * 50_000,
    "<|im_start|>" * 100_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.timeout(300)
@pytest.mark.parametrize("times", [1, 4])
def test_hostile_texts_are_little_work(text: str, times: int) -> None:
    """The four times longer one, too: what grew with the square would not come
    to an end. Seconds: `benchmarks/hostile.py` at def71cb.
    """
    text = text * times
    assert calls(lambda: (completion_steps(text), prompt_steps(text))) < 20 * len(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(MARKS), max_size=12))
def test_any_text_is_steps(parts: list[str]) -> None:
    text = "".join(parts)
    assert completion_steps(text)[0].role == "assistant" and all(
        step.text is not None for step in prompt_steps(text)
    )
