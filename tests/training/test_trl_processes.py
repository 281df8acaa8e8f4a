"""The watcher beside other processes and other trainers: two processes on gloo, weights that
no process holds, rewards that are computed elsewhere, a start that cannot be played.
"""

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

from forensics.errors import UserError
from forensics.records.train_tables import TrainingRecord
from tests.training.trl_runs import load_example, trainer_of, watched
from training.live import read_reports, trl_callback
from training.live.auditor import Auditor

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAM = """
import logging
import sys
from pathlib import Path
from tests.training.trl_runs import load_example, trainer_of, watched
from training.distributed import joined
from training.live.trl_callback import GenerationLog
taken = []
take = GenerationLog.take
GenerationLog.take = lambda log, before: taken.append(take(log, before)) or taken[-1]
folder = Path(sys.argv[1])
logging.basicConfig(level=logging.WARNING)
trainer = trainer_of(load_example(), folder)
watched(load_example(), folder).attach(trainer)
trainer.args.ddp_timeout = 0  # every audit is too long
trainer.train()
assert joined().size == 2
assert joined().first or not any(taken), "rows of others on a process that writes nothing"
"""


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_under_ddp_the_first_process_has_the_rows_of_both(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, *launcher, str(program), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    record = TrainingRecord(tmp_path / "run" / "forensics")
    rows = [row for step in record.steps() for row in record.rows(step)]
    assert record.steps() == (0, 1) and len(rows) == 2 * 2 * 8
    groups = {row.group: [r.task for r in rows if r.group == row.group] for row in rows}
    assert all(len(tasks) == 4 and len(set(tasks)) == 1 for tasks in groups.values())
    assert [report.step for report in read_reports(tmp_path / "run" / "forensics")] == [1, 2]
    assert done.stderr.count("for which the other processes waited") == 1
    assert "forensics watch OUT --before BASE" in done.stderr


@pytest.mark.parametrize("how", ["FSDP", "ZeRO-3"])
def test_sharded_weights_are_recorded_and_not_audited(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(trl_callback, "sharded", lambda: how)
    trainer = trainer_of(example, tmp_path, max_steps=1)
    watched(example, tmp_path).attach(trainer)
    with pytest.raises(UserError, match=f"{how} spreads .*forensics watch OUT --before BASE"):
        trainer.train()
    trainer = trainer_of(example, tmp_path, max_steps=1)
    watched(example, tmp_path, audits=False).attach(trainer)
    trainer.train()
    record = TrainingRecord(tmp_path / "forensics")
    assert record.steps() == (0,) and record.run.start == "unknown"


def test_how_weights_are_spread_is_asked_of_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import state

    for kind, plugin, told in (
        (state.DistributedType.FSDP, None, "FSDP"),
        (state.DistributedType.DEEPSPEED, SimpleNamespace(zero_stage=3), "ZeRO-3"),
        (state.DistributedType.DEEPSPEED, SimpleNamespace(zero_stage=2), None),
        (state.DistributedType.MULTI_GPU, None, None),
    ):
        found = SimpleNamespace(distributed_type=kind, deepspeed_plugin=plugin)
        monkeypatch.setattr(state, "AcceleratorState", lambda found=found: found)
        assert trl_callback.sharded() == told


def test_an_asynchronous_trainer_is_refused_truly(example: Any, tmp_path: Path) -> None:
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    forensics = watched(example, tmp_path)
    with pytest.raises(UserError, match=r"no logits.*forensics watch OUT --before BASE") as told:
        forensics.attach(AsyncGRPOTrainer.__new__(AsyncGRPOTrainer))
    assert "\n" not in str(told.value)
    args = AsyncGRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    with pytest.raises(UserError, match="another process"):
        forensics.on_train_begin(args, SimpleNamespace(global_step=0), None)


def test_a_copy_in_another_process_watches_nothing(example: Any, tmp_path: Path) -> None:
    trainer = trainer_of(example, tmp_path)
    attached = watched(example, tmp_path)
    attached.attach(trainer)
    assert pickle.loads(pickle.dumps(attached))._trainer is None


@pytest.mark.parametrize("moment", ["begin", "audit"])
def test_a_run_outlives_an_audit_without_memory(
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
) -> None:
    import torch

    def full(*given: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Auditor, moment, full)
    trainer = trainer_of(example, tmp_path)
    watched(example, tmp_path).attach(trainer)
    with caplog.at_level(logging.WARNING, "forensics.audit"):
        trainer.train()
    assert trainer.state.global_step == 2 and read_reports(tmp_path / "forensics") == []
    assert TrainingRecord(tmp_path / "forensics").steps() == (0, 1)
    said = [text for text in caplog.messages if "no memory left" in text]
    assert len(said) == (1 if moment == "begin" else 3)  # after each step, and at the end
    assert moment == "audit" or "forensics watch OUT --before BASE" in said[0]
