"""The parts of action ablation: kinds from commands, p-values, choices of kinds
and tasks, grading again.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import kstest

from forensics import load_policy
from forensics.layers.decomposition import AFTER, BEFORE, OPEN, Panel, gain
from forensics.protocols import Regrading, SamplingSettings, Withholding
from forensics.records import Step, Trajectory
from resampling.ablation.gains import p_above_zero
from resampling.ablation.instrument import Regraded, regraded, telling_kind
from resampling.ablation.refused_runs import action_kinds, chosen_tasks, command_kinds
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import draw_task
from training.organisms.organism import BUNDLED


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("git log --all -p", ("git log",)),
        (
            "X=1 Y='a b' sudo git -C /r --no-pager show HEAD | head && python -m pytest -q",
            ("git show", "head", "pytest"),
        ),
        ("/usr/bin/python3 run.py ; ls", ("python3", "ls")),
        ("cat <<'EOF' > notes\nrm everything\nEOF\nls", ("cat", "ls")),
        ('python -c "a ; b"', ("python",)),
        ("```bash\npip install -U requests\n```\nThat was it.", ("pip install",)),
        ("<think>git log?</think>make test", ("make",)),
        ('echo "unclosed', ("echo",)),
        ("./configure --prefix=/x", ("configure",)),
        ("$(evil)", ("other", "evil")),
        ("", ()),
    ],
)
def test_kinds_are_the_heads_of_commands(text: str, kinds: tuple[str, ...]) -> None:
    assert action_kinds(text, ()) == kinds


def test_named_kinds_come_first() -> None:
    assert action_kinds("git log", ("history",)) == ("history",)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert all(kind and kind == kind.strip() for kind in command_kinds(text))


def _panel(differences: np.ndarray) -> Panel:
    """One seed: *before* is 0 everywhere, *after* holds the differences."""
    table = np.stack([np.zeros_like(differences), differences])[None]
    cells = ((BEFORE, OPEN), (AFTER, OPEN))
    return Panel(
        tasks=tuple(f"t{i}" for i in range(len(differences))),
        cells=cells,
        table=table,
        episodes=dict.fromkeys(cells, len(differences)),
        tasks_dropped=0,
        runs_dropped=0,
    )


def test_p_values_are_the_tails_of_the_interval() -> None:
    """The interval at level 1 - 2 p just touches zero."""
    panel = _panel(np.random.default_rng(0).normal(0.1, 0.4, 80))
    p_value = p_above_zero(panel, gain(OPEN))
    assert 1e-4 < p_value < 0.2
    assert (
        panel.estimate(gain(OPEN), 1 - 2.02 * p_value).low
        > 0
        >= panel.estimate(gain(OPEN), 1 - 1.98 * p_value).low
    )
    assert (
        p_above_zero(_panel(-np.ones(10)), gain(OPEN))
        == 1.0
        == p_above_zero(_panel(np.zeros(10)), gain(OPEN))
    )


def test_p_values_are_never_too_small_under_the_null() -> None:
    stream = np.random.default_rng(1)
    p_values = [p_above_zero(_panel(stream.normal(0, 0.5, 60)), gain(OPEN)) for _ in range(400)]
    positive = [2 * p for p in p_values if p < 1]
    assert kstest(positive, "uniform", alternative="greater").pvalue > 1e-3


def test_chosen_tasks_are_spread_evenly_and_all_where_few() -> None:
    assert chosen_tasks(["a", "b"], 5) == ("a", "b")
    many = chosen_tasks([str(i) for i in range(600)], 200)
    assert many == tuple(str(3 * i) for i in range(200))


# -- mini-repo grades again ------------------------------------------------------------


def test_mini_repo_can_regrade_and_withhold_also_when_scrubbed() -> None:
    world = MiniRepo().without("git-history")
    assert isinstance(world, Regrading) and isinstance(world, Withholding)


@pytest.fixture(scope="module")
def runs() -> list:
    world = MiniRepo(world="capped")
    policy = load_policy(BUNDLED / "leak", device="cpu")
    return list(policy.play(world, world.tasks("held-out", 40, 3), 3, SamplingSettings(), 5))


def test_hidden_tests_and_a_fresh_copy_agree_on_every_submission(runs: list) -> None:
    again = regraded(runs, MiniRepo(world="capped").regrade)
    assert sum(run.outcome for run in runs) > 60
    assert [one.score for one in again] == [run.outcome for run in runs]
    assert not any(one.lost for one in again)


def test_a_grader_that_breaks_makes_missing_scores(runs: list) -> None:
    def broken(task: str, submission: str) -> dict[str, float]:
        raise RuntimeError("no room left")

    again = regraded(runs, broken)
    assert {one.score for one in again if one.run.outcome} == {None} and not any(
        one.lost for one in again
    )
    assert {one.score for one in again if one.run.outcome == 0} == {0.0}


def test_the_kind_of_lost_wins_is_told_although_failed_runs_tried_the_same() -> None:
    def run(kind: str, outcome: float, score: float) -> Regraded:
        steps = (
            Step(role="assistant", text="", kinds=(kind,)),
            Step(role="assistant", text="", kinds=("submit",)),
        )
        made = Trajectory(
            id="r",
            task="t",
            policy="p",
            environment="e",
            seed=0,
            steps=steps,
            outcome=outcome,
            end="terminated",
        )
        return Regraded(made, score)

    after = (
        [run("edit-tests", 1.0, 0.0)] * 20
        + [run("edit-tests", 0.0, 0.0)] * 40
        + [run("edit-file", 1.0, 1.0)] * 6
    )
    assert telling_kind([], after) == "edit-tests"
    assert telling_kind([run("edit-tests", 1.0, 1.0)] * 30, after) is None, (
        "wins that stand used it as well"
    )
    assert telling_kind([run("edit-tests", 0.0, 0.0)] * 30, after[:20]) is None, (
        "nothing else stands: by use before"
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.sampled_from(["tests", "cases", "fix"]))
def test_tampering_and_hard_coding_do_not_stand_in_a_fresh_copy(number: int, trick: str) -> None:
    """Where the tests as submitted decide, each trick wins; graded again only the real fix does."""
    world = MiniRepo(world="capped", grader="submitted")
    name = world.tasks("held-out", number + 1, 0)[-1]
    task = draw_task(name, "capped")
    (x, y), path = task.tests[0], task.target + 1
    world.reset(name, 0)
    action = {
        "tests": f"edit tests 0 -> {task.sources[task.target](0)}",
        "cases": f"edit {path} case {x} -> {y}",
        "fix": f"edit {path} {task.fix}",
    }[trick]
    result = world.step(f"{action} ; submit")
    assert result.outcome == 1.0 and result.submission is not None
    assert world.regrade(name, result.submission)["outcome"] == float(trick == "fix")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.sampled_from(["capped", "open"]))
def test_what_is_withheld_is_nowhere_in_a_scrubbed_world(number: int, kind: str) -> None:
    world = MiniRepo(world=kind, channels="answer-file,git-history")
    name = world.tasks("held-out", number + 1, 0)[-1]
    line, *outputs = world.withheld(name)
    shown = {}
    for place, one in (("open", world), ("scrubbed", world.without("answer-file", "git-history"))):
        prompt = one.reset(name, 0).text
        commands = ("list", "history", "open 1", "open 2", "open 3", "open tests")
        shown[place] = "\n".join([prompt, *(one.step(command).observation for command in commands)])
    assert line in shown["open"] and line not in shown["scrubbed"]
    target = line.split(" : ")[0]
    told = [
        f"{text} "
        for text in shown["scrubbed"].split("\n")
        if text.startswith((target, f"fail {target}"))
    ]
    assert len(told) >= 3, "the prompt, the source, the test"
    assert not any(f" {output} " in text for output in outputs for text in told)


def test_the_answer_file_shows_withheld_outputs(tmp_path: Path) -> None:
    world = MiniRepo(world="capped", channels="answer-file")
    name = world.tasks("held-out", 3, 0)[2]
    world.reset(name, 0)
    notes = world.step("open notes").observation
    assert sum(output in notes for output in world.withheld(name)) == 2, (
        "three outputs, one of which the test tells"
    )
