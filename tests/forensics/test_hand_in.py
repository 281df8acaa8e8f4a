"""What a run leaves: recorded, typed in by its own edits, or said as its answer."""

import json

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


def test_edits_of_a_file_that_was_read_are_a_patch_with_its_lines() -> None:
    found = handed(READ, (edit("/repo/a.py", "1", "2"), "The file has been updated."))
    (change,) = changes_of(found.patch)
    assert (found.source, found.lost) == ("edits", None)
    assert (change.removed, change.added) == (("    return 1",), ("    return 2",))
    assert found.submission == "    return 2"


def test_edits_add_up_and_what_was_taken_back_is_gone() -> None:
    twice = handed(READ, (edit("/repo/a.py", "1", "2"), "ok"), (edit("/repo/a.py", "2", "3"), "ok"))
    assert changes_of(twice.patch)[0].added == ("    return 3",)
    back = handed(READ, (edit("/repo/a.py", "1", "2"), "ok"), (edit("/repo/a.py", "2", "1"), "ok"))
    assert back.source is None
    restored = handed(
        READ, (edit("/repo/a.py", "1", "2"), "ok"), (bash("git checkout -- a.py"), "")
    )
    assert restored.source is None


def test_unread_files_keep_each_edit_as_a_hunk_and_later_edits_go_into_earlier_ones() -> None:
    found = handed((edit("a.py", "x = 1", "x = 2"), "ok"), (edit("a.py", "x = 2", "x = 3"), "ok"))
    (change,) = changes_of(found.patch)
    assert (change.removed, change.added, change.new) == (("x = 1",), ("x = 3",), False)


def test_failed_edits_are_none() -> None:
    error = "<tool_use_error>String to replace not found in file.</tool_use_error>"
    assert handed((edit("a.py", "x", "y"), error)).source is None


@pytest.mark.parametrize(
    ("command", "added"),
    [
        ("cat > a.py <<'EOF'\nx = 1\nEOF", ("x = 1",)),
        ("cat >> a.py <<'EOF'\nx = 1\nEOF", ("x = 1",)),
        ("sed -i 's/x = 0/x = 1/' a.py", ("x = 1",)),
        ("git apply <<'EOF'\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 0\n+x = 1\nEOF", ("x = 1",)),
    ],
)
def test_shell_edits_are_followed(command: str, added: tuple[str, ...]) -> None:
    found = handed((bash(command), ""))
    assert (found.source, found.lost) == ("edits", None)
    assert changes_of(found.patch)[0].added == added


def test_apply_patch_is_followed() -> None:
    hunk = "@@ def f():\n-    return 1\n+    return 2\n"
    patch = f"*** Begin Patch\n*** Update File: a.py\n{hunk}*** End Patch"
    found = handed(({"apply_patch": {"input": patch}}, "Done!"))
    (change,) = changes_of(found.patch)
    assert (change.path, change.removed, change.added) == (
        "a.py",
        ("    return 1",),
        ("    return 2",),
    )


def test_a_scratch_file_that_was_removed_under_another_name_is_gone() -> None:
    found = handed((write("/repo/tests/test_tmp.py", "x"), ""), (bash("rm tests/test_tmp.py"), ""))
    assert found.source is None


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


def test_lines_that_nobody_saw_are_taken_away_unknown() -> None:
    found = handed(PART, (bash("sed -i '8,9d' a.py"), ""))
    assert found.lost == "edits that cannot be followed"
    seen = handed(PART, (bash("sed -i '4,5d' a.py"), ""))
    assert (seen.lost, changes_of(seen.patch)[0].removed) == (None, ("def f(x):", *OLD))


def test_what_is_known_of_an_edit_is_evidence_beside_what_is_not() -> None:
    strange = python(
        "import black\ns = open('a.py').read()\ns = s.replace('x = 0', 'x = 1')\n"
        "open('a.py', 'w').write(black.format_str(s))"
    )
    found = handed((strange, ""))
    assert found.lost == "edits that cannot be followed"
    assert changes_of(found.patch)[0].added == ("x = 1",)


