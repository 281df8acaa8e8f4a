"""Command lines as actions: hand-worked lines, spellings that must not matter, and
lines that nobody should send.
"""

import shlex
import time
from itertools import count

import pytest
from hypothesis import given, settings, strategies as st

from forensics.actions import UNPARSED, Action, bash as shell
from forensics.actions.command_lines import actions_of_line
from forensics.actions.python_source import python_effects
from tests.work import calls


def actions(line: str, directory: str = "", root: str | None = None) -> list[Action]:
    return list(actions_of_line(line, directory, root).actions)


def plain(line: str, directory: str = "", root: str | None = None) -> list[Action]:
    """Acts up to how they were written."""
    return [action._replace(text="") for action in actions(line, directory, root)]


def heads(line: str) -> list[tuple[str, ...]]:
    return [(action.program, *action.arguments) for action in actions(line)]


# -- hand-worked lines -----------------------------------------------------------------


@pytest.mark.parametrize(("line", "expected"), [
    ("ls -la", [("ls", "-la")]),
    ("a 'b c' \"d e\" f\\ g", [("a", "b c", "d e", "f g")]),
    ("a && b || c; d\ne | f & g", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)]),
    ("if [ -f x ]; then a; else b; fi", [("test", "-f", "x"), ("a",), ("b",)]),
    ("f() { a; }; { b; }; (c); ! d", [("a",), ("b",), ("c",), ("d",)]),
    ("echo $(git log --all) `git stash`", [("git", "log", "--all"), ("git", "stash"), ("echo",
     "$(git log --all)", "`git stash`")]),
    ("diff <(git show x:a) b", [("git", "show", "x:a"), ("diff", "<(git show x:a)", "b")]),
    ("X='a b'; cat \"$X\" ${X}/c $Y", [("cat", "a b", "a b/c", "$Y")]),
    ("for f in a b; do rm $f.py; done", [("rm", "a.py"), ("rm", "b.py")]),
    ("X=1 env -u Y Z=2 timeout -k 1 5 nice -n 3 sudo -u me git --no-pager -c a=b log -3", [("git",
     "log", "-3")]),
    ("git -c alias.x='log --all' x -p", [("git", "log", "--all", "-p")]),
    ("git --git-dir=/r/.git log", [("git", "log")]),
    ("git log | xargs -n 1 -I{} git show {}", [("git", "log"), ("git", "show", "{}")]),
    ("find . -name '*.py' -exec grep x {} +", [("find", ".", "-name", "*.py", "-exec", "grep", "x",
     "{}", "+"), ("grep", "x", "./*.py")]),
    ("bash -lc 'a && b'", [("a",), ("b",)]),
    ("/bin/sh -c \"cd x; bash -c 'git fsck'\"", [("cd", "x"), ("git", "fsck")]),
    ("eval 'git reflog'", [("git", "reflog")]),
    ("echo 'git reflog' | bash", [("echo", "git reflog"), ("git", "reflog")]),
    ("bash <<'X'\ngit reflog\nX", [("git", "reflog")]),
    ("/usr/bin/python3.11 -m pytest -q a", [("pytest", "-q", "a")]),
    ("docker exec -it box bash -c 'git log'", [("git", "log")]),
    ("poetry run pytest a", [("pytest", "a")]),
    ("echo 'run git log --all' # git log", [("echo", "run git log --all")]),
    ("export PATH=/evil:$PATH", [("export", "PATH=/evil:$PATH")]),
])  # fmt: skip
def test_a_line_is_told_as_its_simple_commands(line: str, expected: list[tuple[str, ...]]) -> None:
    assert heads(line) == expected


