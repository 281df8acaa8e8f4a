"""The training record: it survives a save, a kill, a full disk; and it changes
nothing of what it records.
"""

import errno
import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.records import TrainingRow
from forensics.records.train_tables import TrainingRecord, marker_path
from tests.training.record_rows import RUN, row
from training import recorder as recording
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recorder import WAITING, Recorder

numbers = st.floats(-20, 20, width=32)
names = st.text(max_size=5)


@st.composite
def rows(draw: Any) -> TrainingRow:
    sampled = tuple(draw(st.lists(st.booleans(), max_size=6)))
    per_token = st.none() | st.tuples(*[numbers] * sum(sampled))
    dropped = draw(st.none() | names)
    return TrainingRow(
        step=draw(st.integers(0, 9)),
        group=draw(names),
        sample=draw(st.integers(0, 9)),
        task=draw(names),
        trajectory=draw(names),
        token_ids=tuple(range(len(sampled))),
        sampled=sampled,
        sampler_logprobs=draw(per_token),
        old_logprobs=draw(per_token),
        reference_logprobs=draw(per_token),
        entropies=draw(per_token),
        token_weights=draw(per_token),
        rewards=draw(st.dictionaries(names, st.none() | st.floats(-5, 5), max_size=3)),
        reward=draw(st.none() | st.floats(-5, 5)),
        dropped=dropped,
        advantage=None if dropped is not None else draw(st.none() | st.floats(-5, 5)),
        end=draw(st.sampled_from(["terminated", "truncated", "errored"])),
        turns=draw(st.integers(0, 9)),
        policy_step_first=0,
        policy_step_last=draw(st.integers(0, 9)),
        step_starts=(0,),
        step_roles=("assistant",),
        step_kinds=(tuple(draw(st.lists(names, max_size=2))),),
    )


@settings(max_examples=30)
@given(st.lists(rows(), max_size=4))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[TrainingRow]
) -> None:
    folder = tmp_path_factory.mktemp("record")
    with Recorder(folder, RUN) as recorder:
        recorder.submit(7, wanted, {"loss": 0.5})
    record = TrainingRecord(folder)
    assert list(record.rows(7)) == wanted
    assert (record.run, record.steps(), record.report(7)) == (RUN, (7,), {"loss": 0.5})
    record.verify(7)


def test_a_row_tells_what_the_trajectory_told() -> None:
    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    world = MiniRepo(turns="3")
    played = list(
        policy.play(world, world.tasks("train", 2, 0), 2, SamplingSettings(max_turn_tokens=6), 0)
    )
    for trajectory in played:
        made = TrainingRow.of(
            trajectory, step=4, group="4-0", rewards={"outcome": 0.0}, reward=0.0, advantage=0.5
        )
        assert made.length == trajectory.sampled_tokens == len(made.sampler_logprobs or ())
        ends = [*made.step_starts[1:], len(made.token_ids or ())]
        for step, start, end in zip(trajectory.steps, made.step_starts, ends, strict=True):
            assert (made.token_ids or ())[start:end] == step.token_ids
        assert (made.policy_step_first, made.turns, made.sample) == (
            4,
            trajectory.turns,
            trajectory.sample,
        )


def test_a_shard_without_its_marker_does_not_count(tmp_path: Path) -> None:
    with Recorder(tmp_path, RUN) as recorder:
        for step in range(3):
            recorder.submit(step, [row(step)], {})
    marker_path(tmp_path, 1).unlink()
    record = TrainingRecord(tmp_path)
    assert record.steps() == (0, 2) and record.missing() == (1,)
    with pytest.raises(UserError, match=r"step 1 is not complete.*steps 0 to 2"):
        list(record.rows(1))


def test_resuming_drops_what_will_be_written_again(tmp_path: Path) -> None:
    with Recorder(tmp_path, RUN) as recorder:
        for step in range(4):
            recorder.submit(step, [row(step)], {})
    marker_path(tmp_path, 0).unlink()
    (tmp_path / "record" / ".step-000009.parquet.1.draft").write_bytes(b"half")
    with Recorder(tmp_path, RUN) as recorder:
        recorder.resume(2)
        left = sorted(path.name for path in (tmp_path / "record").iterdir())
        assert left == ["run.json", "step-000001.json", "step-000001.parquet"]
        recorder.submit(2, [row(2)], {})
    assert TrainingRecord(tmp_path).steps() == (1, 2)


def test_a_killed_writer_leaves_only_whole_steps(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: every step that has a marker is whole,
    and there is one at least.
    """
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        recorder = Recorder(tmp_path, RUN)
        for step in itertools.count():
            recorder.submit(step, [row(step, sample=n) for n in range(50)], {})
            os.write(say, b".")
    try:
        for _ in range(WAITING + 3):
            os.read(said, 1)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(said)
        os.close(say)
    record = TrainingRecord(tmp_path)
    complete = record.steps()
    assert len(complete) >= 2 and not record.missing()
    for step in complete:
        record.verify(step)
        assert len(list(record.rows(step))) == 50


def test_a_full_disk_is_told_once_and_leaves_the_record_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    recorder = Recorder(tmp_path, RUN)
    recorder.submit(0, [row(0)], {})
    recorder.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        recorder.submit(1, [row(1)], {})
        with pytest.raises(UserError, match="no space left to write") as caught:
            recorder.flush()
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no space left"):
        recorder.submit(2, [row(2)], {})
    with pytest.raises(UserError, match="no space left"):
        recorder.close()
    record = TrainingRecord(tmp_path)
    assert record.steps() == (0,) and list(record.rows(0)) == [row(0)]
    assert not list((tmp_path / "record").glob(".*"))


def test_the_queue_is_bounded_and_writes_off_the_calling_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, writers, write = threading.Event(), set(), recording.write_shard

    def slow(*given: Any) -> None:
        gate.wait(600)
        writers.add(threading.get_ident())
        write(*given)

    monkeypatch.setattr(recording, "write_shard", slow)
    recorder = Recorder(tmp_path, RUN)
    last, done = threading.Event(), threading.Event()

    def train() -> None:
        for step in range(WAITING + 2):  # one is being written, WAITING wait, one too many
            last.set() if step == WAITING + 1 else None
            recorder.submit(step, [row(step)], {})
        done.set()

    trainer = threading.Thread(target=train)
    trainer.start()
    assert last.wait(600) and not done.wait(0.3)
    gate.set()
    trainer.join(600)
    recorder.close()
    assert done.is_set() and TrainingRecord(tmp_path).steps() == tuple(range(WAITING + 2))
    assert trainer.ident not in writers and threading.get_ident() not in writers


def rows_of_loss(step: int, loss: torch.Tensor) -> list[TrainingRow]:
    return [row(step, reward=float(loss))]


def train(folder: Path | None) -> torch.Tensor:
    """A tiny loop with dropout, so that any random number the recorder drew would show."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (the very stream that a recorder must not touch)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = Recorder(folder, RUN) if folder else None
    for step in range(8):
        inputs = torch.randn(5, 4) + float(np.random.random())  # noqa: NPY002
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if recorder:
            recorder.submit(step, rows_of_loss(step, loss.detach()), {})
    if recorder:
        recorder.close()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_weights_are_the_same_with_the_recorder_on_and_off(tmp_path: Path) -> None:
    assert torch.equal(train(None), train(tmp_path))
    assert TrainingRecord(tmp_path).steps() == tuple(range(8))
