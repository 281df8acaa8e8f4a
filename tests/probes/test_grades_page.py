"""The page of grades: the grade under every step, and nothing that a model wrote can act."""

import re
from types import SimpleNamespace

from forensics.records import Trajectory
from forensics.report import draw_page
from forensics.report.html import LEVELS, bar_level
from probes.grades.comparison import compare_scores
from probes.grades.grade_files import Grading, grading_page, run_fold
from probes.grades.step_grades import GradedRun, grade
from tests.page_tags import Tags
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


def page(*runs: tuple[GradedRun, Trajectory]) -> str:
    grading = Grading(
        log=SimpleNamespace(rollouts=[run for _, run in runs], own=True),
        runs=tuple(graded for graded, _ in runs),
        policy="p",
        reference="r",
        beta=1.0,
        attempts={"log": ("history",)},
        comparison=compare_scores([graded for graded, _ in runs]),
        split=None,
        shortcuts={},
        attribution=(),
        selected=None,
        missing=(),
        inputs={},
    )
    return draw_page(grading_page(grading))


def test_every_step_has_its_grade_its_bar_and_its_running_sum() -> None:
    fold = run_fold(*graded_run(), 1.0, frozenset({"history"}), "run-0")
    written = [step for step in fold.blocks if step.role == "assistant"]
    assert [step.value for step in written] == [0.5, -1.0, None]
    assert [bar_level(step.value) for step in written[:2]] == [LEVELS // 2, LEVELS]
    assert [step.note.partition("sum ")[2] for step in written] == [
        "+0.50",
        "−0.50, lowest of this run",
        "",
    ]
    assert [step.marks for step in written] == [("shortcut",), (), ()]
    assert all(step.note == "" for step in fold.blocks if step.role != "assistant")


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
