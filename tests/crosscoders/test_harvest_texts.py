"""Texts from files and training records, and the parts of a stream: shuffling
loses no row, and memory stays.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from crosscoders.activations.harvest_stream import HarvestConfig, Reader, harvest
from crosscoders.activations.streams import Block, Rows, in_blocks, shuffled
from crosscoders.activations.texts import plain_text, read_texts, texts_of
from forensics.errors import UserError
from forensics.records import Step, Trajectory
from tests.tiny import tiny_tokenizer

STEPS = (
    Step(role="system", text="rules", token_ids=(), sampled=()),
    Step(
        role="user", text="go", token_ids=(5, 6, 7), sampled=(False,) * 3, channels=("git-history",)
    ),
    Step(
        role="assistant",
        text="a",
        kinds=("open", "test"),
        token_ids=(8, 9, 4),
        sampled=(True, True, False),
    ),
    Step(role="tool", text="b", token_ids=(10,), sampled=(False,)),
    Step(role="assistant", text="c", kinds=("submit",), token_ids=(3, 11), sampled=(False, True)),
    Step(role="tool", text="", token_ids=(), sampled=()),
)


def run(**changes: object) -> Trajectory:
    fields = {
        "id": "r",
        "task": "t",
        "policy": "p",
        "environment": "e",
        "seed": 0,
        "steps": STEPS,
        "outcome": 1.0,
        "end": "terminated",
    } | changes
    return Trajectory.model_validate(fields)


def test_columns_by_hand() -> None:
    """Tokens 5 6 7 | 8 9 4 | 10 | 3 11: drawn are 8, 9 and 11, so 7 decides on
    8, and the template's 3 on 11.
    """
    text = texts_of([run()], advantages={"r": [1.0, 2.0, 3.0]})[0]
    assert text.token_ids.tolist() == [5, 6, 7, 8, 9, 4, 10, 3, 11]
    assert text.step.tolist() == [1, 1, 1, 2, 2, 2, 3, 4, 4]
    assert text.token_ids[text.sampled].tolist() == [8, 9, 11]
    assert text.token_ids[text.deciding].tolist() == [7, 3]
    assert (
        text.advantage[text.sampled].tolist() == [1, 2, 3] and np.isnan(text.advantage).sum() == 6
    )
    assert [note.channels for note in text.note.steps][1] == ("git-history",)
    assert text.note.steps[2].kinds == ("open", "test")


def test_two_actions_side_by_side_are_two_decisions() -> None:
    """An action that follows another without a token between is decided at the
    other's last token.
    """
    steps = (
        STEPS[1],
        *(Step(role="assistant", text="x", token_ids=(i, i), sampled=(True, True)) for i in (1, 2)),
    )
    assert np.flatnonzero(texts_of([run(steps=steps)])[0].deciding).tolist() == [2, 4]


def test_an_action_at_the_very_start_has_no_deciding_token() -> None:
    steps = (Step(role="assistant", text="x", token_ids=(1, 2), sampled=(True, True)),)
    assert not texts_of([run(steps=steps)])[0].deciding.any()


def test_a_run_without_tokens_is_left_out_and_wrong_advantages_are_refused() -> None:
    assert texts_of([run(steps=(STEPS[0],))]) == []
    with pytest.raises(UserError, match="3 sampled tokens and 2 advantages"):
        texts_of([run()], advantages={"r": [1.0, 2.0]})


def test_plain_files_are_tokenised_and_cut(tmp_path: Path) -> None:
    tokenizer, words = (
        tiny_tokenizer(),
        ["open 1 history test submit", "What is the capital of France?"],
    )
    lines, text = tmp_path / "texts.jsonl", tmp_path / "texts.txt"
    lines.write_text("".join(json.dumps({"text": w}) + "\n" for w in words) + "\n")
    text.write_text("\n\n".join(words))
    for path in (lines, text):
        pieces = read_texts(path, tokenizer, length=4)
        assert max(len(piece) for piece in pieces) == 4
        tasks = list(dict.fromkeys(piece.note.task for piece in pieces))
        joined = [
            "".join(tokenizer.decode(p.token_ids.tolist()) for p in pieces if p.note.task == t)
            for t in tasks
        ]
        assert joined == words
        assert len({piece.note.id for piece in pieces}) == len(pieces)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "fine"}\n{"words": "no"}\n', 'line 2 is not an object with a text under "text"'),
        ('{"text": 3}\n', "line 1 is not an object"),
        ("[1]\n", "line 1 is not an object"),
        ("", "holds no text"),
    ],
)
def test_a_broken_line_is_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_texts(path, tiny_tokenizer())


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_texts(tmp_path / "nothing.txt", tiny_tokenizer())


def numbered(first: int, number: int) -> Block:
    """Rows that say who they are, in the activation and in every column alike."""
    rows = Rows.blank(number)
    position = np.arange(first, first + number, dtype=np.int32)
    return Block(
        activations=torch.from_numpy(position.astype(np.float32))[:, None, None],
        rows=Rows(**vars(rows) | {"position": position, "token": position * 2}),
    )


@given(
    sizes=st.lists(st.integers(1, 20), max_size=12),
    block=st.integers(1, 15),
    pool=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_shuffling_loses_nothing_and_keeps_rows_whole(
    sizes: list[int], block: int, pool: int, seed: int
) -> None:
    chunks = [numbered(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
    blocks = list(in_blocks(chunks, block))
    assert [len(b.rows) for b in blocks[:-1]] == [block] * (len(blocks) - 1)
    assert [int(p) for b in blocks for p in b.rows.position] == list(range(sum(sizes)))
    mixed = list(shuffled(blocks, pool, np.random.default_rng(seed)))
    if not sizes:
        assert mixed == []
        return
    found = Block.join(mixed)
    assert sorted(found.rows.position.tolist()) == list(range(sum(sizes)))
    assert found.activations[:, 0, 0].tolist() == found.rows.position.tolist()
    assert (found.rows.token == 2 * found.rows.position).all()


def test_the_pool_mixes_far() -> None:
    """Rows of a pool as large as the stream come out anywhere: the rank
    correlation with the order is small.
    """
    blocks = list(in_blocks([numbered(0, 4000)], 100))
    found = Block.join(list(shuffled(blocks, 4000, np.random.default_rng(0)))).rows.position
    assert abs(np.corrcoef(found, np.arange(4000))[0, 1]) < 0.06


@pytest.fixture
def held() -> Iterator[Callable[[], int]]:
    """How many bytes all tensors and arrays that came since hold, whatever the
    process held before.
    """
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    yield (
        lambda: (
            tracemalloc.get_traced_memory()[0]
            + sum(
                {
                    kept.data_ptr(): kept.nbytes()
                    for kept in map(torch.Tensor.untyped_storage, _new_tensors())
                }.values()
            )
        )
    )
    tracemalloc.stop()
    gc.unfreeze()


def _new_tensors() -> list[torch.Tensor]:
    return [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]


@pytest.mark.parametrize("seed", [None, 0])
def test_memory_does_not_grow_with_the_stream(seed: int | None, held: Callable[[], int]) -> None:
    """Of 200 MB of activations the last four fifths (160 MB) pass through, and
    not 60 MB more are held.
    """
    width = 512

    def read(ids: torch.Tensor, sites: object) -> list[torch.Tensor]:
        return [ids[..., None].float().expand(-1, -1, width).clone()]

    reader = Reader(
        identity="none",
        read=read,
        vocabulary={},
        tokens=99,
        positions=None,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    texts = [plain_text([i % 99] * 100, f"t{i}") for i in range(500)]
    stream = harvest(
        [reader, reader], texts, "any", HarvestConfig(batch=1000, window=2, block=500, pool=4000)
    )
    found = [held() for _ in stream.blocks(seed)]
    assert len(found) == 100 and max(found) > 500 * 2 * width * 4  # a block at least
    assert max(found[20:]) - max(found[:20]) < 60e6
