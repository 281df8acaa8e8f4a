"""What a terminal showed, and trials of Terminal-Bench: samples by hand after the format."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, read_logs, terminal, terminal_screen
from forensics.readers.terminal import commands_in
from forensics.readers.terminal_screen import LONG, Screen
from forensics.records import Trajectory

LOG = "9f8e7d6 (origin/main) Mend it (#7)\n1a2b3c4 (HEAD) Begin"
PROMPTS = [
    "root@box:/repo# ", "me@my-mac.local:~/a b$ ", "[root@box dir]# ", "[me@box:~/a]$ ",
    "bash-5.1$ ", "sh-4.2# ", "(venv) root@box:/repo# ", "(base) (dev) bash-5.1$ ",
    "me@mac repo % ", "me@host ~/repo> ",
    "$ ", "/app # ", "~/repo $ ", "host$ ", "12:00:01 root@box:/# ",
    "root@box:~/repo (main)$ ", "repo $ ",
]  # fmt: skip


def commands(text: str, width: int | None = None) -> list[tuple[str, str]]:
    screen = Screen(width)
    screen.show(text)
    return [(one.text, one.output) for one in commands_in(screen.rows())]


def cast(*events: tuple[str, str]) -> str:
    first = {"version": 2, "width": 80, "height": 24}
    lines: list[Any] = [first, *([0.1, *event] for event in events)]
    return "\n".join(map(json.dumps, lines)) + "\n"


def runs(path: Path) -> list[Trajectory | Unreadable]:
    return list(read_logs(path))


def acted(run: Trajectory | Unreadable) -> list[tuple[str, str]]:
    """Each command with what came back."""
    assert isinstance(run, Trajectory)
    steps = [step for step in run.steps if step.role != "user"]
    assert [step.role for step in steps] == ["assistant", "tool"] * (len(steps) // 2)
    return [
        (json.loads(call.arguments)["command"], back.text)
        for said, back in zip(steps[::2], steps[1::2], strict=True)
        for call in said.tool_calls
    ]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompts_of_many_shapes(prompt: str) -> None:
    text = f"{prompt}git log\n{LOG}\n\n{prompt}git show 9f\n+ a\n{prompt}\n"
    assert commands(text) == [("git log", LOG), ("git show 9f", "+ a")]


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("cat > a <<'EOF'\n> don't\n> \n>   x\n> EOF", "cat > a <<'EOF'\ndon't\n\n  x\nEOF"),
        ("cat > a <<'EOF'\ndon't\n> x\nEOF", "cat > a <<'EOF'\ndon't\n> x\nEOF"),
        ("cat <<-EOF | sh\n\tls\n\tEOF", "cat <<-EOF | sh\n\tls\n\tEOF"),
        ('git tag "$(cat <<EOF\n> it\'s\n> EOF\n> )"', 'git tag "$(cat <<EOF\nit\'s\nEOF\n)"'),
        ("python -c '\nimport a\n'", "python -c '\nimport a\n'"),
        ("make \\\n> test", "make \\\ntest"),
        ("ls |\npipe> wc", "ls |\nwc"),
        ("for i in 1; do\n> ls\n> done", "for i in 1; do\nls\ndone"),
        ("if true; then\nls\nfi", "if true; then\nls\nfi"),
        ("echo 'a", "echo 'a"),
        ("cat <<EOF", "cat <<EOF"),
    ],
)  # fmt: skip
def test_commands_go_on_over_rows(typed: str, command: str) -> None:
    ended = command != typed or "\n" in typed
    text = f"root@box:/# {typed}\nout\nroot@box:/# pwd\n/\n"
    assert commands(text) == [(command, "out"), ("pwd", "/")], ended


@pytest.mark.parametrize(
    ("above", "prompt"),
    [
        ("Script started on 2026-03-02 10:00:00+00:00 [TERM=xterm]\n", "$ "),
        ("Last login: Mon Mar  2 10:00:00 2026\n", "~/repo $ "),
    ],
)
def test_what_stands_above_the_first_prompt(above: str, prompt: str) -> None:
    text = f"{above}{prompt}git log\n{LOG}\n{prompt}git show 9f\n+ a\n{prompt}\n"
    assert commands(text) == [("git log", LOG), ("git show 9f", "+ a")]


@pytest.mark.parametrize(
    "prompt", ["root@box:/a b# ", "[me@box dir]$ ", "bash-5.1$ ", "(venv) root@box:/# ", "sh-4.2# "]
)
def test_a_prompt_behind_output_without_a_line_end(prompt: str) -> None:
    text = f"{prompt}printf x\nx{prompt}printf 'a b'\na b{prompt}git log\n{LOG}\n{prompt}"
    assert commands(text) == [("printf x", "x"), ("printf 'a b'", "a b"), ("git log", LOG)]


def test_what_was_typed_counts_where_the_row_is_garbled() -> None:
    for typed, ran in (
        ("git log --all", "git log --all"),
        ("git l\t", "git lo"),
        ("\x1b[A", "git lo"),
    ):
        screen = Screen(80)
        screen.show("me@box:~$ git lo")
        screen.type(f"{typed}\r")
        screen.show("\r\nout\r\nme@box:~$ ")
        assert commands_in(screen.rows()) == [(ran, "out")]


def test_what_is_no_command_of_the_shell() -> None:
    text = "\n".join([
        "[me@box a]$ python", ">>> 1 + 1", "2", ">>> exit()", "[me@box a]$ yarn build", "$ tsc",
        "[me@box a]$ sleep 1^C", "[me@box a]$ ", "[me@box a]$ printf x", "x[me@box a]$ ls", "b",
    ])  # fmt: skip
    assert commands(text) == [
        ("python", ">>> 1 + 1\n2\n>>> exit()"),
        ("yarn build", "$ tsc"),
        ("printf x", "x"),
        ("ls", "b"),
    ]


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        ("\x1b]0;me@box: ~\x07\x1b[01;32mme\x1b[0m ok\r\n", ["me ok", ""]),
        ("get 1%\rget 100%\x1b[K\n", ["get 100%", ""]),
        ("lsx\b\x1b[K -l", ["ls -l"]),
        ("abcd\x1b[3D\x1b[2Px", ["ax"]),
        ("one\r\ntwo\x1b[A\rONE", ["ONE", "two"]),
        ("a\x1b[H\x1b[2J\x1b[3Jb", ["a", "b"]),
        ("a\x1b[?1049hvim\r\n\x1b[2Jtext\x1b[?1049lb", ["ab"]),
        ("a\tb", ["a\tb"]),
    ],
)
def test_the_screen(stream: str, shown: list[str]) -> None:
    whole, pieces = Screen(80), Screen(80)
    whole.show(stream)
    for sign in stream:
        pieces.show(sign)
    assert [row.text for row in whole.rows()] == [row.text for row in pieces.rows()] == shown


def test_a_long_command_is_one_though_the_line_wraps() -> None:
    line = "git show 9f8e7d6 -- a/b/c d/e/f"
    at = 20 - len("me@box:~$ ")
    wrapped = f"me@box:~$ {line[:at]}{line[at]}\r{line[at:]}\r\nout\r\n"
    assert commands(wrapped, 20) == [(line, "out")]
    raw = f"\x1b[?2004hme@box:~$ {line[:9]} \r{line[9:]}\r\n\x1b[?2004l\rout\r\n"
    assert commands(raw) == [(line, "out")]


def trial(folder: Path, name: str, agent: str) -> None:
    """A trial of Terminal-Bench with a recording of the agent."""
    place = folder / name / f"{name}.2-of-5.run"
    (place / "sessions").mkdir(parents=True)
    told = {"id": "0", "trial_name": f"{name}.2-of-5.run", "task_id": name, "is_resolved": True}
    told |= {"instruction": "Mend the sum in shop.py, please, all of it.", "failure_mode": "unset"}
    (place / "results.json").write_text(json.dumps({**told, "parser_results": None}))
    for session in ("agent", "tests"):
        text = agent if session == "agent" else "root@box:/# bash /tests/run-tests.sh\nok\n"
        (place / "sessions" / f"{session}.log").write_text(text)
        (place / "sessions" / f"{session}.cast").write_text(cast(("o", text.replace("\n", "\r\n"))))
    (place / "panes").mkdir()
    (place / "panes" / "post-agent.txt").write_text(agent)
    (place / "commands.txt").write_text("['ls', 'Enter']\n")


@given(st.text(alphabet="ab \r\n\b\x1b[]?0123456789;hlJKHABCDGPX@m\x07", max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_stream_is_shown(text: str) -> None:
    for width in (None, 5):
        screen = Screen(width)
        screen.show(text)
        assert all(len(row.text) <= 2 * LONG for row in screen.rows())


def test_very_long_lines_and_moves_are_bounded() -> None:
    long = "x" * (3 * LONG)
    text = f"me@box:~$ echo\n{long}\r{long}\x1b[999999999C!\nme@box:~$ ls\n" + "\x1b[K.\r" * 20_000
    (echo, printed), (last, _) = commands(text)
    assert (echo, last) == ("echo", "ls")
    assert long in printed.split("\n") and len(printed) < 7 * LONG


def test_what_is_too_large_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial(tmp_path, "a", f"root@box:/# git log\n{LOG}\n" * 500)
    (run,) = runs(tmp_path)
    assert len(acted(run)) == 500
    monkeypatch.setattr(terminal_screen, "MOST_ROWS", 100)
    *told, run = runs(tmp_path)
    assert {one.reason for one in told if isinstance(one, Unreadable)} == {
        "the terminal shows more than 100 rows"
    }
    assert len(told) == 3 and acted(run) == []
    monkeypatch.setattr(terminal_screen, "MOST_ROWS", 6100)
    monkeypatch.setattr(terminal, "SHOWN", 1000)
    recording, *texts, run = runs(tmp_path)
    assert isinstance(recording, Unreadable) and recording.reason == "it shows more than 0 MB"
    assert texts and all("too large to be read whole" in str(one) for one in texts)
