"""The quick way through plain command lines tells what the grammar tells, whatever the line is."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings, strategies as st

from forensics.actions import bash as plain
from forensics.actions.bash import plain_walk, walked_tree
from forensics.actions.heredocs import extract_heredocs
from tests.work import calls

NAMES = st.sampled_from(
    [
        "ls",
        "cd",
        "pushd",
        "git",
        "cat",
        "echo",
        "printf",
        "python3.11",
        "./run.sh",
        "/bin/sh",
        ".",
        "source",
        "if",
        "in",
        "do",
        "test",
        "time",
        "export",
        "let",
        "exec",
        "eval",
        "[",
        "{",
        "x=1",
        "5",
        "-",
        "a_b",
        "set",
        "return",
        "not",
    ]
)
BARE = st.text("ab1.-_/:@%+,=^~*?#!{}[]()&$\\", min_size=1, max_size=5)
INSIDE = st.text("ab 1\"'$`\\\n\t{},*#;|&<>!()[", max_size=8)
QUOTED = st.one_of(INSIDE.map(lambda text: f"'{text}'"), INSIDE.map(lambda text: f'"{text}"'))
LISTED = st.sampled_from(
    ["-n", "--include=*.py", "HEAD~1", "..", "-", "--", "if", "done", "5", "a=b", "-n5", "12,40p"]
)
WORD = st.one_of(LISTED, BARE, QUOTED, st.tuples(BARE, QUOTED, BARE).map("".join))
SPACE = st.sampled_from([" ", " ", " ", "  ", "\t"])
FILES = st.sampled_from(
    [
        "2>&1",
        "> f",
        ">f",
        ">> d/f.txt",
        "< f",
        "2>/dev/null",
        "> /dev/null 2>&1",
        "2> f",
        ">",
        "< a > b",
        "&> f",
        ">| f",
        "< __heredoc_0__",
        "<<'E'\nbody $x\nE",
        "> a b",
    ]
)
SIGN = st.sampled_from(
    [" && ", " || ", " | ", "; ", "\n", "&&", "|", ";", " |\n", " &&\n", "\n\n", " & ", ";;", "|& "]
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        words = [draw(NAMES), *draw(st.lists(WORD, max_size=3))]
        parts.append(draw(SPACE).join(words))
        if draw(st.booleans()):
            parts.append(draw(SPACE) + draw(FILES))
        parts.append(draw(SIGN))
    return "".join(parts[: None if draw(st.booleans()) else -1])


@settings(max_examples=10 * settings.default.max_examples, deadline=None)
@given(lines())
@example("cd a && ls 2>&1 | cat b && pwd")  # the pipe starts over where the line did
@example("ls | cd a && pwd")  # what is behind a pipe moves nobody
@example("echo x | cat < __heredoc_0__ > f")
def test_what_it_reads_is_what_the_grammar_reads(line: str) -> None:
    lifted = extract_heredocs(line)
    plain = plain_walk(lifted)
    if plain is not None:
        tree, cut = walked_tree(lifted)
        assert (plain.commands, plain.directory, cut) == (tree.commands, tree.directory, None)


@pytest.mark.parametrize(
    "line",
    [
        "ls -la",
        "cd /testbed && grep -rn 'a b' --include=\"*.py\" . | head -20",
        "python -m pytest -q tests/test_a.py",
        "sed -i 's/a/b/' src/a.py; git diff",
        "cat a > b 2>&1",
        "nl -ba x.py | sed -n '1,40p'\n",
        "cat <<'EOF' > a.py\nimport os\nEOF\npython a.py",
        "git log --oneline -n 5 -- a",
    ],
)
def test_ordinary_lines_are_plain(line: str) -> None:
    assert plain_walk(extract_heredocs(line)) is not None


@pytest.mark.parametrize(
    "line",
    [
        "a $(b)",
        "a `b`",
        "a $x",
        "a {b,c}",
        "a \\\n b",
        "a &",
        "(a)",
        "if a; then b; fi",
        "a='b' c",
        "",
        "\n",
        "a 'b",
        "a #b",
        "ä b",
        "a &&",
        "x () { y; }",
        "a;" * 500,
    ],
)
def test_other_lines_are_left_to_the_grammar(line: str) -> None:
    assert plain_walk(extract_heredocs(line)) is None


LONG: dict[str, Callable[[int], str]] = {
    "a word": lambda n: "a " + "b" * n + "$",
    "words": lambda n: "a" + " 'b'" * (n // 4) + "$",
    "quotes": lambda n: "a " + "'\"" * (n // 2),
    "a name": lambda n: "a" * n + "(",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("length", [plain.LONGEST_QUICK - 3, 1_000_000])
@pytest.mark.parametrize("kind", LONG)
def test_no_line_is_much_work(kind: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also far beyond the length that is tried, where what grew with the square
    would not come to an end. Seconds: `benchmarks/hostile.py`.
    """
    monkeypatch.setattr(plain, "LONGEST_QUICK", 2_000_000)
    lifted = extract_heredocs(LONG[kind](length))
    assert calls(lambda: plain_walk(lifted)) < 10 * length
