"""Heads of commands, and where the commands stand."""

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from forensics.actions import command_head, command_spans, executable_spans


def heads(text: str, *, shell: bool = True) -> list[str | None]:
    return [command_head(text[start:end]) for start, end in command_spans(text, shell=shell)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ls 2>&1 | head -3 &> out", ["ls", "head"]),  # a redirection is no command
        ("cat <<EOF | grep x && ls\nrm a\nrm b\nEOF\npwd", ["cat", "grep", "ls", "pwd"]),
        ("cat <<< word\nls", ["cat", "ls"]),
        ("ls # then; rm x\n# all\npwd", ["ls", "pwd"]),
        ("make \\\n  all ; echo 'a;b' \"c|d\" e\\;f", ["make", "echo"]),
        ("(cd a && ls) ; x=$(git log | wc -l)", ["cd", "ls", None, "git log", "wc"]),
        ("'git' log", ["git log"]),
        ("git -c a=b -C dir --no-pager stash pop", ["git stash"]),
        ("sudo env A=1 python3 -m pip install x", ["pip"]),
        ("python -m", ["python"]),
        ("A=1", [None]),
        ("  \n ; ", []),
    ],
)
def test_heads_of_a_shell_text(text: str, found: list[str | None]) -> None:
    assert heads(text) == found


def test_in_a_text_that_is_no_shell_parentheses_and_headings_are_words() -> None:
    assert heads("# Answer (short) ; submit", shell=False) == [None, "submit"]
    assert len(heads("f(x) is 3", shell=False)) == 1


def test_what_acts() -> None:
    text = "Look:\n```bash\nls\n```\nand\n```\npwd\n```\n"
    assert [text[start:end] for start, end in executable_spans(text)] == ["ls\n", "pwd\n"]
    text = "a<think>ls ; pwd</think>b<think>never closed"
    assert [text[start:end] for start, end in executable_spans(text) if start < end] == ["a", "b"]


WORDS = st.sampled_from(
    [
        "git",
        "log",
        "-C",
        "python",
        "-m",
        "sudo",
        "A=1",
        "'a;b'",
        '"',
        "'",
        "\\",
        "#",
        "<<EOF",
        "EOF",
        "\n",
        ";",
        "|",
        "&&",
        "(",
        ")",
        "```\n",
        "é",
        "> x",
    ]
)


@settings(max_examples=3 * settings.default.max_examples, deadline=None)
@given(st.lists(WORDS, max_size=14).map(" ".join) | st.text(max_size=60), st.booleans())
def test_commands_stand_one_behind_the_other(text: str, shell: bool) -> None:
    spans = list(command_spans(text, shell=shell))
    assert all(start < end and not text[start].isspace() for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(head is None or head.strip() == head != "" for head in heads(text, shell=shell))
    if not shell:  # nothing is lost but what separates
        between = [0, *(place for span in spans for place in span), len(text)]
        gaps = [text[start:end] for start, end in zip(between[::2], between[1::2], strict=True)]
        assert all(sign in ";|&" or sign.isspace() for gap in gaps for sign in gap)
