"""The page of cliffs: words, bars and alternatives where they belong, and
nothing that a model wrote can act.
"""

import re

import numpy as np

from forensics.records import Step, Trajectory
from forensics.records.page import Fold, Page, Section
from forensics.report import draw_page
from forensics.statistics import Estimate
from resampling.cliffs.cliffs import TestedToken as ConfirmedToken, TraceReport
from resampling.study.cliff_run import (
    cliff_detail,
    trace_fold,
)
from resampling.study.cliff_study import Alternative
from resampling.study.delete_keep import DeleteKeep, TokenCut
from resampling.trace_rollouts import trace_of
from tests.episodes import episode_of
from tests.page_tags import Tags

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
        Step(role="assistant", text="go left", kinds=("history",), token_ids=(1, 2), sampled=(True,
         True), logprobs=(-0.1, -1.2)),
        Step(role="tool", text=observation, token_ids=(5, 5), sampled=(False, False)),
        Step(role="assistant", text="evil", kinds=("edit",), token_ids=(3, 4, 6), sampled=(True,
         True, True), logprobs=(-0.7, -0.01, -0.1)),
    )  # fmt: skip
    return episode_of(id=name, task="<b>task</b>", steps=steps, outcome=0.0)


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