@pytest.mark.parametrize(("line", "reads", "writes"), [
    ("cat a b > c 2>/dev/null", ["a", "b"], ["c"]),
    ("cat < a >> b", ["a"], ["b"]),
    ("a &> b", [], ["b"]),
    ("ls 2>&1", [], []),
    ("sed -n 1,5p a", ["a"], []),
    ("sed -i.bak -e s/a/b/ -e s/c/d/ a b", ["a", "b"], ["a", "b"]),
    ("sed -i 's/a/b/' a", ["a"], ["a"]),
    ("grep -rn 'x y' src/ tests", ["src/", "tests"], []),
    ("head -n 5 a", ["a"], []),
    ("cp a b", ["a"], ["b"]),
    ("cp a b d", ["a", "b"], ["d/a", "d/b"]),
    ("mv a d/", ["a"], ["a", "d/a"]),
    ("rm -rf a {b,c}.py", [], ["a", "b.py", "c.py"]),
    ("tee a -a b", [], ["a", "b"]),
    ("git -C d checkout HEAD -- a", [], ["d/a"]),
    ("git checkout HEAD~1 a", [], ["a"]),
    ("git restore a", [], ["a"]),
    ("git show HEAD:a > b", ["a"], ["b"]),
    ("curl -o a http://x", [], ["a"]),
    ("dd if=a of=b", ["a"], ["b"]),
    ("python a.py b", ["a.py"], []),
    ("pytest tests/a.py::test_b -k c", ["tests/a.py"], []),
    ("ls > a -la", [], ["a"]),
    ("echo a && b > c", [], ["c"]),
    ("> a", [], ["a"]),
])  # fmt: skip
def test_files_that_a_line_reads_and_writes(line: str, reads: list[str], writes: list[str]) -> None:
    found = actions(line)
    assert [path for action in found for path in action.reads] == reads
    assert [path for action in found for path in action.writes] == writes


@pytest.mark.parametrize(("line", "writes", "wrote"), [
    ("cat > a <<'X'\nit's $HOME\n\"q\"\nX", ("a",), "it's $HOME\n\"q\"\n"),
    ("cat <<-X >a\n\tone\n\tX", ("a",), "one\n"),
    ("tee a <<X\nb\nX", ("a",), "b\n"),
    ("cat <<X | tee a\nb\nX", ("a",), "b\n"),
    ("echo hi > a", ("a",), "hi\n"),
    ("printf 'a\\nb' > a", ("a",), "a\nb"),
    ("echo -ne 'a\\tb' >> a", ("a",), "a\tb"),
    ("cat > a <<X\nnever closed", ("a",), "never closed"),
    ("git apply <<X\n--- a/f.py\n+++ b/g.py\n@@ -1 +1 @@\n-1\n+2\nX", ("f.py", "g.py"),
     "--- a/f.py\n+++ b/g.py\n@@ -1 +1 @@\n-1\n+2\n"),
    ("patch -p1 <<X\n--- a/f.py\n+++ b/f.py\nX", ("f.py",), "--- a/f.py\n+++ b/f.py\n"),
    ("sed -i 's/a/b/' f", ("f",), "s/a/b/"),
    ("python -c \"open('a', 'w').write('b')\"", ("a",), "open('a', 'w').write('b')"),
    ("python3 - <<X\nopen('a', 'w')\nX", ("a",), "open('a', 'w')\n"),
    ("python3 <<X\nopen('a', 'w')\nX", ("a",), "open('a', 'w')\n"),
])  # fmt: skip
def test_the_text_that_a_line_writes(line: str, writes: tuple[str, ...], wrote: str) -> None:
    last = actions(line)[-1]
    assert (last.writes, last.content) == (writes, wrote)


def test_several_heredocs_and_what_follows_them() -> None:
    found = actions(
        "cat <<A > x && cat <<'B B' > y\n1 <<A\nA\n2\nB B\ngit log; echo $((1 << 2)) \"<<C\"\nls"
    )
    assert [(action.program, action.writes, action.content) for action in found] == [
        ("cat", ("x",), "1 <<A\n"),
        ("cat", ("y",), "2\n"),
        ("git", (), None),
        ("echo", (), None),
        ("ls", (), None),
    ]


def test_a_heredoc_within_a_substitution_hides_nothing() -> None:
    found = heads('git commit -m "$(cat <<\'EOF\'\nit\'s "done" (\nEOF\n)" && git fsck')
    assert [head[:2] for head in found] == [("cat",), ("git", "commit"), ("git", "fsck")]


def test_the_working_directory_goes_along_the_line() -> None:
    found = actions(
        "cd /repo/src && cat a; (cd ../tests; cat b); cat c; cd - ; cat d; cd $X; cat e",
        "",
        "/repo",
    )
    assert [path for action in found for path in action.reads] == [
        "src/a",
        "tests/b",
        "src/c",
        "d",
        "e",
    ]
    assert actions_of_line("cd a && cd b", "top", None).directory == "top/a/b"
    assert actions_of_line("(cd a)", "top", None).directory == "top"
    assert actions_of_line("cd $X", "top", None).directory is None


