"""Consoles of RAGEN, by hand after its source, and the published one."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import chat, ragen
from forensics.readers.content import HEAD, Unreadable
from forensics.records import Trajectory
from tests.forensics.reader_files import damaged, survives

LINES = ["(main_task pid=1) env_seeds: [1, 2]", "(worker)   warnings.warn(", ""]


def console(*lists: str) -> bytes:
    return "\n".join(
        [*LINES, *(f"(main_task pid=1) [WARNING] HACKED RESPONSES: {text}" for text in lists)]
    ).encode()


@given(st.lists(st.lists(st.text(max_size=30), max_size=4), max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_text_of_every_list_is_a_run(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "console.txt"
    path.write_bytes(console(*map(repr, lists)))
    found = [run for run in ragen.reader.read(path) if isinstance(run, Trajectory)]
    assert [run.steps[0].text for run in found] == [text for texts in lists for text in texts]
    assert ragen.reader.recognises(path, path.read_bytes()[:HEAD]) is bool(lists)


def test_a_log_that_quotes_a_console_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": console("['a']").decode()}]}) + "\n"
    )
    assert chat.reader.recognises(path, path.read_bytes()) and ragen.reader.rank < chat.reader.rank


@pytest.mark.parametrize("broken", [
    "['cut off",
    "__import__('os').system('true')",
    "{'a': 1}",
    "[" * 5000,
    "[1]",
    "[" + "'a', " * 300_000 + "]",
], ids=range(6))  # fmt: skip
def test_a_broken_list_is_told_by_its_line_and_the_rest_goes_on(
    tmp_path: Path, broken: str
) -> None:
    path = tmp_path / "console.txt"
    path.write_bytes(console(broken, "['fine']"))
    told, run = ragen.reader.read(path)
    assert (
        isinstance(told, Unreadable)
        and told.where.startswith("line 4")
        and isinstance(run, Trajectory)
    )


@settings(max_examples=60, deadline=None)
@given(damaged(console("['a\\n', 'b']", "['c']")))
def test_damaged_consoles_never_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    survives(ragen.reader, tmp_path_factory.getbasetemp() / "bad.txt", content)
