"""What a tool printed, without what a harness put around it."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from forensics.actions import exit_code, unwrapped, unwrapped_run
from forensics.records import Step
from tests.forensics.reader_files import run

SHOWN = "9f8e7d6 (origin/main) Mend it\n1a2b3c4 (HEAD) Begin\n"
PART = {"type": "text", "text": SHOWN}


@pytest.mark.parametrize(
    "value",
    [
        {"content": SHOWN, "success": True},
        {"output": SHOWN, "exit_code": 0, "error": None},
        {"stdout": SHOWN, "stderr": "", "returncode": 0},
        {"content": [PART], "isError": False},
        {"result": {"stdout": SHOWN, "stderr": ""}},
        {"output": SHOWN, "metadata": {"exit_code": 0, "duration_seconds": 0.1}},
        {"output": json.dumps({"stdout": SHOWN, "exit_code": 0})},
        [PART],
    ],
)
@pytest.mark.parametrize("written", [json.dumps, lambda value: json.dumps(value, indent=2), repr])
def test_objects_around_an_answer(value: Any, written: Any) -> None:
    assert unwrapped(written(value)) == SHOWN


@pytest.mark.parametrize(
    "text",
    [
        f"Observation: {SHOWN}",
        f"OBSERVATION:\n{SHOWN}",
        f"Output:\n{SHOWN}",
        f"[execute_command for 'git log --all'] Result:\nCommand executed.\nOutput:\n{SHOWN}",
        f"<output>{SHOWN}</output>",
        f"Observation: {json.dumps({'output': SHOWN})}",
    ],
)
def test_words_around_an_answer(text: str) -> None:
    assert unwrapped(text).strip("\n") == SHOWN.strip("\n")


@pytest.mark.parametrize("sign", ["\t", "→", "|", ": "])
@pytest.mark.parametrize("begin", [1, 98])
def test_line_numbers(sign: str, begin: int) -> None:
    lines = ["def total(items):", "    return 3", "", "x = 1"]
    shown = "\n".join(f"{number:6}{sign}{line}" for number, line in enumerate(lines, begin))
    assert unwrapped(shown) == "\n".join(lines)
    framed = f"Here is the file:\n{shown}\n(3 more lines below)"
    assert unwrapped(framed) == "\n".join(["Here is the file:", *lines, "(3 more lines below)"])


@pytest.mark.parametrize(
    "text",
    [
        "", "plain", "{", '{"a": 1}', "[1, 2]", "[]", "{}", SHOWN, '{"output": 3}',
        '{"content": "x", "author": "y"}', '{"output": "x"} and more', "{'output': open('x')}",
        "1: one\n2: two", "12:30 lunch\n13:30 work", "1\tone\n5\tfive", "Output formats are many.",
        '[{"type": "text"}]', '[{"type": "text", "text": "a"}, 3]',
    ],
)  # fmt: skip
def test_what_stays(text: str) -> None:
    assert unwrapped(text) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"output": "a", "exit_code": 0, "error": null}', 0),
        ('{"stdout": "", "exit_code": 2, "stderr": "' + "long " * 200 + '"}', 2),
        ("{'output': 'no such file', 'exit_code': 1}", 1),
        ('{"output": "a", "metadata": {"exit_code": 128, "duration_seconds": 1}}', 128),
        ('{"result": {"stdout": "a", "returncode": 3}}', 3),
        ('{"output": "a", "exit_code": true}', None),
        ('{"output": "a"}', None),
        ("[1, 2]", None),
    ],
)
def test_exit_codes_in_objects(text: str, code: int | None) -> None:
    assert exit_code(text) == code


def test_a_failure_is_told() -> None:
    both = json.dumps({"stdout": "part", "stderr": "fatal: bad revision", "returncode": 128})
    assert unwrapped(both) == "part\nfatal: bad revision"
    assert unwrapped(json.dumps({"output": "", "error": "no shell"})) == "no shell"


@pytest.mark.parametrize(
    "text", ["[{'" * 30_000, "{'a':" + "-" * 100_000 + "1}", '{"a":' * 100_000]
)
def test_hostile_texts_take_no_time(text: str) -> None:
    started = time.perf_counter()
    assert unwrapped(text + "}]") == text + "}]"
    assert time.perf_counter() - started < 2


@given(
    st.text(max_size=60), st.sampled_from(["", "{", "[{'", '{"output": "', "    1\t", "Output: "])
)
def test_never_raises(text: str, start: str) -> None:
    unwrapped(start + text)
    exit_code(start + text)


def test_a_run_keeps_its_steps() -> None:
    """Only answers are opened: not the prompt, not what the policy wrote."""
    wrapped = json.dumps({"output": SHOWN})
    texts = (("user", wrapped), ("assistant", wrapped), ("tool", wrapped), ("user", wrapped))
    steps = tuple(Step(role=role, text=text) for role, text in texts)  # type: ignore[arg-type]
    told = unwrapped_run(run("a", steps=steps))
    assert [step.text for step in told.steps] == [wrapped, wrapped, SHOWN, SHOWN]
    plain = run("a", steps=told.steps[2:])
    assert unwrapped_run(plain) is plain
