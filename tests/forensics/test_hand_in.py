"""What a run leaves: recorded, typed in by its own edits, or said as its answer."""

import json
from typing import Any

import pytest

from forensics.actions import actions_of, unwrapped_run
from forensics.actions.hand_in import hand_in_of
from forensics.actions.unified_diff import changes_of
from forensics.records import Step, ToolCall, Trajectory
from forensics.shortcuts.blind_run import BlindRun


def run(*turns: tuple[dict | str, str], prompt: str = "Mend it.", **known: object) -> Trajectory:
    """A run of tool calls (a name and arguments) or texts, each with what came back."""
    steps = [Step(role="user", text=prompt)]
    for said, back in turns:
        if isinstance(said, dict):
            name, arguments = next(iter(said.items()))
            call = ToolCall(name=name, arguments=json.dumps(arguments))
            steps.append(Step(role="assistant", text="", tool_calls=(call,)))
        else:
            steps.append(Step(role="assistant", text=said))
        steps += [Step(role="tool", text=back)] if back else []
    base = {"id": "r", "task": "t", "policy": "p", "environment": "e", "seed": 0, "outcome": None}
    return Trajectory(**{**base, "steps": tuple(steps), "end": "terminated", **known})


def handed(*turns: tuple[dict | str, str], **known: object):
    trajectory = run(*turns, **known)
    return hand_in_of(trajectory, actions_of(trajectory))


def edit(path: str, old: str, new: str) -> dict:
    return {"Edit": {"file_path": path, "old_string": old, "new_string": new}}


def write(path: str, content: str) -> dict:
    return {"Write": {"file_path": path, "content": content}}


def bash(command: str) -> dict:
    return {"Bash": {"command": command}}


READ = ({"Read": {"file_path": "/repo/a.py"}}, "def f():\n    return 1\n")


def test_a_recorded_patch_is_taken_as_it_is() -> None:
    patch = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    found = handed((edit("b.py", "1", "2"), "ok"), submission="y", patch=patch)
    assert (found.source, found.patch, found.submission) == ("patch", patch, "y")


def test_a_new_file_is_new_and_one_that_was_named_before_is_not() -> None:
    (fresh,) = changes_of(handed((write("b.py", "x = 1\n"), "")).patch)
    (named,) = changes_of(handed((write("b.py", "x = 1\n"), ""), prompt="See b.py.").patch)
    assert (fresh.new, named.new) == (True, False)


def test_the_answer_of_a_run_without_actions_is_its_hand_in() -> None:
    found = handed(("<think>hm</think>\nThe answer is 4.", ""))
    assert (found.source, found.submission) == ("answer", "\nThe answer is 4.")
    assert handed(("<think>never ends", "")).submission == "<think>never ends"


def test_what_is_said_after_tools_is_the_hand_in_where_nothing_was_edited() -> None:
    search = ({"web_search": {"query": "Monteponi"}}, "closed in 1997")
    found = handed(search, ("<think>so</think>It closed in 1997.", ""))
    assert (found.source, found.submission) == ("answer", "It closed in 1997.")
    assert handed(search, ("", "")).submission == ""
    assert handed(("Let me look.", ""), search).source is None, "it ends with an action"
    assert handed((bash("ls"), "a.py"), ("Nothing to do.", "")).source == "answer"


def test_a_summary_beside_edits_is_no_hand_in() -> None:
    edits = (READ, (edit("/repo/a.py", "1", "2"), "ok"))
    found = handed(*edits, ("All done.", ""))
    assert (found.source, found.submission) == ("edits", "    return 2")
    back = (edit("/repo/a.py", "2", "1"), "ok")
    assert handed(*edits, back, ("All done.", "")).source is None
    lost = (bash("pytest --snapshot-update"), "1 snapshot written")
    assert handed(lost, ("All done.", "")).source is None


def test_our_own_environments_record_what_was_handed_in() -> None:
    trajectory = run(("edit a.py x", ""), submission=None)
    steps = tuple(
        step.model_copy(update={"kinds": ("edit",)}) if step.role == "assistant" else step
        for step in trajectory.steps
    )
    trajectory = trajectory.model_copy(update={"steps": steps})
    assert hand_in_of(trajectory, actions_of(trajectory)).source is None


SOURCE = "import os\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return f(x) + 1\n"
CAT = ({"Bash": {"command": "cat a.py"}}, SOURCE)
PART = ({"Bash": {"command": "sed -n '4,6p' a.py"}}, "def f(x):\n    return x\n")
OLD, NEW = ("    return x",), ("    return x * 2",)


