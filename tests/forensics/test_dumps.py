"""Dumps of other trainers as training records: groups, rewards and advantages are those
that were written, and what a dump lacks is missing, never 0.

verl's rows are as its `_write_generations` writes them (tried with that function itself);
TRL's files are those of a real run in `tests/training/test_trl_dump.py`.
"""

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forensics.case import Case
from forensics.errors import UserError
from forensics.instruments import run_instrument
from forensics.layers.signal import signal
from forensics.readers import DumpedRecord, open_record, read_logs
from forensics.readers.trl import are_plain, group_size
from forensics.readers.verl import place_of
from forensics.records import Evidence, TrainingRow, Trajectory, Undefined

SAMPLES = 4


def verl(folder: Path, steps: int = 6, groups: int = 6, uid: bool = True) -> Path:
    """In the second half every third group is solved by all of its samples."""
    folder.mkdir(parents=True)
    generator = random.Random(0)
    for step in range(1, steps + 1):
        rows = []
        for group in range(groups):
            solved = step > steps // 2 and group % 3 == 0
            for sample in range(SAMPLES):
                won = float(solved or sample % 2)
                row = {
                    "input": f"user\nWhat is {group} + {step}?\nassistant\n",
                    "output": str(group + step + 1 - int(won)),
                    "gts": str(group + step),
                    "score": won,
                    "step": step,
                }
                key = f"{group:04x}_{step}"
                rows.append(row | ({"uid": f"{key}_{sample}_0"} if uid else {"acc": won}))
        if not uid:
            generator.shuffle(rows)  # as balance_batch does
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def groups_of(rows: Sequence[TrainingRow]) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for row in sorted(rows, key=lambda row: (row.group, row.sample)):
        found.setdefault(row.task, []).append(row.reward)
    return found


def answers(folder: Path) -> dict[str, Evidence | Undefined]:
    case = Case(folder=folder / "case", training=folder)
    return {answer.question: answer for answer in run_instrument(signal, case)}


@pytest.mark.parametrize("uid", [True, False])
def test_groups_of_verl_are_those_of_its_batch(tmp_path: Path, uid: bool) -> None:
    record = open_record(verl(tmp_path / "verl", uid=uid))
    assert record.steps() == (1, 2, 3, 4, 5, 6)
    rows = list(record.rows(6))
    assert len(rows) == 24 and len({row.group for row in rows}) == 6
    assert sorted(map(sum, groups_of(rows).values())) == [2, 2, 2, 2, 4, 4]
    assert all(
        sorted(row.sample for row in rows if row.group == g) == [0, 1, 2, 3]
        for g in {row.group for row in rows}
    )


def test_signal_reads_a_verl_dump_and_invents_nothing(tmp_path: Path) -> None:
    found = answers(verl(tmp_path / "verl"))
    dead = found["signal.dead_share"]
    assert isinstance(dead, Evidence) and dead.estimate == pytest.approx(1 / 3)
    assert isinstance(found["signal.success"], Evidence)
    for missing in ("truncated", "turns", "kept", "length", "logprob", "entropy", "kl_to_start"):
        answer = found[f"signal.{missing}"]
        assert isinstance(answer, Undefined) and "a verl dump does not hold it" in answer.reason


