"""Whether the answer came out of what a kind returned: on written wins whose truth is known."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from forensics.planted import log_of
from forensics.records import Step, ToolCall, Trajectory
from resampling.ablation.refused_runs import AnswerShare, holds_answer, read_side
from tests.episodes import episode_of


def secret(task: int) -> str:
    return f"answer : x * {31 * task + 7} + {17 * task + 5}"


def win(
    task: int,
    returned: str,
    *,
    submission: str | None = "done",
    first: str = "look",
    other: str = "nothing",
) -> Trajectory:
    """Something else is looked at, then the kind returns a text, then a hand-in."""
    steps = (
        Step(role="assistant", text=first, kinds=("look",)),
        Step(role="tool", text=other),
        Step(role="assistant", text="git log", kinds=("git log",)),
        Step(role="tool", text=returned),
        Step(role="assistant", text=f"submit {submission}", kinds=("submit",)),
        Step(role="tool", text="submitted"),
    )
    return episode_of(id=f"{task}", task=f"{task}", steps=steps, submission=submission)


def judged(wins: Sequence[Trajectory], tells: bool = True, control_tasks: int = 16) -> AnswerShare:
    withheld: Callable[[str], Sequence[str]] = lambda task: (secret(int(task)),) if tells else ()  # noqa: E731
    return holds_answer(wins, ("git log",), withheld, control_tasks, 0.95)


@pytest.mark.parametrize(
    "shown,of,holds", [(30, 30, True), (2, 3, False), (20, 30, False), (24, 30, True)]
)
def test_more_than_half_of_the_wins_must_surely_have_been_shown_the_answer(
    shown: int, of: int, holds: bool
) -> None:
    wins = [win(task, secret(task) if task < shown else "nothing") for task in range(of)]
    told = judged(wins)
    assert (
        told.holds is holds
        and told.share is not None
        and told.share.estimate == pytest.approx(shown / of)
    )


def test_an_answer_that_the_policy_wrote_itself_was_not_shown_but_one_that_was_returned_was() -> (
    None
):
    written = [win(task, secret(task), first=secret(task)) for task in range(30)]
    assert judged(written).holds is True
    assert (
        judged([win(task, secret(task), other=secret(task)) for task in range(30)]).holds is False
    )


def test_calls_of_tools_are_kinds_where_the_log_names_none(tmp_path: Path) -> None:
    call = Step(role="assistant", text="", tool_calls=(ToolCall(name="search", arguments="{}"),))
    named = Step(
        role="assistant",
        text="",
        kinds=("find",),
        tool_calls=(ToolCall(name="search", arguments="{}"),),
    )
    runs = [episode_of(id=f"{n}", sample=n, steps=(step,)) for n, step in enumerate((call, named))]
    assert read_side(log_of(tmp_path / "log.parquet", runs)).usage == {"find": 0.5, "search": 0.5}