@pytest.mark.parametrize(
    "line,directory,read",
    [
        ("cat a | cat b | cat c && cd d && cat e", "top/d", "top/d/e"),
        ("cat a | cat b | cat c || cd d && cat e | wc && cat f", "top/d", "top/d/f"),
        ("cat a | cat b | (cd d && cat c) && cat e", "top", "top/e"),
        ("cat a | cat b | cd d", "top", "top/b"),
        ("cat x | cat y | cat z && " * 60 + "cd d && cat e", "top/d", "top/d/e"),
    ],
)
def test_what_follows_a_pipeline_is_no_part_of_it(line: str, directory: str, read: str) -> None:
    """The grammar takes `a | b | c && d` as `a | (b | c && d)`."""
    found = actions_of_line(line, "top", None)
    assert found.directory == directory
    assert [path for action in found.actions for path in action.reads][-1] == read


def test_what_a_program_text_does() -> None:
    found = python_effects(
        "import subprocess, shutil, os\nfrom pathlib import Path\np = 'tests/a.py'\ns ="
        " open(p).read()\nwith open(p, 'w') as f: f.write(s.replace('1',"
        " '2'))\nPath('b').write_text('x')\nshutil.copy('c', 'd')\nos.system('git log"
        " --all')\nsubprocess.run(['git', 'show', 'x y'])\ns.replace('e',"
        " 'f')\nPath('g').read_text()\n"
    )
    assert set(found.reads) == {"tests/a.py", "c", "g"}
    assert set(found.writes) == {"tests/a.py", "b", "d"}
    assert set(found.lines) == {"git log --all", "git show 'x y'"}
    assert python_effects("print 'python 2'") == python_effects("")


def test_commands_of_a_program_are_acts() -> None:
    assert heads("python - <<X\nimport os\nos.system('cd a && git fsck')\nX")[1:] == [
        ("cd", "a"),
        ("git", "fsck"),
    ]


def test_the_text_is_as_it_was_written() -> None:
    found = actions("git --no-pager log | head && cat <<'X' > a\nb\nX\n")
    assert [action.text for action in found] == ["git --no-pager log", "head", "cat <<'X' > a"]


# -- spellings that must not matter ----------------------------------------------------

WORDS = st.text(st.sampled_from("abcXYZ019._-/é\"'$ \\*;|&<>(){}#!~\n"), min_size=1, max_size=12)
NAMES = st.text(st.sampled_from("abcd"), min_size=1, max_size=5)
COMMANDS = st.tuples(
    st.sampled_from(
        ["git log", "git show HEAD:a", "cat", "rm", "sed -i s/a/b/", "pytest", "cp x", "python"]
    ),
    st.lists(NAMES, min_size=1, max_size=3),
).map(lambda pair: f"{pair[0]} {' '.join(pair[1])}")


