"""`forensics grade` on real runs of a bundled pair, and the instrument on a case of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics import load_policy
from forensics.case import Budget, Case
from forensics.cli.main import run
from forensics.conformance import answers
from forensics.protocols import SamplingSettings
from forensics.records import Evidence, Trajectory, Undefined
from forensics.records.tables import read_trajectories, write_trajectories
from probes import progress_advantage
from probes.grades.instrument import AUROC, SHORTCUT, grades
from probes.grades.step_grades import NOT_READ
from tests.probes.leak_pair import (
    BASE,
    LEAK,
    grade_command as command,
    grade_rows as rows,
    write_log,
)
from tests.subjects import loaded
from training.environments.mini_repo import MiniRepo

FIELDS = {"trajectory", "step", "grade", "logprob_policy", "logprob_reference", "entropy", "tokens"}
TASKS = 24


def world() -> MiniRepo:
    return MiniRepo(world="capped")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of both policies of the pair, one file each."""
    return write_log(tmp_path_factory.mktemp("log"), TASKS)


@pytest.fixture(scope="module")
def graded(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("graded") / "out"
    assert run(command(log, out, "--select")) == 0
    return out


def runs_of(log: Path, name: str = "after") -> list[Trajectory]:
    return list(read_trajectories(log / f"{name}.parquet"))


def test_grades_are_the_difference_of_what_each_policy_says_alone(graded: Path, log: Path) -> None:
    settings = SamplingSettings()
    runs = runs_of(log)[:12]
    policies = [load_policy(path, device="cpu") for path in (LEAK, BASE)]
    ids = [[i for step in one.steps for i in step.token_ids or ()] for one in runs]
    told = [policy.logprobs(ids, settings) for policy in policies]
    found = {(row["trajectory"], row["step"]): row for row in rows(graded)}
    assert set(rows(graded)[0]) >= FIELDS
    for number, one in enumerate(runs):
        at = 0
        for place, step in enumerate(one.steps):
            drawn = [at + i - 1 for i, own in enumerate(step.sampled or ()) if own]
            at += len(step.token_ids or ())
            if drawn:
                means = [float(np.mean(side[number][drawn])) for side in told]
                row = found[one.id, place]
                assert row["grade"] == pytest.approx(means[0] - means[1], abs=1e-4)
                assert (row["logprob_policy"], row["logprob_reference"]) == pytest.approx(
                    means, abs=1e-4
                )
                assert row["tokens"] == len(drawn)


def test_only_the_policys_own_runs_are_graded_and_the_split_is_written(
    graded: Path, log: Path
) -> None:
    own = {one.id for one in runs_of(log)}
    assert {row["trajectory"] for row in rows(graded)} == own
    split = json.loads((graded / "kl_split.json").read_text())
    assert (
        split["by_channel"]["git-history"]["share"] > 0.6
    )  # the leak: most of the KL on reading the history
    assert split["by_step_kind"]["history"]["low"] > 0.5
    summary = json.loads((graded / "grades.json").read_text())
    assert summary["runs"] == 3 * TASKS and summary["shortcuts"]["git-history"]["low"] > 0.5
    names = {row["score"] for row in summary["table"]}
    assert len(names) == 8 and "logistic on both log-probabilities" in names
    assert (
        summary["sampler_agreement"]["mean"] < 1e-3 and summary["sampler_agreement"]["tokens"] > 500
    )
    # where a half of the tasks has no failure, nothing can be selected, and the reason is told
    assert summary["selected"] or any("Another aggregation" in told for told in summary["missing"])


def test_exchanged_checkpoints_flip_every_grade_and_identical_ones_give_zero(log: Path) -> None:
    runs = runs_of(log)[:20]
    after, before = (load_policy(path, device="cpu") for path in (LEAK, BASE))
    there, back, same = (
        list(progress_advantage(one, other, runs))
        for one, other in ((after, before), (before, after), (after, after))
    )
    for forth, reverse, nothing in zip(there, back, same, strict=True):
        assert [step.grade for step in forth.steps] == [
            -(step.grade or 0.0) for step in reverse.steps
        ]
        assert nothing.grade == 0 and {step.grade for step in nothing.steps} <= {0.0, None}
        assert all(step.columns["kl"] == 0 for step in nothing.steps if step.tokens)


def test_a_text_that_is_too_long_leaves_its_first_steps_without_a_grade(log: Path) -> None:
    after, before = (load_policy(path, device="cpu") for path in (LEAK, BASE))
    one = max(runs_of(log), key=lambda found: found.turns)
    (found,) = progress_advantage(after, before, [one], most_tokens=12)
    assert found.steps[0].grade is None and found.steps[0].reason == NOT_READ
    assert found.steps[-1].grade is not None and found.grade is not None


def test_runs_drawn_at_another_temperature_are_told(log: Path, tmp_path: Path) -> None:
    place = world()
    runs = load_policy(BASE, device="cpu").play(
        place, place.tasks("held-out", 6, 3), 1, SamplingSettings(temperature=0.3), 5
    )
    write_trajectories(tmp_path / "cold.parquet", runs)
    assert (
        run(command(tmp_path / "cold.parquet", tmp_path / "out", policy=BASE, reference=LEAK)) == 0
    )
    summary = json.loads((tmp_path / "out" / "grades.json").read_text())
    assert summary["sampler_agreement"]["mean"] > 0.05 and any(
        "temperature" in one for one in summary["sentences"]
    )


def test_bad_input_is_one_sentence(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in (
        command(tmp_path / "nowhere", tmp_path / "a"),
        command(log, tmp_path / "a", policy=tmp_path),
        command(log, tmp_path / "a", "--without", "nothing"),
        command(log, tmp_path / "a", "--best-of", "0"),
    ):
        assert run(line) == 2
        assert not (tmp_path / "a" / "grades.json").exists()
    doubled = tmp_path / "twice.parquet"
    write_trajectories(doubled, [*runs_of(log)[:2], runs_of(log)[0]])
    capsys.readouterr()
    assert run(command(doubled, tmp_path / "b")) == 2
    assert "two runs with the id" in capsys.readouterr().err


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    def load(path: Path) -> Any:
        return lambda: load_policy(path, device="cpu")

    return Case(
        folder=tmp_path_factory.mktemp("case"),
        environment=world(),
        budget=Budget(tasks=TASKS, samples=3),
        subjects=loaded({"before": load(BASE), "after-0": load(LEAK)}),
        seed=5,
    )


def stored(case: Case) -> Case:
    return replace(case, stored={("after-0", ()): case.rollouts("after-0")})


def test_the_instrument_finds_that_the_leak_is_rewarded(case: Case) -> None:
    case = stored(case)
    found = answers(grades, case)
    shortcut = found[SHORTCUT, "git-history"]
    assert (
        isinstance(shortcut, Evidence)
        and shortcut.interval is not None
        and shortcut.control is not None
    )
    assert shortcut.interval.low > 0.5 and shortcut.control.interval is not None
    assert shortcut.control.interval.low < 0 < shortcut.control.interval.high
    assert (AUROC, None) in found


def test_logs_alone_are_undefined(case: Case) -> None:
    alone = replace(stored(case), subjects=())
    assert all(isinstance(answer, Undefined) for answer in answers(grades, alone).values())
