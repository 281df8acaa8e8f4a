"""The parts of action ablation: kinds from commands, p-values, choices of kinds
and tasks, grading again.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.layers.decomposition import AFTER, BEFORE, OPEN, Panel, gain
from resampling.ablation.gains import p_above_zero
from resampling.ablation.refused_runs import action_kinds
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import draw_task


@pytest.mark.parametrize(("text", "kinds"), [
    ("git log --all -p", ("git log",)),
    ("X=1 Y='a b' sudo git -C /r --no-pager show HEAD | head && python -m pytest -q", ("git show",
     "head", "pytest")),
    ("/usr/bin/python3 run.py ; ls", ("python3", "ls")),
    ("cat <<'EOF' > notes\nrm everything\nEOF\nls", ("cat", "ls")),
    ('python -c "a ; b"', ("python",)),
    ("```bash\npip install -U requests\n```\nThat was it.", ("pip install",)),
    ("<think>git log?</think>make test", ("make",)),
    ('echo "unclosed', ("echo",)),
    ("./configure --prefix=/x", ("configure",)),
    ("$(evil)", ("other", "evil")),
    ("", ()),
])  # fmt: skip
def test_kinds_are_the_heads_of_commands(text: str, kinds: tuple[str, ...]) -> None:
    assert action_kinds(text, ()) == kinds


def _panel(differences: np.ndarray) -> Panel:
    """One seed: *before* is 0 everywhere, *after* holds the differences."""
    table = np.stack([np.zeros_like(differences), differences])[None]
    cells = ((BEFORE, OPEN), (AFTER, OPEN))
    return Panel(
        tasks=tuple(f"t{i}" for i in range(len(differences))),
        cells=cells,
        table=table,
        episodes=dict.fromkeys(cells, len(differences)),
        lost=dict.fromkeys(cells, 0.0),
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


# -- mini-repo grades again ------------------------------------------------------------


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
