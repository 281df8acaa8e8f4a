"""Actions of policies that speak them: elements, ReAct lines, blocks that somebody runs;
and the talk beside them that is no action.
"""

import pytest
from hypothesis import given, strategies as st

from forensics.actions import actions_of
from forensics.actions.spoken import blocks_are_run, is_prose, react_calls
from forensics.readers.values import with_observations
from forensics.records import Step, Trajectory
from tests.forensics.reader_files import run

LOG = "9f8e7d6 (origin/main) Mend it\n1a2b3c4 (HEAD) Begin\n"


def talk(*texts: str) -> Trajectory:
    """A prompt and then the policy and a user in turns."""
    steps = [Step(role="user", text="Mend it.")]
    steps += [
        Step(role="assistant" if at % 2 == 0 else "user", text=text)
        for at, text in enumerate(texts)
    ]
    return run("a", steps=tuple(steps))


def fence(line: str, tag: str = "bash") -> str:
    return f"Let me see.\n\n```{tag}\n{line}\n```"


def programs(trajectory: Trajectory) -> list[str]:
    return [action.program for action in actions_of(trajectory)]


@pytest.mark.parametrize(
    "told",
    [
        talk(fence("git log"), LOG, fence("git diff"), ""),
        talk(fence("ls"), "a.py\nb.py", fence("cat a.py"), "x = 1\n"),
        talk(fence("ls", "sh"), "Output:\nThe notes that you want are here.", "Done."),
        talk("<execute_bash>\nls\n</execute_bash>", "a.py"),
        talk(fence("python x.py"), "Traceback (most recent call last):\n  File", "Oh."),
    ],
)
def test_blocks_that_were_run(told: Trajectory) -> None:
    assert programs(told)


@pytest.mark.parametrize(
    "told",
    [
        talk(fence("git log")),
        talk(fence("git log"), "Thanks, that helped. What does it do?", fence("man git"), "I see."),
        talk(fence("ls"), "谢谢，这个命令很有用。", fence("pwd"), "好的，我明白了。"),
        talk(fence("ls") + "\nRun it and tell me what you see.", LOG),
        talk("Use `ls`.", LOG, "Use `pwd`.", LOG),
        talk(fence("x = 1", "python"), LOG, fence("y = 2", ""), LOG),
        talk(fence("git log"), "Why would I want to do that?", fence("ls"), "one\ntwo"),
        talk("In Cline one writes <execute_command><command>ls</command></execute_command>.", LOG),
        talk("My Action: look at it. Action Input: none", LOG),
    ],
)
def test_talk_is_no_action(told: Trajectory) -> None:
    assert programs(told) == []


CLINE = """Looking.
<replace_in_file>
<path>shop/totals.py</path>
<diff>
------- SEARCH
return 1
=======
return 2
+++++++ REPLACE
</diff>
</replace_in_file>"""


def test_elements_of_cline() -> None:
    told = talk(
        "<execute_command>\n<command>git log</command>\n</execute_command>", "x",
        CLINE, "x",
        "<write_to_file>\n<path>a.py</path>\n<content>\nx = 1\n</content>\n</write_to_file>", "x",
        "<read_file>\n<args><file><path>b.py</path></file></args>\n</read_file>", "x",
    )  # fmt: skip
    log, replaced, written, read = actions_of(told)
    assert (log.program, log.arguments) == ("git", ("log",))
    assert (replaced.kind, replaced.writes) == ("edit", ("shop/totals.py",))
    assert replaced.content == "return 2"
    assert (written.kind, written.writes, written.content) == ("edit", ("a.py",), "x = 1")
    assert read.reads == ("b.py",)


@pytest.mark.parametrize("text", [
    "Thought: look\nAction: bash\nAction Input: git log --all",
    "Thought 1: look\nAction 1: bash\nAction Input 1: git log --all\nObservation 1:",
    '**Action:** bash\n**Action Input:** {"command": "git log --all"}',
    "Action: bash[git log --all]", "Action: bash\nAction Input:\n```bash\ngit log --all\n```",
    'Action:\n```json\n{"action": "bash", "action_input": "git log --all"}\n```',
    'Action: {"name": "bash", "arguments": {"command": "git log --all"}}',
])  # fmt: skip
def test_lines_of_react(text: str) -> None:
    (action,) = actions_of(talk(text, f"Observation: {LOG}"))
    assert (action.program, action.arguments) == ("git", ("log", "--all"))
    assert programs(talk(text)) == [], "nobody answered"


def test_a_transcript_in_one_answer() -> None:
    text = (
        "Thought: look\nAction: bash\nAction Input: git log\nObservation: one\ntwo\n"
        "Thought: more\nAction: bash\nAction Input: ls\nObservation: a.py\nFinal Answer: done"
    )
    steps = with_observations((Step(role="user", text="Q"), Step(role="assistant", text=text)))
    assert [step.role for step in steps] == ["user"] + ["assistant", "tool"] * 2 + ["assistant"]
    assert [steps[2].text, steps[4].text] == ["one\ntwo", "a.py"]
    assert programs(run("a", steps=steps)) == ["git", "ls"]
    quoted = (Step(role="assistant", text="Observation: the Action is slow."),)
    assert with_observations(quoted) == quoted


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("What does it do?", True), ("Thanks!", True), ("I tried it and it did not work.", True),
        ("a.py\nb.py\nREADME.md", False), (LOG, False), ("", False), ("3 passed in 0.1s", False),
        ("total 12\n-rw-r--r-- 1 a b 3 Jan 1 x", False), ("x = 1", False),
        ("Fixed the parser, then the tests of it.", True),
    ],
)  # fmt: skip
def test_prose(text: str, prose: bool) -> None:
    assert is_prose(text) is prose


@given(st.lists(st.sampled_from(["Action: ", "a[", "]", "\n", "Action Input: ", "{", "```", "x "])))
def test_never_raises(parts: list[str]) -> None:
    text = "".join(parts)
    react_calls(text)
    blocks_are_run([Step(role="assistant", text=text), Step(role="user", text=text)])
    with_observations((Step(role="assistant", text=text + "\nObservation: x"),))