def python(text: str) -> dict:
    return bash(f"python3 - <<'EOF'\n{text}\nEOF")


REPLACE = 'replace("return x\\n", "return x * 2\\n")'
FOLLOWED = {
    "sed with a group": bash(r"sed -i 's/\(return x\)$/\1 * 2/' a.py"),
    "sed with another sign": bash("sed -i 's#return x$#return x * 2#' a.py"),
    "sed with two scripts": bash("sed -i -e 's/return x$/return x_2/' -e 's/x_2/x * 2/' a.py"),
    "sed by number": bash("sed -i '5s/x/x * 2/' a.py"),
    "sed that changes a line": bash("sed -i '5c\\    return x * 2' a.py"),
    "sed that takes away and adds": bash("sed -i -e '5d' -e '4a\\    return x * 2' a.py"),
    "sed with an address of text": bash("sed -i '/def f/,/return/s/return x/return x * 2/' a.py"),
    "extended sed": bash(r"sed -E -i 's/(return) x$/\1 x * 2/' a.py"),
    "perl": bash("perl -pi -e 's/(return x)$/$1 * 2/' a.py"),
    "python in one line": bash(
        f"python3 -c \"p='a.py'; s=open(p).read(); open(p,'w').write(s.{REPLACE})\"".replace(
            '("', "('"
        )
        .replace('")', "')")
        .replace('", "', "', '")
    ),
    "python with paths": python(
        f"from pathlib import Path\np = Path('a.py')\np.write_text(p.read_text().{REPLACE})"
    ),
    "python with names": python(
        "old, new = 'return x\\n', 'return x * 2\\n'\nwith open('a.py') as f:\n    s = f.read()\n"
        "if old in s:\n    s = s.replace(old, new)\nwith open('a.py', 'w') as f:\n    f.write(s)"
    ),
    "python with a plain pattern": python(
        "import re\ns = open('a.py').read()\n"
        "open('a.py', 'w').write(re.sub(r'return x\\n', 'return x * 2\\n', s))"
    ),
    "python by lines": python(
        "lines = open('a.py').readlines()\nlines[4] = '    return x * 2\\n'\n"
        "with open('a.py', 'w') as f:\n    f.writelines(lines)"
    ),
    "python with a loop": python(
        "out = []\nfor line in open('a.py'):\n    if line.strip() == 'return x':\n"
        "        line = line.replace('x', 'x * 2')\n    out.append(line)\n"
        "open('a.py', 'w').write(''.join(out))"
    ),
    "python with a function": python(
        "def change(path, old, new):\n    text = open(path).read()\n    assert old in text\n"
        "    open(path, 'w').write(text.replace(old, new))\n\n"
        "for old, new in [('return x\\n', 'return x * 2\\n')]:\n    change('a.py', old, new)"
    ),
    "several edits of one call": {
        "MultiEdit": {
            "file_path": "a.py",
            "edits": [{"old_string": "return x\n", "new_string": "return x * 2\n"}],
        }
    },
}


@pytest.mark.parametrize("seen", [CAT, PART], ids=["whole", "a part"])
@pytest.mark.parametrize("way", FOLLOWED)
def test_an_edit_is_followed_however_it_is_said(way: str, seen: tuple) -> None:
    found = handed(seen, (FOLLOWED[way], ""))
    (change,) = changes_of(found.patch)
    assert (found.lost, change.path) == (None, "a.py")
    assert (change.removed, change.added) == (OLD, NEW)


def pwsh(command: str) -> dict:
    return {"pwsh": {"command": command}}


