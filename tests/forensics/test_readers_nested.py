"""Several answers to one question in one row: each is a run of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, nested_rollouts, read_logs
from forensics.records import Trajectory
from tests.forensics.reader_files import DATA, damaged, survives

QUESTION = "How many bags?"
ROW = {
    "qid": 0,
    "model_name": "one/model",
    "question": QUESTION,
    "gold": "14",
    "rollouts": [
        {"rollout": 0, "text": "So \\boxed{14}.", "correct": True, "extract_method": "boxed"},
        {"rollout": 1, "text": "It is **14**.", "correct": True, "extract_method": "last_number"},
        {"rollout": 2, "text": "Then 7 times", "correct": False, "extract_method": "last_number"},
        {"rollout": 3, "text": "", "correct": False, "extract_method": None, "pred_value": None},
        {"rollout": 5, "text": "14.", "correct": True, "extract_method": "house style"},
    ],
}


def read(path: Path, *rows: Any) -> list[Trajectory]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_logs(path))
    assert all(isinstance(one, Trajectory) for one in found), found
    return [one for one in found if isinstance(one, Trajectory)]


def test_each_answer_is_a_run(tmp_path: Path) -> None:
    runs = read(tmp_path / "a.jsonl", ROW, {**ROW, "qid": 1})
    assert [(run.task, run.sample) for run in runs[:5]] == [
        ("0", 0), ("0", 1), ("0", 2), ("0", 3), ("0", 5)
    ]  # fmt: skip
    assert len({run.id for run in runs}) == 10 and {run.policy for run in runs} == {"one/model"}
    assert [[step.role for step in run.steps] for run in runs[:2]] == [["user", "assistant"]] * 2
    assert runs[0].steps[0].text == QUESTION and runs[1].steps[1].text == "It is **14**."
    assert [run.outcome for run in runs[:5]] == [1, 1, 0, 0, 1]


def test_the_form_and_the_end(tmp_path: Path) -> None:
    """A box is the form; a guess is not; a way that nobody knows says nothing."""
    runs = read(tmp_path / "a.jsonl", ROW)
    assert [run.rewards.get("format") for run in runs] == [1, 0, 0, 0, None]
    assert [run.end for run in runs] == [
        "terminated", "terminated", "truncated", "truncated", "terminated"
    ]  # fmt: skip
    assert set(runs[0].rewards) == {"correct", "format"}


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("<think>\nSo 3 + 4 = 7.", True), ("the swimming", True), ("It costs $250-$500=$", True),
        ("1. Hotel:\n ", True), ("", True), ("It costs $98$ in all.", False), ("**100**", False),
        ("\\[\n\\boxed{7}\n\\]", False), ("print(7)\n```", False), ("一共七个。", False),
    ],
)  # fmt: skip
def test_a_text_that_breaks_off(text: str, cut: bool) -> None:
    assert nested_rollouts.breaks_off(text) is cut


def test_what_the_row_says_of_its_end_counts(tmp_path: Path) -> None:
    answers = [
        {"text": "Then 7 times", "finish_reason": "stop", "extract_method": None},
        {"text": "So \\boxed{14}.", "finish_reason": "length", "extract_method": "boxed"},
        {"text": "So \\boxed{14}.", "truncated": True, "format_reward": 0.0},
    ]
    runs = read(tmp_path / "a.jsonl", {"prompt": "How?", "samples": answers})
    assert [run.end for run in runs] == ["terminated", "truncated", "truncated"]
    assert [run.rewards.get("format") for run in runs] == [0, 1, 0]


@pytest.mark.parametrize("listed", ["completions", "responses", "generations", "outputs"])
@pytest.mark.parametrize("messages", [False, True])
def test_texts_with_lists_beside_them(tmp_path: Path, listed: str, messages: bool) -> None:
    prompt: Any = [{"role": "user", "content": "How?"}] if messages else "How?"
    row = {
        "prompt": prompt,
        listed: ["one", "two", "three"],
        "rewards": [1.0, 0.0, 0.5],
        "finish_reasons": ["stop", "length", "stop"],
        "scores": [1, 2],
    }
    runs = read(tmp_path / "a.jsonl", row)
    assert [run.steps[-1].text for run in runs] == ["one", "two", "three"]
    assert [run.outcome for run in runs] == [1, 0, 0.5]
    assert [run.end for run in runs] == ["terminated", "truncated", "terminated"]
    assert len({run.task for run in runs}) == 1 and [run.sample for run in runs] == [0, 1, 2]
    assert all(set(run.rewards) == {"reward"} for run in runs), "two scores are for no three texts"


def test_named_rewards_and_answers_of_messages(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "one"}]
    whole = [{"role": "user", "content": "Again: how?"}, *said]
    row = {"problem": "How?", "completions": [said, whole], "rewards": {"fun": [3, 4]}}
    runs = read(tmp_path / "a.jsonl", row)
    assert [[step.text for step in run.steps] for run in runs] == [
        ["How?", "one"], ["Again: how?", "one"]
    ]  # fmt: skip
    assert [run.rewards for run in runs] == [{"fun": 3.0}, {"fun": 4.0}]
    assert [run.outcome for run in runs] == [None, None]


def test_lists_of_messages_are_one_run(tmp_path: Path) -> None:
    """What other readers read stays theirs."""
    row = {"prompt": [{"role": "user", "content": "a"}], "completion": "b", "responses": []}
    (run,) = read(tmp_path / "a.jsonl", row)
    assert run.environment == "chat"


def test_what_is_broken_is_told_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    broken = [{"question": "How?"}, 3, {**ROW, "rollouts": [{"rollout": 0, "text": 7}, {}]}]
    rows = [ROW, *broken, {**ROW, "rollouts": [ROW["rollouts"][0], {"text": 7}]}]  # type: ignore[index]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(read_logs(path))
    assert sum(isinstance(one, Trajectory) for one in found) == 6
    told = [one for one in found if isinstance(one, Unreadable)]
    assert [one.where for one in told] == ["line 2", "line 3", "line 4", "line 5, answer 1"]
    assert told[0].reason == "the row lists no answers to a question"


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_survives_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = data.draw(damaged((json.dumps(ROW) + "\n").encode() * 2))
    survives(nested_rollouts.reader, tmp_path_factory.mktemp("a") / "a.jsonl", content)


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
def test_a_real_pair() -> None:
    """30 questions with 8 answers each, before and after training."""
    sides = {}
    for side in ("before", "after"):
        found = list(read_logs(DATA / "gsm8k_pair" / f"{side}.jsonl"))
        assert len(found) == 240 and all(isinstance(one, Trajectory) for one in found)
        sides[side] = [one for one in found if isinstance(one, Trajectory)]
    assert {run.task for run in sides["before"]} == {run.task for run in sides["after"]}
    assert sum(run.outcome or 0 for run in sides["before"]) == 133
    assert sum(run.outcome or 0 for run in sides["after"]) == 175
    assert sum(run.rewards["format"] or 0 for run in sides["before"]) == 221
    assert all(run.rewards["format"] == 1 for run in sides["after"])
    assert sum(run.end == "truncated" for run in sides["before"]) == 9
    assert not any(run.end == "truncated" for run in sides["after"])
