"""The page of cliffs: words, bars and alternatives where they belong, and
nothing that a model wrote can act.
"""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

from forensics.records import Provenance, Step, Trajectory
from forensics.records.page import LONGEST, Fold, Page, Section
from forensics.report import draw_page
from forensics.report.html import LEVELS, bar_level
from forensics.statistics import Estimate
from resampling.cliffs.cliffs import CliffReport, TestedToken as ConfirmedToken, TraceReport
from resampling.study.cliff_files import (
    MOST_TRACES,
    alternatives_table,
    cliff_detail,
    cliffs_page,
    potential_figure,
    trace_fold,
)
from resampling.study.cliff_study import Alternative, CliffStudy
from resampling.study.delete_keep import DeleteKeep, TokenCut
from resampling.trace_rollouts import trace_of

TURNED = chr(0x202E)  # turns the direction of writing
WORDS = {
    1: "go",
    2: " left",
    3: "<script>alert(1)</script>",
    4: "\x1b[31mred",
    5: "prompt",
    6: f"{TURNED}evil",
}


def run(name: str = "run", observation: str = "<img src=x onerror=alert(1)>") -> Trajectory:
    steps = (
        Step(role="user", text="prompt", token_ids=(5,), sampled=(False,)),
        Step(
            role="assistant",
            text="go left",
            kinds=("history",),
            token_ids=(1, 2),
            sampled=(True, True),
            logprobs=(-0.1, -1.2),
        ),
        Step(role="tool", text=observation, token_ids=(5, 5), sampled=(False, False)),
        Step(
            role="assistant",
            text="evil",
            kinds=("edit",),
            token_ids=(3, 4, 6),
            sampled=(True, True, True),
            logprobs=(-0.7, -0.01, -0.1),
        ),
    )
    return Trajectory(
        id=name,
        task="<b>task</b>",
        policy="p",
        environment="e",
        seed=0,
        steps=steps,
        outcome=0.0,
        end="terminated",
    )


CLIFF = ConfirmedToken(
    trace="run",
    token=2,
    step=3,
    token_id=3,
    probability=0.5,
    drop=Estimate(estimate=0.4, low=0.3, high=0.5),
    contrast=Estimate(estimate=0.8, low=0.6, high=1.0),
    e_value=120.0,
    posterior=1.0,
    kind="uncertain",
    pairs=9,
    missing=0,
)
CUTS = DeleteKeep(
    trace="run",
    task="task",
    kind="uncertain",
    cliff=TokenCut(token=2, delete={1: 0.51}, keep={1: 0.1}, missing=0),
    control=TokenCut(token=1, delete={1: 0.5}, keep={1: 0.52}, missing=0),
)
CHOICES = (
    Alternative(token_id=3, probability=0.5, potential=Estimate(estimate=0.1, low=0.05, high=0.2)),
    Alternative(token_id=4, probability=0.3, potential=None),
)
DETAILS = {2: cliff_detail(CLIFF, CHOICES, CUTS, WORDS.__getitem__)}


def report(name: str = "run", potentials=(0.5, 0.52, 0.5, 0.1, 0.1, 0.1)) -> TraceReport:
    values = np.array(potentials)
    return TraceReport(
        trace=name,
        searched=5,
        missed=0.0,
        potentials=values,
        low=values - 0.05,
        high=values + 0.05,
    )


def fold(trajectory: Trajectory, potentials=(0.5, 0.52, 0.5, 0.1, 0.1, 0.1), details=None) -> Fold:
    return trace_fold(
        trajectory,
        trace_of(trajectory),
        report("run", potentials),
        details or {},
        WORDS.__getitem__,
        frozenset({"history"}),
        "trace-0",
    )


def drawn(*folds: Fold) -> str:
    section = Section(title="Traces", blocks=folds)
    return draw_page(Page(eyebrow="", title="Title", sections=(section,)))


