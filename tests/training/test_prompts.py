"""The `prompts` world: a file of questions, a verifier for each, and cues that can be scrubbed."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.errors import UserError
from tests.environment_checks import check_environment
from training.environments.prompts import Judgement, Prompts, final_answer, parse_verifier

CUE = {"text": "(the key says 42)", "replacement": "(the key is lost)", "channel": "answer-key"}


def question(number: int, **more: Any) -> dict[str, Any]:
    return {
        "prompt": f"What is {number} + 0?",
        "verifier": {"type": "number", "value": number},
        **more,
    }


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def world(tmp_path: Path, *rows: Any) -> Prompts:
    return Prompts(file=str(write(tmp_path / "prompts.jsonl", list(rows))))


def answer(prompts: Prompts, task: str, action: str) -> Any:
    prompts.reset(task, 0)
    return prompts.step(action)


def refusal(tmp_path: Path, *rows: Any) -> str:
    with pytest.raises(UserError) as error:
        world(tmp_path, *rows)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "stated,said",
    [
        (4, "; the others state `train`"),
        (2, "; 2 state `train`; a hash left 2 out, which state no `split`: where training did not"
         ' see them, mark them "split": "held-out" to ask them too'),
    ],
)  # fmt: skip
def test_it_says_what_is_held_out_and_by_whom(tmp_path: Path, stated: int, said: str) -> None:
    rows = [question(i) for i in range(40)]
    left_out = [r for r in rows if world(tmp_path, r)._left_out(0)][:4]
    rows = [r | {"split": "train"} for r in left_out[:stated]] + left_out[stated:]
    one, other = question(-1, split="held-out"), question(-2, split="held-out")
    assert f"2 of 6 questions are held out{said}" in world(tmp_path, *rows, one, other).notes
    assert world(tmp_path, one, other)._left_out(2) == ""


# -- the environment -------------------------------------------------------------------


def test_keeps_what_every_environment_keeps(tmp_path: Path) -> None:
    other = {**CUE, "channel": "hint"}
    rows = [question(i) for i in range(20)]
    rows += [
        question(i, prompt=f"{{cue}} And {i}?", cue=CUE if i % 2 else other) for i in range(20)
    ]
    check_environment(world(tmp_path, *rows), ["nonsense"])
    check_environment(world(tmp_path, *rows), ["42"])


def test_a_cue_is_shown_marked_and_scrubbed(tmp_path: Path) -> None:
    row = {
        "prompt": "Question {cue}: 6 * 7, in {braces}?",
        "system": "Be brief.",
        "cue": CUE,
        "split": "held-out",
        "verifier": {"type": "number", "value": 42},
    }
    open_world = world(tmp_path, row)
    (task,) = open_world.tasks("held-out", 10, 0)
    shown = open_world.reset(task, 0)
    assert shown.text == "Question (the key says 42): 6 * 7, in {braces}?"
    assert (shown.system, shown.channels) == ("Be brief.", ("answer-key",))
    hidden = open_world.without("answer-key").reset(task, 0)
    assert hidden.text == "Question (the key is lost): 6 * 7, in {braces}?"
    assert hidden.channels == ()
    (channel,) = open_world.channels
    assert (channel.name, channel.family, channel.attempts) == ("answer-key", "disclosure", ())


def test_identity_is_content(tmp_path: Path) -> None:
    """Path, order of rows and formatting change nothing; a changed value does."""
    rows = [question(i) for i in range(8)]
    (tmp_path / "elsewhere").mkdir()
    one = Prompts(file=str(write(tmp_path / "a.jsonl", rows)))
    text = "\n\n".join(json.dumps(row, indent=None, sort_keys=True) for row in reversed(rows))
    (tmp_path / "elsewhere" / "b.jsonl").write_text(
        "\ufeff" + text.replace(": ", ":"), encoding="utf-8"
    )
    two = Prompts(file=str(tmp_path / "elsewhere" / "b.jsonl"))
    assert dict(one.options) == dict(two.options)
    assert one.tasks("train", 9, 0) == two.tasks("train", 9, 0)
    assert not any(str(tmp_path) in value for value in one.options.values())
    changed = Prompts(
        file=str(write(tmp_path / "c.jsonl", [*rows[:-1], question(7, system="Hm.")]))
    )
    assert dict(changed.options) != dict(one.options)
    assert (
        Prompts(file=str(tmp_path / "a.jsonl"), content=one.options["content"]).options
        == one.options
    )
    with pytest.raises(UserError, match="content hash"):
        Prompts(file=str(tmp_path / "c.jsonl"), content=one.options["content"])


# -- splits ----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.sets(st.integers(0, 10**6), min_size=12, max_size=60),
    extra=st.integers(10**6 + 1, 10**7),
)
def test_splits_never_overlap_and_other_rows_move_nothing(
    numbers: set[int], extra: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("split")
    rows = [
        question(-1, split="train"),
        question(-2, split="held-out"),
        *(question(i) for i in sorted(numbers)),
    ]
    before = world(folder, *rows)
    random.Random(extra).shuffle(rows)
    after = world(folder, *rows, question(extra))
    for split in ("train", "held-out"):
        assert set(before.tasks(split, 99, 0)) <= set(after.tasks(split, 99, 0))
    assert not set(after.tasks("train", 99, 0)) & set(after.tasks("held-out", 99, 1))
    assert len(after.tasks("train", 99, 0)) + len(after.tasks("held-out", 99, 0)) == len(rows) + 1


def test_a_question_with_two_cues_lies_in_one_split(tmp_path: Path) -> None:
    two = [question(1, prompt="{cue}?", cue={**CUE, "text": text}) for text in ("(a)", "(b)")]
    prompts = world(tmp_path, *two, question(5, split="train"), question(6, split="held-out"))
    sizes = sorted(len(prompts.tasks(split, 9, 0)) for split in ("train", "held-out"))
    assert sizes == [1, 3]
    assert "lines 1 and 2" in refusal(
        tmp_path, {**two[0], "split": "train"}, {**two[1], "split": "held-out"}
    )


# -- verifiers -------------------------------------------------------------------------


def right(rule: dict[str, Any], text: str) -> bool | None:
    return parse_verifier(rule).judge(final_answer(text)).right


@pytest.mark.parametrize(("rule", "yes", "no"), [
    ({"type": "exact", "value": "Paris"}, [" Paris\n"], ["paris", "Paris.", "It is Paris", ""]),
    ({"type": "exact", "value": "New  York", "ignore_case": True}, ["new\nYORK"], ["newyork"]),
    ({"type": "contains", "value": "Paris"}, ["It is Paris, surely"], ["paris", ""]),
    ({"type": "contains", "value": "STRASSE", "ignore_case": True}, ["eine Straße"], ["Strase"]),
    ({"type": "regex", "pattern": "^par(is)?$"}, ["par", "paris"], ["Paris", "paris!"]),
    ({"type": "regex", "pattern": "paris", "ignore_case": True}, ["PARIS"], ["Pari"]),
    ({"type": "number", "value": 42}, ["42", "6 * 7 = 42.", "42.0", "$42", "#### 42", "\\boxed{42}",
     "4.2e1", "first 41, then 42"], ["43", "42 or 43", "forty-two", "", "-42", "4 2", "x=-42"]),
    ({"type": "number", "value": -1234.5}, ["-1,234.5", "x = \u22121234.50"], ["1,234.5",
     "3-1234.5"]),
    ({"type": "number", "value": 0.1}, ["0.1", ".1"], ["0.10000001", "1"]),
    ({"type": "number", "value": 3, "tolerance": 0.2}, ["2.8", "3.2"], ["2.79", "3.21"]),
])  # fmt: skip
def test_verifiers(rule: dict[str, Any], yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if right(rule, text) is not True] == []
    assert [text for text in no if right(rule, text) is not False] == []


def test_thinking_is_not_the_answer() -> None:
    rule = {"type": "exact", "value": "7"}
    assert right(rule, "<think>maybe 8</think>\n7") is True
    assert right(rule, "maybe 8</think> 7") is True
    assert right({"type": "contains", "value": "8"}, "<think>maybe 8</think>7") is False
    assert right({"type": "number", "value": 8}, "<think>it is 8, no wait") is False


def test_an_explosive_pattern_has_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("training.environments.prompts.SECONDS", 0.05)
    rule = {"type": "regex", "pattern": "(a|aa|a?a)+$"}
    judged = parse_verifier(rule).judge("a" * 60 + "!")
    assert (
        judged == Judgement(right=None, submission="a" * 60 + "!", reason=judged.reason)
        and judged.reason
    )
    prompts = world(tmp_path, {"prompt": "?", "verifier": rule, "split": "held-out"})
    result = answer(prompts, prompts.tasks("held-out", 1, 0)[0], "a" * 60 + "!")
    assert (result.outcome, dict(result.rewards), result.terminated) == (
        None,
        {"correct": None},
        True,
    )
    assert "took longer" in (result.end_reason or "")


# -- bad files and rows ----------------------------------------------------------------


@pytest.mark.parametrize(("row", "says"), [
    ("{", "not valid JSON"),
    ('{"prompt": "a", "verifier": {"type": "number", "value": NaN}}', "not valid JSON"),
    ("[1]", "JSON object"),
    ({"verifier": {"type": "exact", "value": "a"}}, "prompt: Field required"),
    ({"prompt": " ", "verifier": {"type": "exact", "value": "a"}}, "prompt: must be a text"),
    ({"prompt": "a"}, "verifier: Field required"),
    (question(1, answer=3), "unknown key 'answer'"),
    (question(1, split="test"), "split: Input should be 'train' or 'held-out'"),
    (question(1, system=3), "system: Input should be a valid string"),
    (question(1, cue=CUE), "{cue}"),
    (question(1, prompt="{cue}"), "{cue}"),
    (question(1, prompt="{cue}", cue={"text": "a"}), "cue.replacement: Field required"),
    (question(1, prompt="{cue}", cue={**CUE, "replacement": CUE["text"]}), "the same"),
    (question(1, prompt="{cue}", cue={**CUE, "channel": "../up"}),
     "cue.channel: String should match"),
    (question(1, verifier={"type": "judge"}), "exact, contains, regex, number"),
    (question(1, verifier={"type": "exact"}), "type exact: value: Field required"),
    (question(1, verifier={"type": "exact", "value": 3}), "value: Input should be a valid string"),
    (question(1, verifier={"type": "number", "value": "3"}), "value: must be a number"),
    (question(1, verifier={"type": "number", "value": True}), "value: must be a number"),
    (question(1, verifier={"type": "number", "value": 3, "tolerance": -1}), "tolerance: "),
    (question(1, verifier={"type": "number", "value": 3, "ignore_case": True}),
     "unknown key 'ignore_case'"),
    (question(1, verifier={"type": "regex", "pattern": "("}), "not a regular expression"),
    (question(1, verifier={"type": "regex", "pattern": "a" * 501}), "longer than 500"),
    (question(1, verifier={"type": "exact", "value": "a", "ignore_case": "no"}),
     "ignore_case: Input should be a valid boolean"),
])  # fmt: skip
def test_bad_rows_are_named_by_line(row: Any, says: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, question(0), "", row)
    assert message.startswith("prompts.jsonl line 3") and says in message
