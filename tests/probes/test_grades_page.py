"""The page of grades: the grade under every step, and nothing that a model wrote can act."""

import re
from html.parser import HTMLParser

import pytest

from forensics.records import Step, Trajectory
from probes.grades.comparison import compare_scores
from probes.grades.grade_page import LEVELS, LONGEST, MOST_RUNS, grades_page, run_view, shown_first
from probes.grades.step_grades import NOT_DRAWN, GradedRun, grade
from tests.probes.scored_runs import scored

TURNED = chr(0x202E)  # turns the direction of writing
TEXTS = ("<script>alert(1)</script>", f"\x1b[31mred {TURNED}evil", "")


def graded_run(
    name: str = "run", outcome: float = 0.0, shift: float = 0.0
) -> tuple[GradedRun, Trajectory]:
    one = scored(
        [[-0.5, -0.5], [-2.0 + shift], []],
        [[-1.0, -1.0], [-1.0], []],
        name=name,
        task=f"<b>{name}</b>",
        outcome=outcome,
        kinds=[("history",), ("<i>edit",), ()],
    )
    texts = iter(TEXTS)
    steps = tuple(
        (
            step.model_copy(update={"text": next(texts)})
            if step.role == "assistant"
            else step.model_copy(update={"text": "<img src=x onerror=alert(1)>"})
        )
        for step in one.trajectory.steps
    )
    return grade(one), one.trajectory.model_copy(update={"steps": steps})


def page(*runs: tuple[GradedRun, Trajectory], **more: object) -> str:
    return grades_page(
        "Title",
        ["One sentence."],
        runs,
        compare_scores([one for one, _ in runs]),
        facts=["2 steps"],
        shortcuts=frozenset({"history"}),
        **more,
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_every_step_has_its_grade_its_bar_and_its_running_sum() -> None:
    view = run_view(*graded_run(), scale=1.0, shortcuts=frozenset({"history"}))
    written = [turn for turn in view.turns if turn.role == "assistant"]
    assert [turn.grade.grade for turn in written] == [0.5, -1.0, None]
    assert [turn.running for turn in written] == [0.5, -0.5, None]
    assert [(turn.side, turn.level) for turn in written[:2]] == [
        ("up", LEVELS // 2),
        ("down", LEVELS),
    ]
    assert [turn.shortcut for turn in written] == [True, False, False] and view.lowest == 3
    assert all(turn.grade is None for turn in view.turns if turn.role != "assistant")


def test_the_page_says_the_numbers_and_why_a_step_has_none() -> None:
    told = page(graded_run())
    for said in (
        "+0.50",
        "−1.00",
        "running sum −0.50",
        f"no grade: {NOT_DRAWN}",
        "shortcut",
        "lowest of this run",
        "Against its baselines",
        "not measured",
        "policy −2.00, reference −1.00, 1 token,",
    ):
        assert said in told, said
    assert told.count('class="bar"') == 2


def test_nothing_that_a_model_wrote_becomes_markup_or_a_control_code() -> None:
    told = page(graded_run())
    tags = Tags()
    tags.feed(told)
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "img", "iframe", "link"}
    assert not any(
        key.startswith("on") or key in ("style", "src") for _, found in tags.seen for key in found
    )
    assert (
        "\x1b" not in told
        and TURNED not in told
        and "&lt;script&gt;" in told
        and "&lt;i&gt;edit" in told
    )
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/\S+", "", told)


def test_a_flood_of_text_is_cut_and_told() -> None:
    one, run = graded_run()
    steps = (Step(role="user", text="y" * (LONGEST + 77)), *run.steps[1:])
    told = page((one, run.model_copy(update={"steps": steps})))
    assert "77 more characters" in told and "y" * (LONGEST + 1) not in told


def test_lost_runs_with_the_lowest_step_and_won_ones_are_shown_in_turns_and_bounded() -> None:
    lost = [graded_run(f"lost-{i}", 0.0, shift=-i)[0] for i in range(3)]
    won = [graded_run(f"won-{i}", 1.0, shift=i)[0] for i in range(3)]
    assert [run.trajectory for run in shown_first([*won, *lost])] == [
        "lost-2",
        "won-2",
        "lost-1",
        "won-1",
        "lost-0",
        "won-0",
    ]
    assert [run.trajectory for run in shown_first([lost[0], lost[0], won[1]])] == [
        "lost-0",
        "won-1",
    ]
    many = [graded_run(f"lost-{i}", 0.0)[0] for i in range(MOST_RUNS + 9)]
    assert len(shown_first(many)) == MOST_RUNS and shown_first([]) == []
    assert "9 more runs" in page(graded_run(), left_out=9)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_longest_bar_is_that_of_the_largest_grade(shift: float) -> None:
    one, run = graded_run(shift=shift)  # with 1: grades 0.5 and 0
    turns = [turn for turn in run_view(one, run, scale=0.5).turns if turn.role == "assistant"]
    assert turns[0].level == LEVELS and turns[1].level == (0 if shift else LEVELS)