def study_page(*names: str) -> str:
    runs = {name: run(name) for name in names}
    opened = SimpleNamespace(
        run=runs.__getitem__,
        traces=[trace_of(one) for one in runs.values()],
        token_text=WORDS.__getitem__,
        shortcut_kinds=lambda: frozenset({"history"}),
    )
    study = CliffStudy(
        report=CliffReport(
            cliffs=(CLIFF,),
            rejected=(),
            traces=tuple(report(name) for name in names),
            rollouts=9,
            tokens=90,
            missing=0,
            exhausted=False,
        ),
        alternatives=(CHOICES,),
        causation=(CUTS,),
        pairs=(),
        provenance=Provenance(
            instrument="cliffs", config={"rises": False, "delta": 0.3, "delta0": 0.1, "fdr": 0.1}
        ),
    )
    return draw_page(cliffs_page(opened, study, "forensics resample LOGS --at run:2"))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_words_stand_with_their_step_and_the_potential_after_them() -> None:
    figure, *steps = fold(run(), details=DETAILS).blocks
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert [(steps[1].text[s.start : s.end], s.label, s.value) for s in steps[1].spans] == [
        ("go", "token 0, success after it 52.0 %", 0.52),
        (" left", "token 1, success after it 50.0 %", 0.5),
    ]
    assert [bool(span.detail) for span in steps[3].spans] == [True, False, False]
    assert [step.marks for step in steps] == [(), ("shortcut",), (), ()]
    assert steps[2].text and not steps[2].spans
    assert figure == potential_figure(report())
    assert figure.series[0].y == (0.5, 0.52, 0.5, 0.1, 0.1, 0.1)


def test_nothing_that_a_model_wrote_becomes_markup_or_a_control_code() -> None:
    page = drawn(fold(run(), details=DETAILS))
    tags = Tags()
    tags.feed(page)
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "img", "i", "iframe", "link"}
    assert not any(
        key.startswith("on") or key in ("style", "src") for _, found in tags.seen for key in found
    )
    assert "\x1b" not in page and TURNED not in page
    assert "&lt;script&gt;" in page and r"\x1b" in page and r"\u202e" in page
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/\S+", "", page)


def test_the_page_tells_the_cliff_its_control_and_its_alternatives() -> None:
    page = study_page("run")
    for said in (
        "−40.0 points",
        "30.0 to 50.0",
        "+80.0 points",
        "120",
        "+41.0 points",
        "−2.0 points",
        "not measured",
        "forensics resample LOGS --at run:2",
        "uncertain",
        "shortcut",
    ):
        assert said in page, said
    assert page.count('<details class="stretch">') == 1


@pytest.mark.slow
def test_traces_with_cliffs_come_first_and_a_long_log_is_bounded() -> None:
    page = study_page(*(f"plain-{i}" for i in range(MOST_TRACES + 5)), "run")
    assert page.count('class="fold"') == MOST_TRACES
    assert page.index("trajectory run") < page.index("trajectory plain-0")
    assert "6 more traces" in page


def test_a_flood_of_text_is_cut_and_told() -> None:
    page = drawn(fold(run(observation="x" * (LONGEST + 77))))
    assert "77 more characters" in page and "x" * (LONGEST + 1) not in page


def test_choices_come_by_probability_and_tell_the_drawn_one() -> None:
    rows = [
        Alternative(token_id=i, probability=p, potential=Estimate(estimate=0.5, low=0.4, high=0.6))
        for i, p in ((1, 0.2), (2, 0.7), (3, 0.1))
    ]
    found = alternatives_table(rows, 3, WORDS.__getitem__).rows
    assert [text for text, *_ in found] == [" left", "go", f"{WORDS[3]} (drawn)"]


def test_a_potential_that_is_not_known_is_no_bar() -> None:
    figure, *steps = fold(run(), potentials=[np.nan] * 6).blocks
    assert {*figure.series[0].y, *figure.series[0].low} == {None}
    assert not any(step.spans for step in steps)


@pytest.mark.parametrize(("potential", "level"), [(0.0, 0), (1.0, 20), (0.5, 10), (0.49, 10)])
def test_the_bar_is_the_potential(potential: float, level: int) -> None:
    _, *steps = fold(run(), potentials=[potential] * 6).blocks
    assert {bar_level(span.value) for step in steps for span in step.spans} == {level}
    assert LEVELS == 20