def test_a_program_that_looked_among_unseen_lines_and_found_none_is_not_followed() -> None:
    looks = python(
        "lines = open('a.py').readlines()\nfor i, line in enumerate(lines):\n"
        "    if 'def g' in line:\n        lines[i] = 'def h(x):\\n'\n"
        "open('a.py', 'w').writelines(lines)"
    )
    assert handed(PART, (looks, "")).lost == "edits that cannot be followed"
    assert handed(CAT, (looks, "")).lost is None


def test_a_view_that_contradicts_what_is_known_is_believed_and_changes_are_kept() -> None:
    found = handed(
        PART,
        (bash("sed -i '5s/x/x * 2/' a.py"), ""),
        (bash("sed -n '4,4p' a.py"), "def other(x):\n"),
        (bash("sed -i '4d' a.py"), ""),
    )
    (change,) = changes_of(found.patch)
    assert (set(change.removed), change.added) == ({"def other(x):", *OLD}, NEW)


def test_a_text_that_nobody_saw_is_replaced_all_the_same() -> None:
    found = handed((FOLLOWED["python with names"], ""))
    (change,) = changes_of(found.patch)
    assert (found.lost, change.added) == (None, ("return x * 2",))


def test_a_program_that_changes_lines_that_nobody_saw_is_not_followed() -> None:
    every = python(
        "lines = ['# ' + one for one in open('a.py')]\nopen('a.py', 'w').write(''.join(lines))"
    )
    assert handed(PART, (every, "")).lost == "edits that cannot be followed"
    assert handed(CAT, (every, "")).lost is None


def test_git_takes_edits_back_with_and_without_dashes() -> None:
    for back in (
        "git checkout a.py",
        "git checkout -- a.py",
        "git checkout HEAD a.py",
        "git checkout HEAD -- a.py",
        "git checkout .",
        "git restore a.py",
        "git restore --source=HEAD a.py",
        "git stash",
        "git reset --hard",
        "git reset --hard HEAD",
    ):
        found = handed(CAT, (edit("a.py", "x", "y"), "ok"), (bash(back), ""))
        assert found == (*(None,) * 4, (), ("a.py",))


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


def test_a_stash_comes_back() -> None:
    found = handed(
        CAT,
        (edit("a.py", "return x", "return y"), "ok"),
        (bash("git stash"), ""),
        (bash("git stash pop"), ""),
    )
    assert changes_of(found.patch)[0].added == ("    return y",)


def test_a_look_at_another_branch_that_ends_at_home_is_none() -> None:
    for home in ("git checkout -", "git checkout main", "git switch -"):
        found = handed(CAT, (bash("git checkout topic"), ""), (bash(home), ""))
        assert found.lost is None


@pytest.mark.parametrize("seen", [CAT, PART], ids=["whole", "a part"])
def test_a_copy_that_is_put_back_takes_the_edit_back(seen: tuple) -> None:
    found = handed(
        seen,
        (bash("cp a.py a.py.orig"), ""),
        (edit("a.py", "return x", "return y"), "ok"),
        (bash("mv a.py.orig a.py"), ""),
    )
    assert found.source is None


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


def test_commands_of_powershell_are_read() -> None:
    shell = {"pwsh": {"command": "Set-Content -Path a.py -Value 'x = 1'"}}
    (change,) = changes_of(handed((shell, "")).patch)
    assert (change.path, change.added) == ("a.py", ("x = 1",))
    added = handed(
        ({"powershell": {"command": "Get-Content a.py"}}, "x = 1\n"),
        ({"powershell": {"command": "Add-Content a.py 'y = 2'"}}, ""),
    )
    (change,) = changes_of(added.patch)
    assert (change.removed, change.added) == ((), ("y = 2",))
    piped = handed(({"pwsh": {"command": "(gc a.py) -replace 'x','y' | Set-Content a.py"}}, ""))
    assert piped.lost == "edits that cannot be followed"
    gone = handed(
        ({"pwsh": {"command": "Get-Content a.py"}}, "x = 1\n"),
        ({"pwsh": {"command": "Remove-Item -Force a.py"}}, ""),
    )
    assert changes_of(gone.patch)[0].deleted


LOST = {
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


def test_a_file_that_was_edited_again_is_not_taken_back() -> None:
    change = edit("a.py", "return x", "return y")
    turns = [CAT, (change, "ok"), (bash("git checkout a.py"), "")]
    assert handed(*turns).taken_back == ("a.py",)
    assert handed(*turns, (change, "ok")).taken_back == ()


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
