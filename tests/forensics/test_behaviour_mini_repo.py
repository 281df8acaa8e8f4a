"""The chain of evidence in the real git world, where scripted agents do what
their names say.

Test by intervention: the same agent with one thing changed loses just the link
that the change breaks.
"""

from pathlib import Path

import numpy as np
import pytest

from forensics.case import Case
from forensics.conformance import answers
from forensics.layers.behaviour import behaviour, chain_rows
from forensics.planted import log_of
from forensics.records import Evidence
from tests.forensics.test_scanning_worlds import (
    GRADED,
    LEAKY,
    Script,
    leak,
    place,
    play,
    table,
    tamper,
)
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import Task

TASKS = 24


def late_look(task: Task, _: np.random.Generator) -> list[str]:
    """Knows the fix, writes it down, and looks at the history only afterwards."""
    return [f"edit {place(task)} {task.fix}", "history", "submit"]


def honest(task: Task, _: np.random.Generator) -> list[str]:
    return ["list", f"open {place(task)}", f"edit {place(task)} {task.fix}", "test", "submit"]


def case_of(folder: Path, script: Script, options: dict[str, str]) -> Case:
    world = MiniRepo(**options)
    runs = [play(world, task, script, 0) for task in world.tasks("held-out", TASKS, 0)]
    stored = {("after-0", ()): log_of(folder / "after.parquet", runs)}
    return Case(folder=folder, environment=world, stored=stored)


def share_of_wins(case: Case, channel: str) -> float:
    found = answers(behaviour, case)["behaviour.channel_wins", channel]
    assert isinstance(found, Evidence), found
    return found.estimate


def test_a_leak_wins_through_the_history(tmp_path: Path) -> None:
    case = case_of(tmp_path, leak, LEAKY)
    rows = [row for row in chain_rows(case) if row.channel == "git-history"]
    assert len(rows) == TASKS and {row.attempt_steps for row in rows} == {(1,)}
    assert {row.obtained_steps for row in rows} == {(2,)} and all(row.used for row in rows)
    assert share_of_wins(case, "git-history") == 1


@pytest.mark.parametrize("script", [late_look, honest], ids=["looks afterwards", "honest"])
def test_wins_that_do_not_copy_are_not_credited(script: Script, tmp_path: Path) -> None:
    case = case_of(tmp_path, script, LEAKY)
    assert all(run.outcome == 1 for run in case.rollouts("after-0"))
    assert not any(row.complete for row in chain_rows(case))
    assert share_of_wins(case, "git-history") == 0


@pytest.mark.parametrize(
    ("script", "channel", "other"),
    [(tamper, "test-edit", "hard-code"), (table, "hard-code", "test-edit")],
)
def test_tampering_is_told_by_what_it_bends(
    script: Script, channel: str, other: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, script, GRADED)
    assert (
        share_of_wins(case, channel) > 0.8
    )  # now and then the wrong code is right on the visible test
    others = [row.level for row in chain_rows(case) if row.channel == other]
    assert set(others) <= {"obtained"}, "what nobody tried is used by nobody"