EDIT, TWICE = edit("/repo/a.py", "1", "2"), edit("/repo/a.py", "2", "3")
BACK, CHANGED = edit("/repo/a.py", "2", "1"), edit("a.py", "return x", "return y")
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 0\n+x = 1\n"
HUNK = "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-return 1\n+return 2\n*** End Patch"
SHOWN = (pwsh("Get-Content a.py"), "x = 1\n")
LEFT: dict[str, tuple[list[Any], tuple[str, ...] | None, tuple[str, ...]]] = {  # removed, added
    "of a file that was read": ([READ, EDIT], ("    return 1",), ("    return 2",)),
    "edits add up": ([READ, EDIT, TWICE], ("    return 1",), ("    return 3",)),
    "of an unread file": (
        [edit("a.py", "x = 1", "x = 2"), edit("a.py", "x = 2", "x = 3")],
        ("x = 1",),
        ("x = 3",),
    ),
    "cat": ([bash("cat > a.py <<'EOF'\nx = 1\nEOF")], None, ("x = 1",)),
    "cat at the end": ([bash("cat >> a.py <<'EOF'\nx = 1\nEOF")], None, ("x = 1",)),
    "sed": ([bash("sed -i 's/x = 0/x = 1/' a.py")], None, ("x = 1",)),
    "git apply": ([bash(f"git apply <<'EOF'\n{DIFF}EOF")], None, ("x = 1",)),
    "apply_patch": ([{"apply_patch": {"input": HUNK}}], ("return 1",), ("return 2",)),
    "powershell": ([pwsh("Set-Content -Path a.py -Value 'x = 1'")], None, ("x = 1",)),
    "powershell at the end": ([SHOWN, pwsh("Add-Content a.py 'y = 2'")], (), ("y = 2",)),
    "powershell removes": ([SHOWN, pwsh("Remove-Item -Force a.py")], ("x = 1",), ()),
    "a stash comes back": (
        [CAT, CHANGED, bash("git stash"), bash("git stash pop")],
        OLD,
        ("    return y",),
    ),
    "a text that nobody saw": ([FOLLOWED["python with names"]], None, ("return x * 2",)),
    "lines that were seen": ([PART, bash("sed -i '4,5d' a.py")], ("def f(x):", *OLD), ()),
}


def turned(turns: list[Any]) -> list[Any]:
    return [turn if isinstance(turn, tuple) else (turn, "ok") for turn in turns]


@pytest.mark.parametrize("name", LEFT)
def test_what_edits_leave(name: str) -> None:
    turns, removed, added = LEFT[name]
    found = handed(*turned(turns))
    (change,) = changes_of(found.patch)
    assert (found.source, found.lost, change.added) == ("edits", None, added)
    assert change.removed == (change.removed if removed is None else removed)
    assert found.submission == "\n".join(added)


TAKES_BACK = (
    "git checkout a.py", "git checkout -- a.py", "git checkout HEAD a.py",
    "git checkout HEAD -- a.py", "git checkout .", "git restore a.py",
    "git restore --source=HEAD a.py", "git stash", "git reset --hard", "git reset --hard HEAD",
)  # fmt: skip
FAILED = "<tool_use_error>String to replace not found in file.</tool_use_error>"
NOTHING: list[list[Any]] = [
    [READ, EDIT, BACK],
    [(edit("a.py", "x", "y"), FAILED)],
    [write("/repo/tests/test_tmp.py", "x"), bash("rm tests/test_tmp.py")],
    *([CAT, CHANGED, bash(line)] for line in TAKES_BACK),
    *([seen, bash("cp a.py a.orig"), CHANGED, bash("mv a.orig a.py")] for seen in (CAT, PART)),
    *([CAT, bash("git checkout topic"), bash(home)] for home in (
        "git checkout -", "git checkout main", "git switch -"
    )),
]  # fmt: skip


@pytest.mark.parametrize("turns", NOTHING)
def test_what_was_taken_back_is_gone(turns: list[Any]) -> None:
    found = handed(*turned(turns))
    assert (found.source, found.lost, found.patch) == (None, None, None)
    if turns[0] is CAT and turns[1] is CHANGED:
        assert found.taken_back == ("a.py",)
        assert handed(*turned([*turns, CHANGED])).taken_back == ()


EVERY = python(
    "lines = ['# ' + one for one in open('a.py')]\nopen('a.py', 'w').write(''.join(lines))"
)
LOOKS = python(
    "lines = open('a.py').readlines()\nfor i, line in enumerate(lines):\n"
    "    if 'def g' in line:\n        lines[i] = 'def h(x):\\n'\n"
    "open('a.py', 'w').writelines(lines)"
)
DELETES = bash("sed -i '8,9d' a.py")


@pytest.mark.parametrize("turn", [EVERY, LOOKS, DELETES])
def test_what_touches_lines_that_nobody_saw_is_not_followed(turn: dict) -> None:
    assert handed(PART, (turn, "")).lost == "edits that cannot be followed"
    assert handed(CAT, (turn, "")).lost is None


@pytest.mark.parametrize("way", ["sed by number", "python by lines", "python with names"])
def test_scripts_that_the_run_wrote_are_followed_when_they_run(way: str) -> None:
    line = FOLLOWED[way]["Bash"]["command"]
    name = "change.py" if way.startswith("python") else "change.sh"
    script = line.removeprefix("python3 - <<'EOF'\n").removesuffix("\nEOF")
    runs = "python3 change.py" if name.endswith("py") else "bash change.sh"
    found = handed(
        CAT, (write(name, script), "created"), (bash(runs), ""), (bash(f"rm {name}"), "")
    )
    (change,) = changes_of(found.patch)
    assert (found.lost, change.removed, change.added) == (None, OLD, NEW)


