"""prime-rl's rollouts and token exports as a training record.

The rows are as verifiers 0.4 and prime-rl 0.8 write them (tried with `Episode.to_record` and
`TokenExporter` themselves), with the fields that are read.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.layers.signal import signal
from forensics.readers import open_record
from forensics.readers.prime_rl import NEVER
from forensics.records import Evidence, TrainingRow, Undefined

PROMPT, DRAWN = [1, 20, 30], [41, 57, 55]
LOGPROBS = [-0.58338, -0.90811, -0.50469]


def episode(step: int, group: int, sample: int, won: float, advantage: float) -> dict[str, Any]:
    """One run of one turn, as `Episode.to_record` gives it."""
    task = {"type": "Sum", "data": {"idx": group}, "key": f"sum-{group}"}
    nodes = [
        {"message": {"role": "user", "content": f"What is {group} + 1?"}, "sampled": False}
        | {"token_ids": PROMPT, "mask": [False] * 3, "logprobs": []},
        {"parent": 0, "message": {"role": "assistant", "content": "7"}, "sampled": True}
        | {"token_ids": [2, *DRAWN[:2], 60 + sample], "mask": [False, True, True, True]}
        | {"logprobs": [round(value, 4) for value in LOGPROBS], "advantages": [advantage] * 3},
    ]
    trace = {"id": f"{step}-{group}-{sample}", "task": task, "nodes": nodes}
    trace |= {"rewards": {"right": {"score": won, "weight": 1.0}}}
    trace |= {"agent": {"name": "agent", "trainable": True}, "stop_condition": "agent_completed"}
    judge = {**trace, "id": f"judge {trace['id']}", "agent": {"name": "judge", "trainable": False}}
    work = {"type": "train", "step": step, "policy": {"start": step - 1, "end": step}}
    return {
        "id": f"episode {trace['id']}",
        "env": {"id": "sums", "name": "sums"},
        "task": task,
        "group": {"id": f"g{group}"},
        "run": {"type": "train", "id": "run", "work": work},
        "ok": True,
        "traces": [trace, judge],
    }


def export(step: int, sample: int, advantage: float) -> dict[str, Any]:
    """One sequence, as `TokenExporter` writes it."""
    count = 4
    told = {
        "token_ids": [*PROMPT, 2, *DRAWN[:2], 60 + sample],
        "loss_mask": [False] * count + [True, True, sample != 0],
        "advantages": [0.0] * count + [advantage] * 3,
        "inference_logprobs": [0.0] * count + LOGPROBS,
        "trainer_logprobs": [-3.0] * count + [value - 0.01 for value in LOGPROBS],
        "entropy": [1.0] * count + [1.5] * 3,
        "rl_weights": [None] * 7,
    }
    return {"schema_version": 1, "step": step, "rank": 0, "env_name": "sums", **told}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Group 0 half solved and trained on, one step later than it was finished in step 2;
    group 1 solved by all, and dropped.
    """
    for step in (1, 2, 3):
        mixed = [episode(step, 0, n, float(n % 2), n % 2 - 0.5) for n in range(4)]
        solved = [episode(step, 1, n, 1.0, 0.0) for n in range(4)]
        folder = tmp_path / "rollouts" / f"step_{step}" / "train"
        late = step == 3
        write(folder / "all" / "traces.jsonl", solved if late else [*mixed, *solved])
        trained = [episode(2, 0, n, float(n % 2), n % 2 - 0.5) for n in range(4)] if late else mixed
        if step != 2:
            write(folder / "effective" / "traces.jsonl", trained)
        exports = tmp_path / "token_exports" / f"step_{step}"
        write(exports / "rank_0.jsonl", [export(step, n, n % 2 - 0.5) for n in range(4)])
        (exports / "STABLE").touch()
    return tmp_path


def by_group(rows: list[TrainingRow]) -> dict[str, list[TrainingRow]]:
    return {group: [row for row in rows if row.group == group] for group in {r.group for r in rows}}


