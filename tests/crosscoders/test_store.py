"""Activations on disk: read once, whatever is done with them; what a killed run wrote
counts, what is broken is said, and memory does not grow.
"""

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch

from crosscoders import diff
from crosscoders.activations.harvest import HarvestConfig, Side, harvest
from crosscoders.activations.streams import Block, plain_text
from crosscoders.study.diff_files import Shape
from forensics import policy_from
from forensics.errors import OutsideFailure, UserError
from tests.crosscoders.test_study_diff import SITE, pair, texts  # noqa: F401
from tests.tiny import tiny_qwen3, tiny_tokenizer

SMALL = HarvestConfig(batch=20, window=2)


def tiny(seed):
    return policy_from(tiny_qwen3(seed), tiny_tokenizer(), f"tiny-{seed}")


def some_texts(number=12):
    random = np.random.default_rng(0)
    return [plain_text(random.integers(0, 300, 9 + i).tolist(), f"t{i}") for i in range(number)]


def whole(stream, seed=None):
    return Block.join(list(stream.blocks(seed))).activations


@pytest.fixture
def reads(monkeypatch):
    """The checkpoints that were run, a name for each window."""
    found, read = [], Side.read

    def counted(side, window, tick):
        found.append(side.policy.identity)
        return read(side, window, tick)

    monkeypatch.setattr(Side, "read", counted)
    return found


def shards(store):
    return sorted(store.rglob("*.safetensors"))


def test_a_checkpoint_is_read_once_whatever_it_is_compared_with(tmp_path, reads):
    given = some_texts()
    first = harvest([tiny(0), tiny(1)], given, SITE, SMALL, store=tmp_path)
    windows = len(reads) // 2
    assert windows > 2 and len(shards(tmp_path)) == len(reads)
    again = harvest([tiny(1), tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)
    assert len(reads) == 2 * windows and torch.equal(whole(again), whole(first).flip(1))
    harvest([tiny(0), tiny(2)], given, SITE, SMALL, store=tmp_path)
    assert reads[2 * windows :] == ["tiny-2"] * windows
    for other in (
        {"site": "hook_embed"},
        {"texts": given[:-1]},
        {"config": replace(SMALL, skip=1)},
    ):
        asked = {"texts": given, "site": SITE, "config": SMALL} | other
        before = len(reads)
        harvest([tiny(0)], **asked, store=tmp_path)
        assert len(reads) > before, other


def test_what_a_killed_run_wrote_counts(tmp_path, reads):
    code = f"""
import os, signal
from crosscoders.activations import harvest as room
from tests.crosscoders.test_store import SITE, SMALL, some_texts, tiny
from pathlib import Path
write, done = room.write_shard, []
def killed(path, rows):
    if len(done) == 3:
        path.with_name(".cut.draft").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(write(path, rows))
room.write_shard = killed
room.harvest([tiny(0), tiny(1)], some_texts(), SITE, SMALL, store=Path({str(tmp_path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == -signal.SIGKILL and len(shards(tmp_path)) == 3
    found = harvest([tiny(0), tiny(1)], some_texts(), SITE, SMALL, store=tmp_path)
    assert len(reads) == len(shards(tmp_path)) - 3
    assert torch.equal(whole(found), whole(harvest([tiny(0), tiny(1)], some_texts(), SITE, SMALL)))


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "another"])
def test_a_broken_shard_is_one_sentence(tmp_path, how):
    harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)
    first, second = shards(tmp_path)[:2]
    content = bytearray(first.read_bytes())
    content[-3] ^= 64
    first.write_bytes(
        {"cut": content[:-9], "flipped": content, "empty": b""}.get(how, second.read_bytes())
    )
    with pytest.raises(UserError, match=f"{first.name} are not what was written there; delete"):
        harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)
    first.unlink()
    harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as late, pytest.raises(OutsideFailure, match="no space left to"):
        late.setattr(os, "fsync", full)
        harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    room = shutil._ntuple_diskusage(10**6, 0, 10**4)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(OutsideFailure, match=r"take 0 MB and .* has 0 MB free; name a"):
        harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path)


def test_a_place_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(UserError, match="store cannot be made"):
        harvest([tiny(0)], some_texts(), SITE, SMALL, store=tmp_path / "store")


def test_without_a_store_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stream = harvest([tiny(0)], some_texts(), SITE, SMALL)
    part = stream.part(list(stream.tokenized)[:2])
    del stream
    gc.collect()
    assert len(whole(part)) == 9 + 10 and shards(tmp_path)
    del part
    gc.collect()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rows_are_kept_in_the_type_they_were_read_in(tmp_path, kind):
    policy = policy_from(tiny_qwen3(0).to(kind), tiny_tokenizer(), "half")
    stream = harvest([policy], some_texts(3), SITE, SMALL, store=tmp_path)
    assert whole(stream).dtype == kind
    (first,) = policy.activations([some_texts(3)[0].token_ids.tolist()], [SITE])
    np.testing.assert_allclose(whole(stream)[:9, 0].float(), first[SITE], rtol=2e-2, atol=1e-2)


def new_bytes():
    """What all tensors and arrays hold, maps of files aside."""
    kept = [one for one in gc.get_objects() if type(one) is torch.Tensor]
    held = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in kept}
    return tracemalloc.get_traced_memory()[0] + sum(held.values())


@pytest.mark.parametrize("seed", [None, 0])
def test_memory_does_not_grow_with_the_stream(seed, tmp_path):
    given = [plain_text([i % 99] * 100, f"t{i}") for i in range(600)]
    stream = harvest([tiny(0)], given, "hook_embed", HarvestConfig(batch=1000, window=2))
    stream = replace(stream, block=500, pool=2000)
    maps = sum(
        {
            one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
            for (one,) in stream.values
        }.values()
    )
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    found = [new_bytes() for _ in stream.blocks(seed)]
    tracemalloc.stop()
    gc.unfreeze()
    assert maps >= 60_000 * 64 * 4 and len(found) == 120
    assert max(found[24:]) - max(found[:24]) < 2e6


def test_a_second_diff_of_the_same_texts_runs_no_checkpoint_again(pair, texts, tmp_path, reads):  # noqa: F811
    asked = {"texts": texts, "tokens": 1_000, "decisions": 0, "site": SITE, "controls": False}
    asked |= {"activations": tmp_path / "store", "baselines": False}
    one = diff(*pair[:2], out=tmp_path / "one", shape=Shape(latents=24, k=3), **asked)
    assert len(reads) == 2 and not (tmp_path / "one" / "training").exists()
    other = diff(*pair[:2], out=tmp_path / "two", shape=Shape(latents=32, k=3), seed=5, **asked)
    assert (len(reads) == 2 and one["facts"] != other["facts"]) or one["asked"] != other["asked"]
