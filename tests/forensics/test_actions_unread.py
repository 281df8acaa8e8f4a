"""A run that acted in a form that nobody reads is told; one that only talked is not."""

import pytest

from forensics.actions import actions_of, unread_actions
from forensics.actions.unread import CALLS, PARTS
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import run

LOG = "9f8e7d6 (origin/main) Mend it\n1a2b3c4 (HEAD) Begin\n"
CALL = ToolCall(name="bash", arguments='{"command": "ls"}')


def talk(*texts: str, answers: str = "user") -> Trajectory:
    roles = ("assistant", answers)
    steps = [Step(role="user", text="Mend it.")]
    steps += [Step(role=roles[at % 2], text=text) for at, text in enumerate(texts)]  # type: ignore[arg-type]
    return run("a", steps=tuple(steps))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (talk("[tool-call]", "[tool-result]", "[tool-call]", "[tool-result]"), PARTS),
        (talk("", "", "", ""), PARTS),
        (talk("[text]", "[text]", "Done."), PARTS),
        (talk("I look.", LOG, answers="tool"), CALLS),
        (talk("<my_shell>ls</my_shell>", LOG, "<my_shell>pwd</my_shell>", "/work"), CALLS),
        (talk('{"tool": "sh", "query": "ls"}', "a.py\nb.py", "Done."), CALLS),
        (talk("!ls", "a.py\nb.py", "!cat a.py", "x = 1", "Done."), CALLS),
    ],
)
def test_runs_that_acted_unread(told: Trajectory, why: str) -> None:
    assert actions_of(told) == () and unread_actions(told, ()) == why


@pytest.mark.parametrize("told", [
    talk("The answer is 4."),
    talk(""),
    talk("```bash\nls\n```"),
    talk("What is 2 + 2?", "I think it is 4.", "Right! And 3 + 3?", "It is 6, I guess.", "Yes."),
    talk("Which order do you mean?", "The one from May, please.", "I cannot change it."),
    talk("Use ```ls```.", "Thanks, what does it do?", "It lists files.", "I see, thank you."),
    talk("Pick a door.", "2", "You won."),
])  # fmt: skip
def test_talk_and_single_answers(told: Trajectory) -> None:
    assert unread_actions(told, actions_of(told)) is None


@pytest.mark.parametrize(("read", "unread", "told"), [(3, 2, False), (2, 3, True), (0, 1, True)])
def test_the_larger_part_counts(read: int, unread: int, told: bool) -> None:
    acted = [Step(role="assistant", text="", tool_calls=(CALL,)), Step(role="tool", text="a.py")]
    lost = [Step(role="assistant", text="[tool-call]"), Step(role="tool", text="a.py")]
    both = run("a", steps=(Step(role="user", text="Do."), *acted * read, *lost * unread))
    assert (unread_actions(both, actions_of(both)) == PARTS) is told
