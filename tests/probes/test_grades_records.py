"""Step rewards as a record, foreign logs, and the command's options."""

from pathlib import Path
from typing import Any

import pytest

from forensics.cli.main import run
from forensics.errors import UserError
from forensics.records.train_rows import (
    StepRewards,
    drawn_key,
    read_step_rewards,
    write_step_rewards,
)
from probes.grades.step_grades import grade, step_rewards
from tests.probes.scored_runs import scored, trajectory

ONE = scored([[-1.0, -1.0], [], [-3.0]], [[-1.5, -2.0], [], [-1.0]])


def record(**changes: Any) -> StepRewards:
    made = step_rewards(grade(ONE), ONE.trajectory, policy="a", reference="b", beta=2.0)
    return made.model_copy(update=changes)


def test_a_steps_reward_is_beta_times_the_sum_of_its_log_ratios() -> None:
    # (.5 + 1) * 2 = 3; nothing drawn; -2 * 2 = -4
    made = record()
    assert made.steps == (1, 3, 5) and made.rewards == (3.0, None, -4.0) and made.mean == -0.5
    assert made.of_tokens(ONE.trajectory) == (3.0, 3.0, -4.0)
    assert made.provenance.config["beta"] == 2.0 and made.provenance.inputs == {
        "policy": "a",
        "reference": "b",
    }
    assert record(rewards=(None, None, None)).mean is None


def test_rewards_are_never_given_to_another_run() -> None:
    other = trajectory([2, 1, 1])
    assert drawn_key(other) != drawn_key(ONE.trajectory) and other.id == ONE.trajectory.id
    for wrong in (other, ONE.trajectory.model_copy(update={"id": "x"})):
        with pytest.raises(UserError, match="not of this run"):
            record().of_tokens(wrong)


def test_a_record_survives_a_file_and_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step_rewards.jsonl"
    write_step_rewards(path, [record()])
    assert read_step_rewards(path) == {"run": record()}
    path.write_text(path.read_text() * 2)
    with pytest.raises(UserError, match=r"line 2 .* a second time"):
        read_step_rewards(path)
    path.write_text('{"trajectory": 3}\n')
    with pytest.raises(UserError, match="line 1"):
        read_step_rewards(path)
    with pytest.raises(UserError, match="does not exist"):
        read_step_rewards(tmp_path / "none")


OPTIONS = {
    "--env": ("mini", "environment", "mini"),
    "--env-option": ("a=b", "options", {"a": "b"}),
    "--without": ("leak", "without", ("leak",)),
    "--best-of": ("3", "n", 3),
    "--beta": ("0.5", "beta", 0.5),
    "--truth": ("t.jsonl", "truth", Path("t.jsonl")),
    "--select": (None, "select", True),
    "--seed": ("7", "seed", 7),
    "--device": ("cuda", "device", "cuda"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_changes_what_it_names(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stop(one: Any, folder: Any) -> None:
        asked.append(one)
        raise UserError("enough")

    monkeypatch.setattr("probes.grades.grade_run.GradeStudy.check", stop)
    value, field, expected = OPTIONS[option]
    line = ["grade", "log", "--policy", "p", "--reference", "r", "--out", str(tmp_path / "out")]
    assert run([*line, option, *([] if value is None else [value])]) == run(line) == 2
    changed, plain = asked
    assert getattr(changed, field) == expected != getattr(plain, field)
    assert not (tmp_path / "out").exists()
    assert (plain.logs, plain.policy, plain.reference) == (Path("log"), Path("p"), Path("r"))
