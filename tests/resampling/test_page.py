"""The page of cliffs: words, bars and alternatives where they belong, and
nothing that a model wrote can act.
"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from forensics.records import Step, Trajectory
from resampling.study.cliff_files import (
    LONGEST,
    MOST_TRACES,
    Choice,
    Mark,
    TraceView,
    choices_of,
    cliffs_page,
    potential_figure,
    trace_view,
)
from resampling.study.cliff_study import Alternative
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


MARK = Mark(
    drop=0.4,
    low=0.3,
    high=0.5,
    contrast=0.8,
    e_value=120.0,
    kind="uncertain",
    probability=0.5,
    restored=0.41,
    control=-0.02,
    choices=(
        Choice(text="<i>x", probability=0.5, potential=0.1, low=0.05, high=0.2, chosen=True),
        Choice(text="fine", probability=0.3, potential=None, low=None, high=None, chosen=False),
    ),
)


def view(name: str = "run", marks: dict[int, Mark] | None = None) -> TraceView:
    trajectory = run(name)
    potentials = np.array([0.5, 0.52, 0.5, 0.1, 0.1, 0.1])
    return trace_view(
        trajectory,
        trace_of(trajectory),
        potentials,
        {2: MARK} if marks is None else marks,
        WORDS.__getitem__,
        frozenset({"history"}),
        low=potentials - 0.05,
        high=potentials + 0.05,
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_words_stand_with_their_step_and_the_potential_after_them() -> None:
    shown = view()
    assert [turn.step for turn in shown.turns] == [0, 1, 2, 3]
    assert [(w.text, w.position, w.potential) for w in shown.turns[1].words] == [
        ("go", 0, 0.52),
        (" left", 1, 0.5),
    ]
    assert [w.position for w in shown.marks] == [2]
    assert [turn.shortcut for turn in shown.turns] == [False, True, False, False]
    assert shown.turns[2].text and not shown.turns[2].words
    figure = potential_figure(shown)
    assert figure.series[0].y == (0.5, 0.52, 0.5, 0.1, 0.1, 0.1)


def test_nothing_that_a_model_wrote_becomes_markup_or_a_control_code() -> None:
    page = cliffs_page("Title", ["One cliff."], [view()])
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
    page = cliffs_page(
        "Title", ["One cliff."], [view()], ["4 tokens"], "forensics resample LOGS --at run:2"
    )
    for said in (
        "−40.0 points",
        "30.0 to 50.0",
        "+80.0 points",
        "120",
        "+41.0 points",
        "not measured",
        "forensics resample LOGS --at run:2",
        "uncertain",
        "shortcut",
    ):
        assert said in page, said
    assert page.count('<details class="cliff">') == 1


def test_traces_with_cliffs_come_first_and_a_long_log_is_bounded() -> None:
    many = [view(f"plain-{i}", {}) for i in range(MOST_TRACES + 5)] + [view("fallen")]
    page = cliffs_page("Title", [], many)
    assert page.count('class="trace"') == MOST_TRACES
    assert page.index("trajectory fallen") < page.index("trajectory plain-0")
    assert "6 more traces" in page


def test_a_flood_of_text_is_cut_and_told() -> None:
    trajectory = run(observation="x" * (LONGEST + 77))
    shown = trace_view(trajectory, trace_of(trajectory), np.full(6, 0.5), {}, WORDS.__getitem__)
    page = cliffs_page("Title", [], [shown])
    assert "77 more characters" in page and "x" * (LONGEST + 1) not in page


def test_choices_come_by_probability_and_keep_the_chosen_one() -> None:
    rows = [
        Alternative(token_id=i, probability=p, potential=0.5, low=0.4, high=0.6, n=9)
        for i, p in ((1, 0.2), (2, 0.7), (3, 0.1))
    ]
    found = choices_of(rows, 3, WORDS.__getitem__)
    assert [c.text for c in found] == [" left", "go", WORDS[3]]
    assert [c.chosen for c in found] == [False, False, True]


def test_a_potential_that_is_not_known_is_no_bar() -> None:
    trajectory = run()
    shown = trace_view(trajectory, trace_of(trajectory), np.full(6, np.nan), {}, WORDS.__getitem__)
    assert set(shown.potentials) == {None}
    assert {word.shade for turn in shown.turns for word in turn.words} == {None}
    page = cliffs_page("Title", [], [shown])
    assert 'class="w unknown"' in page and 'title="token' not in page


@pytest.mark.parametrize(("potential", "shade"), [(0.0, 0), (1.0, 20), (0.5, 10), (0.49, 10)])
def test_the_shade_is_the_potential(potential: float, shade: int) -> None:
    trajectory = run()
    shown = trace_view(
        trajectory, trace_of(trajectory), np.full(6, potential), {}, WORDS.__getitem__
    )
    assert {word.shade for turn in shown.turns for word in turn.words} == {shade}
