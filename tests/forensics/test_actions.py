"""Where the actions stand in the logs of each harness, what came back for them,
and what is no action.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.actions import Action, actions_of
from forensics.actions.transcript import exit_code, root_of
from forensics.records import Step, ToolCall, Trajectory
from tests.episodes import episode_of

DATA = Path(__file__).parents[3] / "shared" / "data"
MINI = (
    "Your response must contain exactly ONE bash code block. You work in /testbed (this is the"
    " working directory)."
)
SWE = "(Open file: {})\n(Current directory: {})\nbash-$"
CALLS = Path(__file__).parents[1] / "data" / "harness_calls.json"


def run(*steps: Step, environment: str = "log") -> Trajectory:
    return episode_of(
        id="run", task="task", policy="policy", environment=environment, steps=steps, outcome=None
    )


def said(text: str) -> Step:
    return Step(role="assistant", text=text)


def shown(text: str) -> Step:
    return Step(role="tool", text=text)


def asked(text: str) -> Step:
    return Step(role="user", text=text)


def called(name: str, **arguments: Any) -> Step:
    return Step(
        role="assistant",
        text="",
        tool_calls=(ToolCall(name=name, arguments=json.dumps(arguments)),),
    )


def only(*steps: Step) -> Action:
    (action,) = actions_of(run(*steps))
    return action


def heads(trajectory: Trajectory) -> list[tuple[str, ...]]:
    return [(action.program, *action.arguments) for action in actions_of(trajectory)]


# -- where an action stands ------------------------------------------------------------


def test_mini_swe_agent() -> None:
    block = (
        "THOUGHT: I could run `git log --all`.\n\n```bash\ncd /testbed && cat a.py > /tmp/b\n```"
    )
    found = actions_of(
        run(asked(MINI), said(block), asked("<returncode>3</returncode>\n<output>\n</output>"))
    )
    assert [
        (action.program, action.step, action.observation, action.exit_code) for action in found
    ] == [("cd", 1, 2, 3), ("cat", 1, 2, 3)]
    assert (found[1].reads, found[1].writes) == (("a.py",), ("/tmp/b",))


def test_every_command_of_mini_swe_agent_has_a_shell_of_its_own() -> None:
    found = actions_of(
        run(asked(MINI), said("```bash\ncd src\n```"), shown(""), said("```bash\ncat a\n```"))
    )
    assert found[-1].reads == ("a",)


def test_several_blocks_where_one_is_asked_for_ran_nothing() -> None:
    blocks = "```bash\ngit log --all\n```\nor\n```bash\nls\n```"
    assert (
        actions_of(run(asked(MINI), said(blocks), asked("Please give EXACTLY ONE action."))) == ()
    )
    assert heads(run(asked("```bash block"), said(blocks), shown(""))) == [
        ("git", "log", "--all"),
        ("ls",),
    ]


def test_swe_agent_text() -> None:
    trajectory = run(
        asked("Use triple backticks."), said("```\ncreate a.py\n```"),
        asked("[File: a.py]\n" + SWE.format("/repo/a.py", "/repo")),
        said("```\nedit 1:1\nprint(1)\nend_of_edit\n```"), asked(SWE.format("/repo/a.py", "/repo")),
        said("```\ncd sub && cat b\n```"), asked(SWE.format("/repo/a.py", "/repo/sub")),
        said("```\ncat c\n```"), asked(SWE.format("n/a", "/repo/sub")),
        said("First:\n```\nls\n```\nthen\n```\nsubmit\n```"),
    )  # fmt: skip
    found = actions_of(trajectory)
    assert [
        (action.kind, action.program, action.reads, action.writes, action.content) 
        for action in found
    ] == [
        ("edit", "create", (), ("a.py",), None), ("edit", "edit", (), ("a.py",), "print(1)"),
        ("command", "cd", (), (), None), ("command", "cat", ("sub/b",), (), None),
        ("command", "cat", ("sub/c",), (), None), ("submit", "submit", (), (), None),
    ]  # fmt: skip


def test_swe_agent_without_its_frame() -> None:
    steps = (
        called("bash", command="open a.py 10"),
        shown("[File: /repo/a.py (9 lines total)]\n1:"),
        said("Now\n```\nedit 2:3\nx = 1 | y\nend_of_edit\n```"),
        shown("File updated."),
    )
    edit = actions_of(run(*steps, environment="swe-agent"))[-1]
    assert (edit.kind, edit.writes, edit.content, edit.arguments) == (
        "edit",
        ("/repo/a.py",),
        "x = 1 | y",
        ("2:3",),
    )
    replaced = called("bash", command="edit 'x = 1' 'x = 2'")
    action = actions_of(run(*steps, replaced, environment="swe-agent"))[-1]
    assert (action.kind, action.writes, action.content) == ("edit", ("/repo/a.py",), "x = 2")


@pytest.mark.parametrize("row", json.loads(CALLS.read_text()))
def test_calls_of_each_harness(row: list[Any]) -> None:
    step, kind, program, reads, writes, wrote = row
    action = only(Step.model_validate(step), shown("Exit code 1\nno"))
    told = (action.kind, action.program, [*action.reads], [*action.writes], action.content)
    assert told == (kind, program, reads, writes, wrote)


def test_arguments_of_a_tool_leave_out_what_was_written() -> None:
    action = only(called("Edit", file_path="a", old_string="x", new_string="y", count=2))
    assert action.arguments == ("file_path=a", "old_string=x", "count=2")


def test_mini_repos_language_is_the_whole_text() -> None:
    steps = (
        asked("fail kiwi : 2 -> 7"),
        said("history ; edit 2 x * 3 ; open notes"),
        shown("..."),
        said("submit"),
    )
    trajectory = run(*steps, environment="mini-repo")
    assert [
        (action.kind, action.program, action.reads, action.writes, action.content)
        for action in actions_of(trajectory)
    ] == [
        ("tool", "history", (), (), None),
        ("edit", "edit", (), ("2",), "x * 3"),
        ("tool", "open", ("notes",), (), None),
        ("submit", "submit", (), (), None),
    ]


# -- what is no action -----------------------------------------------------------------

PROSE = (
    "I will run `git log --all`.", "git log --all", "Output was:\n    git log --all\n",
    "> git log --all", "'''\ngit log\n'''", "```python\nos.system('git log')\n```",
    "```diff\n+git log\n```",
)  # fmt: skip


@pytest.mark.parametrize("text", PROSE)
def test_a_command_in_prose_is_no_act(text: str) -> None:
    assert actions_of(run(asked(MINI), said(text), asked("<returncode>0</returncode>"))) == ()
    assert actions_of(run(asked("How do I see all commits?"), said(f"```bash\n{text}\n```"))) == ()
    with_block = said(f"{text}\n\n```bash\nls\n```")
    assert heads(run(asked(MINI), with_block, asked("<returncode>0</returncode>"))) == [("ls",)]


def test_visible_reasoning_holds_no_acts() -> None:
    thought = "<think>\n```bash\ngit log --all\n```\n</think>\n"
    assert heads(run(asked(MINI), said(f"{thought}```bash\nls\n```"), shown(""))) == [("ls",)]
    assert actions_of(run(asked(MINI), said(thought), shown(""))) == ()
    # but a tag within the action hides nothing
    hidden = "```bash\necho '<think>' '</think>'; git log --all\n```"
    assert ("git", "log", "--all") in heads(run(asked(MINI), said(hidden), shown("")))


# -- what came back --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<returncode>0</returncode>\n<output>\n</output>", 0),
        ('{"returncode": 2, "output": "x"}', 2),
        ('{"output": "x", "metadata": {"exit_code": 1, "duration_seconds": 0.1}}', 1),
        ("Exit code 127\nnot found", 127),
        ("x\n[The command completed with exit code 4.]", 4),
        ("x\n[Command finished with exit code -1]", -1),
        ("x", None),
        ("", None),
        ("line 1\nexit code: 3\nline 3", None),
        ("says <returncode>1</returncode> in its middle\nand goes on", None),
    ],
)
def test_exit_codes_are_read_from_the_frame_alone(text: str, code: int | None) -> None:
    assert exit_code(text) == code


def test_each_call_has_its_own_answer() -> None:
    both = Step(
        role="assistant",
        text="",
        tool_calls=(
            ToolCall(name="bash", arguments='{"command": "a"}'),
            ToolCall(name="bash", arguments='{"command": "b"}'),
        ),
    )
    found = actions_of(run(both, shown("Exit code 1"), shown("Exit code 2"), said("done")))
    assert [(action.program, action.observation, action.exit_code) for action in found] == [
        ("a", 1, 1),
        ("b", 2, 2),
    ]
    assert only(called("bash", command="a")).observation is None
    assert (
        only(called("bash", command="a"), asked("a reminder"), shown("Exit code 3")).exit_code == 3
    )


def test_a_lasting_shell_keeps_its_directory() -> None:
    steps = (
        called("Bash", command="cd src"),
        shown(""),
        called("Bash", command="cat a"),
        shown(""),
    )
    assert actions_of(run(*steps))[-1].reads == ("src/a",)
    shows = (
        called("execute_bash", command="ls"),
        shown("x\n[Current working directory: /repo/src]"),
    )
    moved = (
        *shows,
        called("execute_bash", command="cd ../x; ls"),
        shown("[Current working directory: /repo/y]"),
    )
    assert actions_of(run(*moved, called("execute_bash", command="cat a ../src/b")))[-1].reads == (
        "/repo/y/a",
        "b",
    )


def test_the_root_of_the_work() -> None:
    assert root_of(run(asked(MINI))) == "/testbed"
    assert (
        root_of(run(asked("<uploaded_files>\n/workspace/repo\n</uploaded_files>")))
        == "/workspace/repo"
    )
    assert root_of(run(said("cd /tmp && cd /srv/work && ls"))) == "/srv/work"
    assert root_of(run(said("ls"))) is None
    one, other = ("cat src/a", "cd /testbed/src && cat a")
    reads = [
        actions_of(run(asked(MINI), said(f"```bash\n{line}\n```"), shown("")))[-1].reads
        for line in (one, other)
    ]
    assert reads == [("src/a",), ("src/a",)]


def test_what_an_own_script_does_is_done_when_it_runs() -> None:
    program = "p = 'tests/t.py'\nopen(p, 'w').write('')\nimport os; os.system('git fsck')"
    steps = (
        called("Write", file_path="fix.py", content=program),
        shown(""),
        called("bash", command="python fix.py"),
        shown(""),
        called("bash", command="echo 'rm a' > x.sh; sh x.sh"),
        shown(""),
    )
    found = actions_of(run(*steps))
    assert [(action.program, action.step, action.writes) for action in found] == [
        ("Write", 0, ("fix.py",)),
        ("python", 2, ("tests/t.py",)),
        ("git", 2, ()),
        ("echo", 4, ("x.sh",)),
        ("sh", 4, ()),
        ("rm", 4, ("a",)),
    ]


@given(text=st.text(max_size=200), name=st.text(max_size=10), answer=st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_log_gives_acts(text: str, name: str, answer: str) -> None:
    call = Step(role="assistant", text=text, tool_calls=(ToolCall(name=name, arguments=text),))
    shell = Step(role="assistant", text="", tool_calls=(ToolCall(name="bash", arguments=text),))
    block = said(f"```bash\n{text}\n```")
    trajectory = run(
        asked(MINI + text), block, shown(answer), call, shown(answer), shell, said(text)
    )
    assert all(0 <= action.step < len(trajectory.steps) for action in actions_of(trajectory))


# -- real logs -------------------------------------------------------------------------


def real(name: str) -> Trajectory:
    messages = json.loads((DATA / "gemini3_miniswe" / f"{name}.traj.json").read_text())["messages"]
    return run(*(Step(role=message["role"], text=message["content"]) for message in messages))
