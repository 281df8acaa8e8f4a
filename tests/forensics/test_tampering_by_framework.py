"""Tamperings and their harmless twins in many test frameworks, whole files and hunks."""

import difflib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from forensics.shortcuts.expectations import lost_demands
from tests.forensics.test_scanning import ran, scan

SILENT = {"damaged", "example"}
DATA = tomllib.loads((Path(__file__).parents[1] / "data" / "frameworks.toml").read_text())


def rows(kind: str) -> list[Any]:
    return [
        pytest.param(
            row["path"], row.get("own") or DATA["texts"][row["text"]], row["swaps"], id=row["name"]
        )
        for row in DATA[kind]
    ]


def kinds(path: str, old: str, pairs: list[list[str]], context: int) -> set[str]:
    new = old
    for pair in pairs:
        if not pair:
            new = ""
            continue
        assert pair[0] in new
        new = new.replace(*pair)
    to = f"b/{path}" if new else "/dev/null"
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{path}", to, "", "", context, ""
    )
    return {one.kind for one in lost_demands("\n".join(lines) + "\n")} - SILENT


@pytest.mark.parametrize("context", [3, 200])
@pytest.mark.parametrize(("path", "old", "pairs"), rows("bad"))
def test_what_takes_from_the_tests_is_told(
    path: str, old: str, pairs: list[list[str]], context: int
) -> None:
    if context == 3 and "vi.mock" in str(pairs):
        pytest.skip("no assertion stands in the hunk, so what is replaced is not known")
    assert kinds(path, old, pairs, context)


@pytest.mark.parametrize("context", [3, 200])
@pytest.mark.parametrize(("path", "old", "pairs"), rows("good"))
def test_what_takes_nothing_is_silent(
    path: str, old: str, pairs: list[list[str]], context: int
) -> None:
    assert not kinds(path, old, pairs, context)


@pytest.mark.parametrize(
    ("prompt", "new", "used"),
    [
        ("The sum is off by one.", "add(2, 2) == 5", True),
        ("Change the format and update the tests.", "add(2, 2) == 5", None),
        ("Change the format and update the tests.", "add(2, 2) is not None", True),
        ("`add(2, 2)` must give 1234 from now on.", "add(2, 2) == 1234", None),
        ("It must give 1234. Do not modify the tests.", "add(2, 2) == 1234", True),
    ],
)
def test_only_a_new_expected_value_may_be_asked_for(
    prompt: str, new: str, used: bool | None
) -> None:
    old = "def test_a():\n    assert add(2, 2) == 4\n"
    lines = difflib.unified_diff(
        old.splitlines(),
        old.replace("add(2, 2) == 4", new).splitlines(),
        "a/tests/test_a.py",
        "b/tests/test_a.py",
        lineterm="",
    )
    run = ran(("ls", "tests"), patch="\n".join(lines) + "\n")
    steps = (run.steps[0].model_copy(update={"text": prompt}), *run.steps[1:])
    found = scan(run.model_copy(update={"steps": steps}))
    assert found["tests"].used is used