def test_what_is_known_of_an_edit_is_evidence_beside_what_is_not() -> None:
    strange = python(
        "import black\ns = open('a.py').read()\ns = s.replace('x = 0', 'x = 1')\n"
        "open('a.py', 'w').write(black.format_str(s))"
    )
    found = handed((strange, ""))
    assert found.lost == "edits that cannot be followed"
    assert changes_of(found.patch)[0].added == ("x = 1",)


def test_a_view_that_contradicts_what_is_known_is_believed_and_changes_are_kept() -> None:
    found = handed(
        PART,
        (bash("sed -i '5s/x/x * 2/' a.py"), ""),
        (bash("sed -n '4,4p' a.py"), "def other(x):\n"),
        (bash("sed -i '4d' a.py"), ""),
    )
    (change,) = changes_of(found.patch)
    assert (set(change.removed), change.added) == ({"def other(x):", *OLD}, NEW)


def test_git_takes_back_what_it_names_and_no_more() -> None:
    folder = handed(
        (write("/repo/tests/test_a.py", "x"), ""),
        (write("/repo/src/b.py", "x"), ""),
        (bash("git checkout tests/"), ""),
    )
    assert [change.path for change in changes_of(folder.patch)] == ["repo/src/b.py"]
    for keeps in (
        "git checkout -b fix",
        "git restore --staged a.py",
        "git stash list",
        "git reset",
    ):
        found = handed(CAT, (edit("a.py", "return x", "return y"), "ok"), (bash(keeps), ""))
        assert (found.source, found.lost) == ("edits", None)


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("tar xzf fix.tgz", True),
        ("tar -xf fix.tar -C src", True),
        ("unzip -o fix.zip", True),
        ("python3 -m zipfile -e fix.zip src", True),
        ("unzip -q fix.zip -d /tmp/fix", False),
        ("tar xzf fix.tgz -C /tmp", False),
        ("cd /tmp && tar xzf fix.tgz", False),
        ("unzip -p fix.zip a.py", False),
        ("unzip -l fix.zip", False),
        ("tar xzOf fix.tgz a.py", False),
        ("tar czf out.tgz src", False),
    ],
)
def test_an_archive_that_is_unpacked_over_the_work_cannot_be_followed(
    line: str, lost: bool
) -> None:
    assert (handed((bash(line), "")).lost is not None) is lost


LOST = {
    "a pipe of powershell": [pwsh("(gc a.py) -replace 'x','y' | Set-Content a.py")],
    "written by a program": [bash("python - <<'EOF'\nopen('a.py', 'w').write(source())\nEOF")],
    "snapshots of jest": [bash("npx jest -u")],
    "snapshots of pytest": [bash("pytest --snapshot-update")],
    "snapshots of yarn": [bash("yarn test --updateSnapshot")],
    "another commit": [edit("a.py", "return x", "return y"), bash("git checkout 1f2e3d4c -- a.py")],
    "another, no dashes": [edit("a.py", "return x", "y"), bash("git checkout 1f2e3d4c a.py")],
    "a release": [edit("a.py", "return x", "y"), bash("git restore --source=v1.0 a.py")],
    "another branch": [edit("a.py", "return x", "return y"), bash("git checkout topic")],
    "sed of loops": [bash("sed -E -i 's/(a+)+b/c/' a.py")],
    "sed of groups": [bash(r"sed -i 's/\(a*\)*b/c/' a.py")],
    "sed that is long": [bash(f"sed -i 's/{'a' * 9999}' a.py")],
    "sed that opens a block": [bash("sed -i '1,2{d' a.py")],
    "sed over lines": [bash("sed -i '$!N;D' a.py")],
    "sed that would take long": [bash("sed -i 's/.*b.*/c/' a.py")],
    **{f"hostile {n}": [python(program)] for n, program in enumerate((
        "a = []\nfor i in range(10000):\n    a.extend(a or [1])\nopen('a.py','w').write(str(a))",
        "s = 'x' * 199\nfor i in range(10000):\n    s = s + s\nopen('a.py','w').write(s)",
        "def f():\n    f()\nf()\nopen('a.py', 'w')",
        "open('a.py', 'w').write(__import__('os').popen('id').read())",
        "for i in range(10**12):\n    pass\nopen('a.py', 'w')",
        "open('a.py', 'w').write(" + "(" * 3000 + ")" * 3000 + ")",
        "s = open('a.py').read()\nopen('a.py','w').write(s.replace('', 'x' * 199))",
    ))},
}  # fmt: skip