def test_what_was_trained_on_and_what_was_dropped(run: Path) -> None:
    """A group that is trained on a step later is a row of that step, and of no other."""
    record = open_record(run)
    assert record.steps() == (1, 2, 3)
    counts = [[row.dropped for row in record.rows(step)].count(None) for step in record.steps()]
    assert counts == [4, 0, 4]
    assert [len(list(record.rows(step))) for step in record.steps()] == [8, 4, 8]
    groups = by_group(list(record.rows(3)))
    assert set(groups) == {"3-g0", "3-g1"}
    assert [row.reward for row in groups["3-g0"]] == [0.0, 1.0, 0.0, 1.0]
    assert [row.advantage for row in groups["3-g0"]] == [-0.5, 0.5, -0.5, 0.5]
    assert all(row.dropped == NEVER and row.advantage is None for row in groups["3-g1"])
    assert groups["3-g0"][0].policy_step_first == 1 and groups["3-g0"][0].policy_step_last == 2


def test_an_export_gives_both_log_probabilities(run: Path) -> None:
    """In full where the trace has four decimals, and which token was out of the loss."""
    rows = by_group(list(open_record(run).rows(1)))["1-g0"]
    assert rows[0].sampled == (False,) * 4 + (True,) * 3
    assert rows[1].sampler_logprobs == pytest.approx(LOGPROBS, abs=1e-9)
    assert np.subtract(rows[1].sampler_logprobs, rows[1].old_logprobs) == pytest.approx([0.01] * 3)
    assert rows[1].entropies == (1.5,) * 3 and rows[1].token_weights is None
    assert rows[0].token_weights == (1.0, 1.0, 0.0)


def test_rollouts_alone_have_the_samplers_numbers(run: Path) -> None:
    import shutil

    shutil.rmtree(run / "token_exports")
    row = next(open_record(run / "rollouts").rows(1))
    assert row.sampler_logprobs == tuple(round(value, 4) for value in LOGPROBS)
    assert row.old_logprobs is None and row.entropies is None and row.reference_logprobs is None


def test_exports_alone_have_no_rewards(run: Path) -> None:
    import shutil

    shutil.rmtree(run / "rollouts")
    (run / "token_exports" / "step_3" / "STABLE").unlink()
    record = open_record(run)
    assert record.steps() == (1, 2)
    rows = list(record.rows(1))
    assert len(rows) == 4 and len({row.group for row in rows}) == 1
    assert all(row.reward is None and not row.rewards and row.end is None for row in rows)
    assert rows[1].token_advantages == (0.5,) * 3 and rows[0].sampled == (*[False] * 4, 1, 1, 0)


