"""Formats that are tables of field names: each table's sample, real files, what is broken, and a
table of another package.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from forensics.actions import actions_of
from forensics.actions.tool_calls import command_line
from forensics.actions.unread import unread_actions
from forensics.readers import Unreadable, product, read_logs, steps_of
from forensics.readers.content import Limits
from forensics.readers.log_reader import installed_readers
from forensics.readers.product import Place, Product, found, holds, products, reads
from forensics.records import Trajectory
from forensics.shortcuts.scanner import look_at
from tests.episodes import episode_of
from tests.forensics.reader_files import damaged
from tests.stranger_packages import installed_package, python_beside

TABLES = products()


def written(folder: Path, table: Product, text: str | None = None) -> Path:
    path = folder / table.sample.file
    path.write_text(table.sample.text if text is None else text, encoding="utf-8")
    return path


def read(path: Path) -> Trajectory:
    (run,) = read_logs(path)
    assert isinstance(run, Trajectory), run
    return run


def shape(run: Trajectory) -> list[tuple[str, str]]:
    return [(step.role, step.tool_calls[0].name if step.tool_calls else "") for step in run.steps]


@pytest.mark.parametrize("name", TABLES)
def test_the_sample_of_a_table_is_read_by_it_as_it_says(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    path = written(tmp_path, table)
    head = path.read_bytes()
    taker = next(reader for reader in installed_readers() if reader.recognises(path, head))
    run = read(path)
    assert (taker.name, shape(run)) == (name, list(table.sample.steps))
    assert unread_actions(run, actions_of(run)) is None


@pytest.mark.parametrize("name", TABLES)
def test_an_entry_that_no_rule_knows_makes_the_run_one_that_nobody_looked_at(
    name: str, tmp_path: Path
) -> None:
    table = TABLES[name]
    run, *_ = reads(name, table.model_copy(update={"entry": ()}), written(tmp_path, table))
    assert isinstance(run, Trajectory)
    assert unread_actions(run, actions_of(run)) is not None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_a_file_holds_is_a_run_or_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    path = tmp_path_factory.mktemp("broken") / table.sample.file
    path.write_bytes(data.draw(damaged(table.sample.text.encode())))
    for one in read_logs(path):
        assert isinstance(one, Trajectory) or (isinstance(one, Unreadable) and one.reason)


def test_a_file_that_would_have_to_be_held_whole_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "LIMITS", Limits(document=100))
    (told,) = read_logs(written(tmp_path, TABLES["otlp"]))
    assert isinstance(told, Unreadable)
    assert "split it" in told.reason


def test_paths_lead_through_texts_of_json_attributes_and_what_is_around() -> None:
    value = {
        "said": '{"inner": [1, {"x": 2}]}',
        "attributes": [{"key": "a.b", "value": {"stringValue": "c"}}],
        "list": [{"y": 1}],
        "name": "n",
    }
    place = Place(value)
    assert list(found(place, "said/inner/*/x")) == [2]
    assert list(found(place, "attributes/a.b")) == ["c"]
    inner = Place(value["list"][0], (value,))
    assert list(found(inner, "^/name")) == ["n"]
    assert holds(place, {"name": ["m", "n*"], "list": True})
    assert not holds(place, {"nothing": True})


STRANGER = """
shows = "our agent's log"
source = "us"
run = "file"
known = [{ we = "log" }]

[[entry]]
when = { said = true }
role = "user"
text = ["said"]

[[entry]]
when = { ran = true }
tool = "bash"
arguments = ["ran"]
argument = "command"
result = ["came"]

[[entry]]
when = { we = true }
silent = true

[sample]
file = "us.jsonl"
text = "{}"
steps = []
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "our-agent"
version = "1"
[project.entry-points."forensics.products"]
our-agent = "our_agent"
[tool.setuptools]
packages = ["our_agent"]
package-data = { our_agent = ["*.toml"] }
"""
LINES = [{"we": "log"}, {"said": "Count."}, {"ran": "git log --all", "came": "a\n"}]
SESSION = """
import sys
from pathlib import Path
from forensics.readers import read_logs
print([(step.role, step.text, step.tool_calls and step.tool_calls[0].arguments)
       for run in read_logs(Path(sys.argv[1])) for step in run.steps])