@given(words=st.lists(WORDS, min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_quoting_is_undone(words: list[str]) -> None:
    single = "tool " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    double = "tool " + " ".join(
        '"' + "".join("\\" + c if c in '"$`\\' else c for c in word) + '"' for word in words
    )
    assert (
        heads(single) == heads(double) == heads(shlex.join(["tool", *words])) == [("tool", *words)]
    )


@given(command=COMMANDS, more=COMMANDS)
@settings(max_examples=60, deadline=None)
def test_the_spelling_of_a_command_does_not_matter(command: str, more: str) -> None:
    expected = plain(command)
    assert len(expected) == 1
    for same in (
        f"env A=1 {command}",
        f"A=1 B='c d' {command}",
        f"bash -lc {shlex.quote(command)}",
        f"({command})",
        f"timeout 10 {command}",
        f"sudo {command}",
        f"sh -c {shlex.quote(command)}",
        f"{{ {command}; }}",
        command.replace(" ", " \\\n  "),
        command.replace("git ", "git --no-pager "),
        command.replace("git ", "git -C . "),
        f"  {command}  # said",
        command.replace("git ", "/usr/bin/git -c core.pager=cat "),
        f'bash -c "bash -c {shlex.quote(command)}"',
        f"bash <<'X'\n{command}\nX",
        f"eval {shlex.quote(command)}",
        f"if true; then {command}; fi",
    ):
        assert [action for action in plain(same) if action.program != "true"] == expected, same
    both = plain(f"{command} && {more}")
    assert (
        both
        == plain(f"{command}; {more}")
        == plain(f"{command}\n{more}\n")
        == [*expected, *plain(more)]
    )
    assert plain(f"cd d && {command}")[1:] == plain(command, "d")


@given(
    body=st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200),
    first=NAMES,
    second=NAMES,
)
@settings(max_examples=60, deadline=None)
def test_the_name_of_a_heredocs_end_does_not_matter(body: str, first: str, second: str) -> None:
    first, second, body = f"END_{first}", f"STOP_{second}", body + "\n"
    spelled = [f"cat > f <<'{first}'\n{body}{first}\n", f"cat <<\"{second}\" > f\n{body}{second}",
               f"cat <<\\{second} >f; ls\n{body}{second}\n"]  # fmt: skip
    for line in spelled:
        action = plain(line)[0]
        assert (action.program, action.writes, action.content) == ("cat", ("f",), body)


@given(command=COMMANDS)
@settings(max_examples=30, deadline=None)
def test_a_quoted_command_is_an_argument(command: str) -> None:
    heredoc = f"cat > n <<X\n{command}\nX"
    for line in (
        f"echo {shlex.quote(command)}",
        f'echo "{command}"',
        f"# {command}\necho x",
        heredoc,
    ):
        assert len(actions(line)) == 1, line


# -- lines that nobody should send -----------------------------------------------------


PIECES = (
    "'", '"', "`", "$(", ")", "(", "{", "}", "<<A", "\nA\n", "|", "&&", ";", "\n", "\\", "#", "if ",
    " then ", " fi", "$((", "for x in ", "do ", "done", "case ", "esac", "))", "[[ ", "]]", "> ",
    "< ", "bash -c ", "git ", "a ", "=", "$x", "eval ", "python -c ",
)  # fmt: skip


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_pieces_of_the_language_give_acts(pieces: list[str]) -> None:
    assert isinstance(actions("".join(pieces)), list)


JUNK = (
    "(", "$(", "`'\"", "a|", "<<A\n", "{ ", "if ", '"$(', "\x00\xff", "case a in ", "<(", "a=(",
    "${", "f(){ ", "<<A ", "{a,", "{a,b}", "bash -c '", "eval ", "cat <<A\nx\nA\n", "a;", "\\\n",
    "\ud800", "<", "a >b ", "$(cat <<A\n", "git -C a ",
)  # fmt: skip


def test_characters_that_crash_the_grammar_do_not_reach_it() -> None:
    for point in (*range(0xC0000, 0x110000, 0x1003), *range(0x80, 0x3000, 0x53)):
        one = chr(point)
        assert heads(f"a {{{one}..{one}}} {one}b; '{one}'") == [
            ("a", f"{{{one}..{one}}}", f"{one}b"),
            (one,),
        ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", JUNK)
def test_a_hundred_thousand_characters_of_junk_are_little_work(piece: str) -> None:
    """Calls, not seconds: a busy machine does not matter."""
    found: list[Action] = []
    assert calls(lambda: found.extend(actions(piece * (100_000 // len(piece))))) < 2_000_000
    assert len(found) <= 601


def test_parsing_that_takes_long_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count()
    monkeypatch.setattr(shell, "thread_time", lambda: next(looks) * shell.SECONDS / 4)
    found = actions("x=$(a); " * 4_000)
    assert next(looks) < 20  # given up twice after five: as a whole, and its first part
    assert found[-1].program == UNPARSED and "too tangled" in found[-1].arguments[0]


def test_waiting_for_the_processor_cuts_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "x=$(a); " * 20
    whole, looks = shell.parsed(line), count(1)

    def late() -> float:
        next(looks)
        time.sleep(1.2 * shell.SECONDS)  # far more than the whole parse takes
        return time.thread_time()

    monkeypatch.setattr(shell, "thread_time", late)
    assert shell.parsed(line) == whole and next(looks) > 2 and whole.left_out is None


def test_a_cut_is_told() -> None:
    found = actions("a;" * 5_000)
    assert found[-1].program == UNPARSED
    assert "commands" in found[-1].arguments[0]
    assert actions("a " * 50_000)[-1].program == UNPARSED
    assert (
        actions("cat > f <<X\n" + "x\n" * 100_000 + "X\nls")[-1].program == "ls"
    )  # a heredoc may be long


def test_commands_within_commands_have_an_end() -> None:
    line = "ls"
    for _ in range(9):
        line = f"bash -c {shlex.quote(line)}" if len(line) < 10_000 else line
    assert actions(line) == [] or actions(line)[0].program == "ls"
    program = "import os; os.system('python s.py')"
    assert len(actions(f"cat > s.py <<X\n{program}\nX\npython s.py")) == 2
