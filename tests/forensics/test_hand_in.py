"""What a run leaves: recorded, typed in by its own edits, or said as its answer."""

import json

import pytest

from forensics.actions import actions_of
from forensics.actions.hand_in import hand_in_of
from forensics.actions.unified_diff import changes_of
from forensics.records import Step, ToolCall, Trajectory


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


def test_what_cannot_be_followed_is_told() -> None:
    found = handed((bash("python - <<'EOF'\nopen('a.py', 'w').write(source())\nEOF"), ""))
    assert (found.source, found.lost) == (None, "edits that cannot be followed")


def test_the_answer_of_a_run_without_actions_is_its_hand_in() -> None:
    found = handed(("<think>hm</think>\nThe answer is 4.", ""))
    assert (found.source, found.submission) == ("answer", "\nThe answer is 4.")
    assert handed(("<think>never ends", "")).submission == "<think>never ends"


def test_an_answer_after_tools_is_no_hand_in_of_its_own() -> None:
    assert handed((bash("ls"), "a.py"), ("All done.", "")).source is None


def test_our_own_environments_record_what_was_handed_in() -> None:
    trajectory = run(("edit a.py x", ""), submission=None)
    steps = tuple(
        step.model_copy(update={"kinds": ("edit",)}) if step.role == "assistant" else step
        for step in trajectory.steps
    )
    trajectory = trajectory.model_copy(update={"steps": steps})
    assert hand_in_of(trajectory, actions_of(trajectory)).source is None