def test_rollouts_of_older_versions_are_grouped_by_example(tmp_path: Path) -> None:
    rows = [
        {"example_id": n // 2, "task": "sums", "reward": n / 4, "advantage": 0.5}
        | {"prompt": [{"role": "user", "content": f"{n // 2}?"}]}
        | {"completion": [{"role": "assistant", "content": "7"}]}
        for n in range(4)
    ]
    write(tmp_path / "rollouts" / "step_7" / "train_rollouts.jsonl", rows)
    told = list(open_record(tmp_path).rows(7))
    names = ["7-sums-0-0", "7-sums-0-1", "7-sums-1-0", "7-sums-1-1"]
    assert [row.trajectory for row in told] == names
    assert [row.reward for row in told] == [0.0, 0.25, 0.5, 0.75]
    assert all(row.advantage == 0.5 and row.token_ids is None for row in told)


def test_the_signal_of_a_prime_rl_run(run: Path) -> None:
    case = Case(folder=run / "case", training=run)
    found = {answer.question: answer for answer in run_instrument(signal, case)}
    kept, dead = found["signal.kept"], found["signal.dead_share"]
    assert isinstance(kept, Evidence) and kept.diagnostics["last"] == 0.5
    assert isinstance(dead, Evidence) and dead.diagnostics["last"] == 0.5
    assert isinstance(found["signal.kl_to_start"], Undefined)


def test_examples_of_two_environments_are_two_groups(tmp_path: Path) -> None:
    """Each counts its own from 0."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{world} {example}"}], "task": world}
        | {"completion": [{"role": "assistant", "content": "7"}]}
        | {"example_id": example, "reward": float(sample)}
        for world in ("sums", "code")
        for example in (0, 1)
        for sample in (0, 1)
    ]
    write(tmp_path / "rollouts" / "step_1" / "train_rollouts.jsonl", rows)
    groups = by_group(list(open_record(tmp_path).rows(1)))
    assert len(groups) == 4
    assert all([row.reward for row in rows] == [0.0, 1.0] for rows in groups.values())


def test_an_export_that_lacks_numbers_is_not_filled_up(tmp_path: Path) -> None:
    whole, exports = export(1, 1, 0.5), tmp_path / "token_exports" / "step_1"
    wrong = [{"entropy": [1.0]}, {"loss_mask": [True]}, {"token_ids": ["a"] * 7}, {}]
    none = {"advantages": [None] * 7}
    unused = [{"loss_mask": [False] * 7, "token_ids": [token] * 7} for token in (1, 2)]
    write(exports / "rank_0.jsonl", [whole | more for more in [*wrong, none, *unused]])
    (exports / "STABLE").touch()
    rows = list(open_record(tmp_path).rows(1))
    assert [row.token_advantages for row in rows] == [(0.5, 0.5, 0.5), None, (), ()]
    assert [row.turns for row in rows] == [1, 1, 0, 0]
    assert len({row.group for row in rows}) == 3, "no prompt is known where nothing was in the loss"


def test_a_trace_of_verifiers_tells_three_log_probabilities(tmp_path: Path) -> None:
    """Of the sampler, the trainer and the reference, each by drawn token; what a node does not
    tell of each of them is missing, never 0.
    """
    rows = [episode(0, 0, sample, float(sample), 0.0) for sample in range(2)]
    told = {
        "trainer_logprobs": [-0.59, -0.91, -0.5],
        "reference_logprobs": [-0.7, -1.25, -0.75],
        "entropies": [1.0, 1.5, 0.5],
    }
    rows[0]["traces"][0]["nodes"][1] |= told
    rows[1]["traces"][0]["nodes"][1] |= {"reference_logprobs": [-0.7], "trainer_logprobs": None}
    write(tmp_path / "traces.jsonl", rows)
    record = open_record(tmp_path)
    assert record.run.recipe["trainer"] == "verifiers"
    first, second = record.rows(0)
    assert first.sampler_logprobs == pytest.approx(LOGPROBS, abs=1e-4)
    assert first.old_logprobs == pytest.approx(told["trainer_logprobs"])
    assert first.reference_logprobs == pytest.approx(told["reference_logprobs"])
    assert first.token_ids == (*PROMPT, 2, *DRAWN[:2], 60)
    assert second.sampler_logprobs is not None
    assert (second.reference_logprobs, second.old_logprobs) == (None, None)
    assert first.group == second.group and (first.reward, second.reward) == (0.0, 1.0)


def test_the_file_that_verifiers_wrote_itself_is_a_record(tmp_path: Path) -> None:
    """Two rollouts by its train client: the tokens, what of them was drawn, and how likely."""
    logs = Path(__file__).parents[1] / "data" / "logs" / "prime_rl.toml"
    case = tomllib.loads(logs.read_text())["case"][-1]
    assert case["name"].startswith("what verifiers 0.4.0 wrote itself")
    (tmp_path / "traces.jsonl").write_text(case["files"]["run/traces.jsonl"])
    lost, won = open_record(tmp_path).rows(0)
    assert (lost.group, lost.reward, won.reward) == (won.group, 0.0, 1.0)
    assert (lost.sample, won.sample, won.task) == (0, 1, "sum-0")
    assert won.token_ids is not None and len(won.token_ids) == 25
    assert sum(won.sampled or ()) == 2 and won.token_ids[-2:] == (18, 257)
    assert won.sampler_logprobs == pytest.approx((-0.2489, -0.6047))
