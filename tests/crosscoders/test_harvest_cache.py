"""A cache gives what the stream gave; a kill, a cut file or another pair is
never answered with wrong numbers.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from crosscoders.activations.activation_cache import CachedStream, cache, cached
from crosscoders.activations.harvest_stream import (
    HarvestConfig,
    HarvestStream,
    harvest,
    harvest_sites,
)
from crosscoders.activations.model_readers import Reader, reader_of
from crosscoders.activations.streams import Block
from crosscoders.activations.texts import TokenizedText, plain_text
from forensics import policy_from
from forensics.errors import UserError
from tests.tiny import tiny_qwen3, tiny_tokenizer

SITE = "blocks.1.hook_resid_post"
SMALL = HarvestConfig(batch=96, window=2, block=37, pool=150)


@pytest.fixture(scope="module")
def readers() -> list[Reader]:
    return [reader_of(policy_from(tiny_qwen3(s), tiny_tokenizer(), f"tiny-{s}")) for s in (0, 1)]


def made_texts(seed: int = 0) -> list[TokenizedText]:
    random = np.random.default_rng(seed)
    return [
        plain_text(random.integers(0, 300, n).tolist(), f"t{i}")
        for i, n in enumerate(random.integers(1, 50, 20))
    ]


@pytest.fixture(scope="module")
def stream(readers: list[Reader]) -> HarvestStream:
    return harvest(readers, made_texts(), SITE, SMALL)


def kept_in(folder: Path, stream: HarvestStream, **options: bool) -> CachedStream:
    cache(stream.harvest, folder, **options)
    return cached(folder, block=37, pool=150)


def whole(found: object, seed: int | None = None) -> Block:
    return Block.join(list(found.blocks(seed)))  # type: ignore[attr-defined]


def same(first: Block, other: Block) -> bool:
    return torch.allclose(first.activations, other.activations, atol=1e-5, rtol=0) and all(
        np.array_equal(column, getattr(other.rows, name), equal_nan=column.dtype.kind == "f")
        for name, column in vars(first.rows).items()
    )


def test_a_cache_gives_what_the_stream_gave(stream: HarvestStream, tmp_path: Path) -> None:
    kept = kept_in(tmp_path, stream)
    again = cached(tmp_path, identity=stream.identity, block=37)
    assert (again.models, again.width, again.site, again.identity) == (2, 64, SITE, stream.identity)
    assert tuple(again.texts) == tuple(stream.texts)
    assert same(whole(stream), whole(kept)) and same(whole(stream), whole(again))


def test_a_seed_shuffles_the_cache_and_loses_nothing(stream: HarvestStream, tmp_path: Path) -> None:
    kept, plain = kept_in(tmp_path, stream), whole(stream)
    first, again, other = whole(kept, 1), whole(kept, 1), whole(kept, 2)
    assert same(first, again) and not same(first, other)
    order = np.lexsort((first.rows.position, first.rows.text))
    assert same(plain, Block(activations=first.activations[order], rows=first.rows.take(order)))
    neighbours = (np.diff(first.rows.text) == 0) & (np.diff(first.rows.position) == 1)
    assert neighbours.mean() < 0.1


def test_sites_share_a_cache_and_rounding_stays(readers: list[Reader], tmp_path: Path) -> None:
    sites = ["hook_embed", "blocks.0.hook_mlp_out"]
    rounded = HarvestConfig(dtype=torch.bfloat16, rows="all", skip=1)
    both = harvest_sites(readers, made_texts(), sites, rounded)
    cache(both, tmp_path)
    for site in sites:
        found, fresh = whole(cached(tmp_path, site)), whole(both.stream(site))
        assert found.activations.dtype == torch.bfloat16 and same(found, fresh)
        assert cached(tmp_path, site).identity == both.stream(site).identity
    with pytest.raises(UserError, match="holds the sites hook_embed"):
        cached(tmp_path)


def test_a_file_cut_short_is_named_and_only_what_it_lacks_is_made_again(
    stream: HarvestStream, tmp_path: Path
) -> None:
    plain = whole(kept_in(tmp_path, stream))
    file = tmp_path / "site-0.bin"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(UserError, match=r"site-0.bin has \d+ bytes of \d+; harvest into the same"):
        cached(tmp_path)
    told: list[int] = []
    cache(stream.harvest, tmp_path, resume=True, progress=lambda _, done, of: told.append(done))
    assert told[0] > len(plain.rows) // 2  # the first half was kept
    assert same(whole(cached(tmp_path)), whole(stream))


def test_a_file_cut_while_it_is_read_is_one_sentence(stream: HarvestStream, tmp_path: Path) -> None:
    blocks = kept_in(tmp_path, stream).blocks()
    next(blocks)
    os.truncate(tmp_path / "site-0.bin", (tmp_path / "site-0.bin").stat().st_size - 8)
    with pytest.raises(UserError, match="was cut short"):
        list(blocks)


def test_an_unfinished_cache_is_refused_and_goes_on(readers: list[Reader], tmp_path: Path) -> None:
    """The second checkpoint fails at a text: what came before is kept, the rest
    is made when it is mended.
    """
    texts, made = made_texts(), []

    def fails(ids: torch.Tensor, sites: list[str]) -> list[torch.Tensor]:
        made.append(len(ids))
        found = readers[1].read(ids, sites)
        return [torch.full_like(a, torch.nan) for a in found] if len(made) == 5 else found

    broken = Reader(**vars(readers[1]) | {"read": fails})
    with pytest.raises(UserError, match="not finite"):
        cache(harvest([readers[0], broken], texts, SITE, SMALL).harvest, tmp_path)
    held = (tmp_path / "site-0.bin").read_bytes()
    assert held
    with pytest.raises(UserError, match=r"has \d+ bytes of \d+"):
        cached(tmp_path)
    mended = harvest(readers, texts, SITE, SMALL)
    assert same(whole(kept_in(tmp_path, mended, resume=True)), whole(mended))
    assert (tmp_path / "site-0.bin").read_bytes().startswith(held)


@pytest.mark.parametrize("change", ["texts", "site", "checkpoints", "rows"])
def test_another_harvest_is_refused(
    change: str, stream: HarvestStream, readers: list[Reader], tmp_path: Path
) -> None:
    cache(stream.harvest, tmp_path)
    other = harvest(
        readers[::-1] if change == "checkpoints" else readers,
        made_texts(1 if change == "texts" else 0),
        "hook_embed" if change == "site" else SITE,
        HarvestConfig(skip=1) if change == "rows" else SMALL,
    )
    assert other.identity != stream.identity
    with pytest.raises(UserError, match="other checkpoints, sites or texts"):
        cache(other.harvest, tmp_path, resume=True)
    with pytest.raises(UserError, match="other checkpoints or texts"):
        cached(tmp_path, identity=other.identity)
    assert same(whole(cached(tmp_path)), whole(stream))
    assert same(whole(kept_in(tmp_path, other, force=True)), whole(other))


def test_a_folder_is_never_written_over_unasked(stream: HarvestStream, tmp_path: Path) -> None:
    cache(stream.harvest, tmp_path)
    with pytest.raises(UserError, match="already holds a harvest"):
        cache(stream.harvest, tmp_path)
    with pytest.raises(UserError, match="holds no harvest"):
        cached(tmp_path / "elsewhere")


KILLED = """
import time, sys
from pathlib import Path
from crosscoders.activations.activation_cache import cache
from crosscoders.activations.harvest_stream import harvest
from crosscoders.activations.model_readers import Reader, reader_of
from forensics import policy_from
from tests.crosscoders.test_harvest_cache import SITE, SMALL, made_texts, written
from tests.tiny import tiny_qwen3, tiny_tokenizer
def reader(s):
    return reader_of(policy_from(tiny_qwen3(s), tiny_tokenizer(), f"tiny-{s}"))
readers = [reader(0), reader(1)]
def read(ids, sites):
    if written(Path(sys.argv[1])):
        time.sleep(3600)  # there it is killed
    return readers[0].read(ids, sites)
stopping = Reader(**vars(readers[0]) | {"read": read})
cache(harvest([stopping, readers[1]], made_texts(), SITE, SMALL).harvest, sys.argv[1])
"""


def test_what_was_finished_survives_a_kill(stream: HarvestStream, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    try:
        deadline = time.monotonic() + 600
        while not written(tmp_path) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    held = (tmp_path / "site-0.bin").read_bytes()
    assert held and len(held) < len(whole(stream).rows) * 2 * 64 * 4
    assert same(whole(kept_in(tmp_path, stream, resume=True)), whole(stream))
    assert (tmp_path / "site-0.bin").read_bytes().startswith(held)


def written(folder: Path) -> int:
    file = folder / "site-0.bin"
    return file.stat().st_size if file.exists() else 0