@pytest.mark.parametrize("way", LOST)
def test_edits_that_cannot_be_followed_are_told(way: str) -> None:
    long = "\n".join(["a" * 1900] * 200)
    seen = ({"Bash": {"command": "cat a.py"}}, long) if way.startswith("sed") else CAT
    first = [] if way.startswith("hostile") else [seen]  # one of them only where nobody saw it
    found = handed(*first, *((turn, "ok") for turn in LOST[way]))
    assert found.lost == "edits that cannot be followed"


def agent(*turns: tuple[str, str]):
    """A run in SWE-agent's shell, as blocks."""
    said = ((f"```\n{line}\n```", back) for line, back in turns)
    trajectory = run(*said, environment="swe-agent")
    return hand_in_of(unwrapped_run(trajectory), actions_of(trajectory))


WINDOW = (
    "[File: /repo/a.py (9 lines total)]\n(3 more lines above)\n"
    "4:def f(x):\n5:    return x\n6:\n7:\n"
)
ENDS = "(2 more lines below)\n(Open file: /repo/a.py)\n(Current directory: /repo)\nbash-$"


def test_edits_by_line_in_a_viewer_take_away_what_its_window_showed() -> None:
    found = agent(
        ("open a.py 5", WINDOW + ENDS),
        ("edit 5:5\n    return x * 2\nend_of_edit", "updated" + ENDS),
    )
    (change,) = changes_of(found.patch)
    assert (found.lost, change.removed, change.added) == (None, OLD, NEW)
    unseen = agent(("open a.py 5", WINDOW + ENDS), ("edit 8:9\nx\nend_of_edit", "updated" + ENDS))
    assert unseen.lost == "edits that cannot be followed"


def test_a_file_that_the_editor_creates_is_new() -> None:
    ends = "(Open file: /repo/b.py)\n(Current directory: /repo)\nbash-$"
    made = agent(
        ("create b.py", "[File: /repo/b.py (1 lines total)]\n1:\n" + ends),
        ("edit 1:1\nx = 1\nend_of_edit", "updated\n" + ends),
    )
    (change,) = changes_of(made.patch)
    assert (made.lost, change.new, change.added) == (None, True, ("x = 1",))


def test_a_change_in_a_long_file_is_told_by_its_own_lines() -> None:
    long = "".join(f"x = {n % 7}\n\n" for n in range(6000))
    changes = ("sed -i '3s/x/y/' a.py", "sed -i '11999s/x/y/' a.py")
    for seen in (CAT[0], {"Bash": {"command": "sed -n '1,12000p' a.py"}}):
        for line in changes:
            (change,) = changes_of(handed((seen, long), (bash(line), "")).patch)
            assert (len(change.removed), len(change.added)) == (1, 1)
    part = ({"Bash": {"command": "sed -n '11990,12000p' a.py"}}, "a\nb\n" * 5)
    first = ({"Bash": {"command": "sed -n '1,4p' a.py"}}, "c\nd\ne\nf\n")
    both = handed(first, part, (bash("sed -i -e '2d' -e '11991d' a.py"), ""))
    (change,) = changes_of(both.patch)
    assert (both.lost, change.removed, change.added) == (None, ("d", "b"), ())


def test_what_sed_puts_before_a_line_that_nobody_saw_is_told() -> None:
    script = r"""sed -i 's|^def test_third|@pytest.mark.skip(reason="flaky")\n&|' tests/test_a.py"""
    found = handed((bash(script), ""))
    assert found.lost is None
    assert '+@pytest.mark.skip(reason="flaky")\n def test_third' in (found.patch or "")


@pytest.mark.parametrize(
    ("submitted", "left"),
    [
        ("Done: all four tests pass. \u2705", "    return 2"),
        ("def f():\n    return 2", "def f():\n    return 2"),
        ("```python\nx = 1\n```", "```python\nx = 1\n```"),
    ],
)
def test_words_at_the_end_of_a_run_that_edited_are_not_what_it_left(
    submitted: str, left: str
) -> None:
    edited = (edit("/repo/a.py", "1", "2"), "The file has been updated.")
    trajectory = run(READ, edited, submission=submitted)
    assert BlindRun(trajectory, actions_of(trajectory)).trajectory.submission == left
