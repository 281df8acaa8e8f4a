"""Single answers, in every form that holds them: a prompt, one answer, an outcome; and
prompts without answers, which are no runs.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forensics.readers import Unreadable, chat, read_logs
from forensics.records import Trajectory
from tests.forensics.answer_forms import FORMS
from tests.forensics.reader_files import DATA

ROWS: list[dict[str, Any]] = [
    {"id": "a", "task": "t", "prompt": "Add.", "response": "```python\nx = 1\n```", "outcome": 1},
    {"id": "b", "task": "t", "prompt": "Add.", "response": "No.\n", "outcome": 0.0},
    {"id": "c", "task": "u", "prompt": "Sub.", "response": "", "outcome": 0.5},
    {"id": "d", "task": "u", "prompt": "Sub.", "response": "Yes.", "outcome": True},
]
Answer = tuple[tuple[str, ...], str, float | None]


def answers_in(path: Path) -> Counter[Answer]:
    """Prompt, answer and outcome of every run of a file."""
    found: Counter[Answer] = Counter()
    for run in read_logs(path):
        assert isinstance(run, Trajectory), run
        *asked, said = run.steps
        assert [step.role for step in run.steps] == ["user"] * len(asked) + ["assistant"]
        found[tuple(step.text for step in asked), said.text, run.outcome] += 1
    return found


def wanted(rows: list[dict[str, Any]]) -> Counter[Answer]:
    return Counter(
        (
            (row["prompt"],),
            row["response"],
            None if row["outcome"] is None else float(row["outcome"]),
        )
        for row in rows
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_answers(tmp_path: Path, form: str) -> None:
    assert answers_in(FORMS[form](ROWS, tmp_path)) == wanted(ROWS)


@pytest.mark.parametrize("form", ["chat_jsonl", "trl_parquet", "trl_jsonl", "inspect_json"])
def test_an_answer_without_a_score(tmp_path: Path, form: str) -> None:
    rows = [{**ROWS[0], "outcome": None}, ROWS[1]]
    assert answers_in(FORMS[form](rows, tmp_path)) == wanted(rows)


@pytest.mark.skipif(not DATA.is_dir(), reason="the logs of other projects are not here")
@pytest.mark.parametrize("form", FORMS)
def test_real_answers(tmp_path: Path, form: str) -> None:
    lines = (DATA / "answers" / "olmo_exit.jsonl").read_text().splitlines()
    rows = [{**row, "outcome": row["hack"]} for row in map(json.loads, lines)]
    assert answers_in(FORMS[form](rows, tmp_path)) == wanted(rows)


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"prompt": "Add.", "completion": "x", "reward": 1.0}, 1),
        ({"prompt": "Add.", "completion": "x", "reward": True, "index": 3}, 1),
        ({"input": "Add.", "output": "x", "score": 0}, 0),
        ({"question": "Add.", "response": "x", "correct": False}, 0),
        ({"problem": "Add.", "completion": "x", "score": 2.5}, None),
        ({"step": 3, "prompt": "Add.", "completion": "x", "fun": 0.2, "reward": 0.4}, 0.4),
        ({"step": 3, "prompt": "Add.", "completion": "x", "rewards": {"correct": 1.0}}, 1),
    ],
)
def test_flat_rows(tmp_path: Path, row: Mapping[str, Any], outcome: float | None) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    assert answers_in(tmp_path / "a.jsonl") == Counter({(("Add.",), "x", outcome): 1})


ASKED = [{"role": "user", "content": "Add."}]


def test_a_data_set_of_tasks_is_no_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"id": n, "prompt": ASKED}) + "\n" for n in range(3)))
    assert list(read_logs(path)) == [
        Unreadable(path=path, where="the whole file", reason=chat.TASKS)
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_tasks_beside_runs_are_told_one_by_one(tmp_path: Path, first: int) -> None:
    rows = [{"prompt": ASKED}, {"prompt": ASKED, "response": ""}, {"prompt": ASKED}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[first:]))
    found = list(read_logs(path))
    told = [one for one in found if isinstance(one, Unreadable)]
    assert [one.reason for one in told] == [chat.NO_ANSWER] * (2 - first)
    assert len(found) == 3 - first


@pytest.mark.parametrize(
    "beside", [{"response": ""}, {"response": None}, {"reward": 0}, {"error": "x"}, {"choices": []}]
)
def test_a_run_that_gave_no_answer_is_a_run(tmp_path: Path, beside: Mapping[str, Any]) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": ASKED, **beside}) + "\n")
    (run,) = read_logs(tmp_path / "a.jsonl")
    assert isinstance(run, Trajectory)


def test_plain_prompts_without_answers_are_a_data_set_of_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = [{"id": n, "prompt": f"Add {n} and 1.", "answer": str(n + 1)} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (told,) = read_logs(path)
    assert isinstance(told, Unreadable) and "data set of tasks" in told.reason
