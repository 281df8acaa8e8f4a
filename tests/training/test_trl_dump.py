"""The completions that a real TRL run logs, held against the record that was attached to it."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.layers.signal import signal
from forensics.readers import open_record
from forensics.records import Evidence, TrainingRow
from forensics.records.train_tables import TrainingRecord
from tests.training.trl_runs import length, load_example, trainer_of, watched

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example()


def told(rows: list[TrainingRow], *more: str) -> list[list[tuple[Any, ...]]]:
    """Rewards and advantages, group by group in the order of the batch."""
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        values = (*row.rewards.values(), row.advantage, *(getattr(row, name) for name in more))
        numbers = tuple(None if value is None else round(value, 5) for value in values)
        groups.setdefault(row.group, []).append(numbers)
    return list(groups.values())


@pytest.mark.parametrize("weights", [None, [1.0, 30.0]])
def test_the_dump_has_the_groups_of_the_record(
    example: Any, tmp_path: Path, weights: list[float] | None
) -> None:
    """With weighted rewards all but the totals, which the file does not tell."""
    trainer = trainer_of(
        example,
        tmp_path,
        max_steps=3,
        reward_funcs=[lengths, digits],
        reward_weights=weights,
        log_completions=True,
        num_completions_to_print=0,
    )
    watched(example, tmp_path, audits=False, out=tmp_path / "attached").attach(trainer)
    trainer.train()
    own, dump = TrainingRecord(tmp_path / "attached"), open_record(tmp_path)
    assert dump.steps() == tuple(step + 1 for step in own.steps()) == (1, 2, 3)
    for step in own.steps():
        ours, theirs = list(own.rows(step)), list(dump.rows(step + 1))
        assert len(theirs) == 8 and {row.sample for row in theirs} == {0, 1, 2, 3}
        assert told(theirs) == told(ours)
        if weights is None:
            assert told(theirs, "reward") == told(ours, "reward")
        else:
            assert {row.reward for row in theirs} == {None}


def lengths(completions: list[Any], **_: Any) -> list[float]:
    return [value or 0.0 for value in length(completions)]


def digits(completions: list[Any], **_: Any) -> list[float]:
    return [float(sum(sign.isdigit() for sign in c[0]["content"])) for c in completions]


def signed(completions: list[Any], **_: Any) -> list[float]:
    return [1.0 if len(c[0]["content"]) % 2 else -1.0 for c in completions]


def mean(completions: list[Any], **_: Any) -> list[float]:
    return [len(c[0]["content"]) / 6 for c in completions]


@pytest.mark.parametrize(
    ("rewards", "outcome", "reading"),
    [
        ([signed], None, "1 is read as success"),
        ([signed], "signed", "1 is read as success"),
        ([lengths], None, "more than two values, so success is not told"),
        ([mean, signed], None, ""),  # of several none is the success, and no mean of them is
    ],
)
def test_record_and_dump_of_one_run_tell_the_same_success(
    rewards: list[Any], outcome: str | None, reading: str, example: Any, tmp_path: Path
) -> None:
    trainer = trainer_of(
        example,
        tmp_path,
        max_steps=3,
        reward_funcs=rewards,
        reward_weights=None,
        log_completions=True,
        num_completions_to_print=0,
    )
    attached = tmp_path / "attached"
    watched(example, tmp_path, audits=False, out=attached, outcome=outcome).attach(trainer)
    trainer.train()
    ours, theirs = (
        next(one for one in run_instrument(signal, case) if one.question == "signal.success")
        for case in (Case(folder=tmp_path, training=place) for place in (attached, tmp_path))
    )
    assert isinstance(ours, Evidence) == isinstance(theirs, Evidence) == ("read" in reading)
    for one in (ours, theirs):
        assert reading in (one.summary if isinstance(one, Evidence) else one.reason)
    if isinstance(ours, Evidence) and isinstance(theirs, Evidence):
        assert (ours.estimate, ours.diagnostics["last"]) == (
            theirs.estimate,
            theirs.diagnostics["last"],
        )
        rows = [row for step in (0, 2) for row in TrainingRecord(attached).rows(step)]
        rates = [[row.rewards["signed"] == 1 for row in rows if row.step == n] for n in (0, 2)]
        assert ours.diagnostics["first"] == pytest.approx(sum(rates[0]) / 8)
        assert ours.diagnostics["last"] == pytest.approx(sum(rates[1]) / 8)