"""


def test_a_stranger_brings_a_product_as_a_table_alone(tmp_path: Path) -> None:
    source = tmp_path / "package" / "our_agent"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source / "our-agent.toml").write_text(STRANGER)
    (source.parent / "pyproject.toml").write_text(PROJECT)
    log = tmp_path / "us.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    done = python_beside(installed_package(source.parent, tmp_path), "-c", SESSION, str(log))
    assert "('user', 'Count.', ())" in done.stdout, done.stderr
    assert (
        "('assistant', '', '{\"command\": \"git log --all\"}'), ('tool', 'a\\n', ())" in done.stdout
    )


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ('text(await tools.exec_command({cmd:"git log --all"}));', ["git log --all"]),
        ("const r = await tools.shell_command({ command: 'ls' }); text(r)", ["ls"]),
        ("await tools.exec_command({cmd: line})", None),
    ],
)
def test_commands_in_a_script_that_calls_tools(script: str, commands: list[str] | None) -> None:
    run = episode_of(
        steps=steps_of(
            [
                {"role": "user", "content": "Do it."},
                {"role": "assistant", "tool_calls": [{"name": "exec", "args": {"input": script}}]},
                {"role": "tool", "content": "a"},
            ]
        ),
        outcome=None,
    )
    told = [action.text for action in actions_of(run) if action.kind == "command"]
    assert told == (commands or [])
    missed = look_at(run, actions_of(run)).looks.could_not_look
    actions = {"git-history", "leaks", "libraries", "network"}
    assert actions & set(missed) == (actions if commands is None else set())


SWAPPED: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "function": {"name": "bash", "arguments": '{"command": "a"}'}},
                {"id": "2", "function": {"name": "bash", "arguments": '{"command": "b"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "of b"},
        {"role": "tool", "tool_call_id": "1", "content": "of a"},
    ],
    "parts": [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "a"}},
                {"type": "tool_use", "id": "2", "name": "bash", "input": {"command": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "2", "content": "of b"},
                {"type": "tool_result", "tool_use_id": "1", "content": "of a"},
            ],
        },
    ],
    "items": [
        {"type": "function_call", "call_id": "1", "name": "bash", "arguments": '{"command": "a"}'},
        {"type": "function_call", "call_id": "2", "name": "bash", "arguments": '{"command": "b"}'},
        {"type": "function_call_output", "call_id": "2", "output": "of b"},
        {"type": "function_call_output", "call_id": "1", "output": "of a"},
    ],
}


@pytest.mark.parametrize("form", SWAPPED)
def test_results_are_those_of_their_calls_in_whatever_order_they_came(form: str) -> None:
    steps = steps_of(SWAPPED[form])
    assert [step.text for step in steps if step.role == "tool"] == ["of a", "of b"]


def test_a_call_that_nobody_answered_does_not_take_the_next_one_s_result() -> None:
    steps = steps_of([message for at, message in enumerate(SWAPPED["chat"]) if at != 2])
    assert [step.text for step in steps if step.role == "tool"] == ["", "of b"]


TALK = [
    {"role": "user", "content": "Count the files."},
    {"role": "assistant", "content": "```bash\nls\n```"},
    {"role": "user", "content": "<returncode>0</returncode>\n<output>\na\n</output>"},
]


def test_chats_in_parquet_and_messages_that_are_texts_of_json_are_read(tmp_path: Path) -> None:
    for name, messages in {"list": TALK, "text": json.dumps(TALK)}.items():
        folder = tmp_path / name
        folder.mkdir()
        rows = [{"id": str(at), "messages": messages, "reward": 1.0} for at in range(2)]
        pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs = list(read_logs(folder))
        assert [len(run.steps) for run in runs if isinstance(run, Trajectory)] == [3] * 4


def test_calls_of_sharegpt_and_results_of_amp(tmp_path: Path) -> None:
    call = {"name": "bash", "arguments": {"command": "ls"}}
    talk = [
        {"from": "human", "value": "Count."},
        {"from": "function_call", "value": json.dumps(call)},
        {"from": "observation", "value": "a"},
    ]
    assert [step.role for step in steps_of(talk)] == ["user", "assistant", "tool"]
    assert steps_of(talk)[1].tool_calls[0].name == "bash"
    part = {"type": "tool_result", "toolUseID": "1", "run": {"result": {"output": "a"}}}
    (answer,) = steps_of([{"role": "user", "content": [part]}])
    assert (answer.role, answer.text) == ("tool", '{"output": "a"}')


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("start_process", "command"),
        ("mcp__commander__launch-process", "command"),
        ("run_command", "CommandLine"),
        ("interactive_shell", "keystrokes"),
        ("run_commands", "commands"),
    ],
)
def test_command_lines_of_tools_by_many_names(name: str, key: str) -> None:
    line = ["git show 9f8e7d6"] if key == "commands" else "git show 9f8e7d6"
    assert command_line(name, {key: line}) == "git show 9f8e7d6"
    assert command_line("search_database", {"query": "git show 9f8e7d6"}) is None


def test_what_a_tool_sends_back_as_an_object_is_kept() -> None:
    (step,) = steps_of([{"role": "tool", "content": {"stdout": "abc fix", "returncode": 0}}])
    assert "abc fix" in step.text