def test_the_last_output_of_a_session_is_its_run(tmp_path: Path) -> None:
    rows = [
        {"input": "q", "output": str(n), "gts": "1", "score": n / 4, "step": 3, "uid": f"a_b_0_{n}"}
        for n in (0, 2, 1)
    ]
    (tmp_path / "3.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,) = open_record(tmp_path).rows(3)
    assert row.group == "3-a_b" and row.reward == 0.5
    assert place_of({"uid": "x"}) == ("x", None, 0)


def test_two_groups_of_one_prompt_stay_two(tmp_path: Path) -> None:
    """By `uid`; without it they are one of double size, as the page says."""
    for uid, groups in ((True, 2), (False, 1)):
        folder = tmp_path / str(uid)
        folder.mkdir()
        rows = [
            {"input": "q", "output": "1", "gts": "1", "score": 1.0, "step": 1}
            | ({"uid": f"{group}_{sample}_0"} if uid else {})
            for group in "ab"
            for sample in range(SAMPLES)
        ]
        (folder / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert len({row.group for row in open_record(folder).rows(1)}) == groups


def test_a_prompt_is_one_task_at_every_step_whatever_its_uid(tmp_path: Path) -> None:
    """A `uid` is drawn anew at every step; a scan compares the steps of a task."""
    for step in (1, 2):
        rows = [
            {"input": "q", "output": "1", "gts": "1", "score": 1.0, "step": step}
            | {"uid": f"drawn{step}_{sample}_0"}
            for sample in range(SAMPLES)
        ]
        (tmp_path / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = [run for run in read_logs(tmp_path) if isinstance(run, Trajectory)]
    assert len({run.task for run in runs}) == 1
    assert sorted((run.policy, run.sample) for run in runs) == [
        (f"step {step}", sample) for step in (1, 2) for sample in range(SAMPLES)
    ]


def test_a_long_dump_says_how_far_it_is(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    case = Case(
        folder=tmp_path / "case",
        training=verl(tmp_path / "verl"),
        progress=lambda what, done, of: heard.append((what, done, of)),
    )
    list(run_instrument(signal, case))
    assert ("hashing the verl dump", 6, 6) in heard and ("reading the verl dump", 3, 6) in heard


def test_a_record_is_its_content_wherever_it_lies(tmp_path: Path) -> None:
    first, second = (open_record(verl(tmp_path / name)) for name in ("a", "b"))
    assert first.key == second.key
    lines = (tmp_path / "b" / "2.jsonl").read_text().replace("1.0", "0.0", 1)
    (tmp_path / "b" / "2.jsonl").write_text(lines)
    assert open_record(tmp_path / "b").key != first.key


def test_a_cut_line_is_told_once_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = verl(tmp_path / "verl")
    text = (folder / "4.jsonl").read_text()
    (folder / "4.jsonl").write_text(text[:-20])
    (folder / "5.jsonl").write_text('[1]\n{"input": 3, "output": "x", "uid": "a_0_0"}\n')
    record = open_record(folder)
    with caplog.at_level(logging.WARNING, "forensics"):
        assert len(list(record.rows(4))) == 23 and len(list(record.rows(4))) == 23
    assert len(caplog.messages) == 1 and "line 24 of 4.jsonl is left out" in caplog.text
    assert list(record.rows(5)) == [] and len(caplog.messages) == 3
    (tmp_path / "completions").mkdir()
    completions(tmp_path, 1)
    (tmp_path / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 broken")
    assert [len(list(open_record(tmp_path).rows(step))) for step in (1, 2)] == [6, 0]


def test_lines_that_are_no_rows_are_left_out(tmp_path: Path) -> None:
    folder = verl(tmp_path / "verl")
    row = json.loads((folder / "4.jsonl").read_text().splitlines()[0])
    far = json.dumps(row | {"uid": "a_99999999999999999999_0"})
    with (folder / "4.jsonl").open("a") as file:
        file.write(f'[1]\n5\nnull\n"x"\n{far}\n')
    record = open_record(folder)
    assert len(list(record.rows(4))) == 25
    assert sum(batch.num_rows for batch in record.batches(4)) == 25


def test_what_is_no_dump_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "3.jsonl").write_text('{"answer": 1}\n')
    with pytest.raises(UserError, match=r"neither ours .* nor a dump of verl .*TRL .* prime-rl"):
        open_record(tmp_path)


def completions(folder: Path, step: int, groups: int = 3, **columns: Sequence[Any]) -> None:
    """A file as TRL writes one, of `groups` groups of two."""
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    count = groups * 2
    rewards = [float(n % 2) for n in range(count)]
    table = {
        "step": [step] * count,
        "prompt": [f"What is {n // 2} + {step}?" for n in range(count)],
        "completion": [str(n + step) for n in range(count)],
        "right": rewards,
        "short": [0.5] * count,
        "advantage": [0.7 if reward else -0.7 for reward in rewards],
    } | columns
    pq.write_table(pa.table(table), folder / "completions" / f"completions_{step:05d}.parquet")


def test_trl_files_are_steps_unless_they_repeat_the_one_before(tmp_path: Path) -> None:
    completions(tmp_path, 1)
    again = ["What is 0 + 1?", "What is 0 + 1?"] * 3
    completions(tmp_path, 2, prompt=again, completion=["1"] * 6)
    completions(tmp_path, 3, prompt=again, completion=["1"] * 6)
    record = open_record(tmp_path)
    assert record.steps() == (1, 2)
    rows = list(record.rows(1))
    assert [row.group for row in rows] == [f"1-{n // 2}" for n in range(6)]
    assert [row.reward for row in rows] == [0.5, 1.5] * 3
    assert rows[0].advantage == -0.7 and rows[0].rewards == {"right": 0.0, "short": 0.5}
    assert open_record(tmp_path / "completions").key == record.key


def test_rewards_that_were_weighted_have_no_total(tmp_path: Path) -> None:
    """Rewards that vary both: the advantages tell whether the plain sum was taken."""
    both = [{"a": a, "b": b} for a, b in ((1.0, 0.0), (0.0, 0.5), (0.0, 0.0), (1.0, 1.0))]
    for weight, plain in ((1.0, True), (0.2, False)):
        totals = [one["a"] + weight * one["b"] for one in both]
        centred = [1.3 * (total - sum(totals) / 4) for total in totals]
        assert are_plain(both, centred, 4) is plain
    assert not are_plain(both, [None] * 4, 4) and not are_plain(both, [0.0] * 4, 4)
    assert are_plain([{"a": 1.0}] * 2, [None] * 2, 2)
    assert group_size("aaaabbbbcccccccc") == 4 and group_size([]) == 1
    completions(tmp_path, 1)
    completions(tmp_path, 2, short=[0.5, 0.0] * 3, advantage=[-0.7, 0.7] * 3)
    assert [row.reward for row in open_record(tmp_path).rows(1)] == [0.5, 1.5] * 3
    missing = {
        "right": [0.0, 1.0] * 2 + [0.0, float("nan")],
        "advantage": [-0.7, 0.7] * 2 + [0.0] * 2,
    }
    completions(tmp_path, 3, **missing)
    assert [row.reward for row in open_record(tmp_path).rows(3)][4:] == [0.5, 0.5]
    completions(tmp_path, 4, short=[3.0, 0.0] * 3)
    assert {row.reward for row in open_record(tmp_path).rows(1)} == {None}


def test_a_completion_that_no_reward_scored_takes_no_total_from_the_others(tmp_path: Path) -> None:
    """As TRL 1.16 computes it: it is not in the mean, and its advantage is 0."""
    scored: list[float | None] = [1.0, 0.0, None, 1.0]
    rewards, third = [{"a": x} for x in scored], 1.7 / 3
    assert are_plain(rewards, [third, -2 * third, 0.0, third], 4)
    assert not are_plain(rewards, [-third, 2 * third, 0.0, -third], 4), "a negative weight"
    assert not are_plain(rewards, [0.5, -0.5, -0.5, 0.5], 4), "an older one, which took it for 0"
    assert are_plain([{"a": None}] * 2, [0.0] * 2, 2)
    right, advantage = [0.0, 1.0, None, None, 1.0, 1.0], [-0.7, 0.7] + [0.0] * 4
    completions(
        tmp_path, 1, right=right, short=[0.0, 0.0, None, None, 0.0, 0.0], advantage=advantage
    )
    found = [row.reward for row in open_record(tmp_path).rows(1)]
    assert found == [0.0, 1.0, None, None, 1.0, 1.0]


def test_our_own_record_comes_first(tmp_path: Path) -> None:
    from tests.forensics.planted_run import HEALTHY, HURT, write_run

    completions(tmp_path, 1)
    write_run(tmp_path / "forensics", HEALTHY, HURT, steps=2, groups=2)
    assert not isinstance(open_record(tmp_path), DumpedRecord)
