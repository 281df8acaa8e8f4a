"""Texts from runs and files, and the parts of a stream: shuffling loses no row."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from crosscoders.activations.streams import Block, Rows, in_blocks, read_texts, shuffled, texts_of
from forensics import load_policy
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.records import Step, Trajectory
from tests.tiny import tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

STEPS = (
    Step(role="system", text="rules", token_ids=(), sampled=()),
    Step(role="user", text="go", token_ids=(5, 6, 7), sampled=(False,) * 3,
     channels=("git-history",)),
    Step(role="assistant", text="a", kinds=("open", "test"), token_ids=(8, 9, 4), sampled=(True,
     True, False)),
    Step(role="tool", text="b", token_ids=(10,), sampled=(False,)),
    Step(role="assistant", text="c", kinds=("submit",), token_ids=(3, 11), sampled=(False, True)),
    Step(role="tool", text="", token_ids=(), sampled=()),
)  # fmt: skip


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


@pytest.fixture(scope="module")
def runs() -> list[Trajectory]:
    policy = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    world = MiniRepo()
    return list(policy.play(world, world.tasks("held-out", 6, 0), 2, SamplingSettings(), 0))


def test_runs_without_tokens_are_tokenised_again_and_this_is_said(runs: list[Trajectory]) -> None:
    policy = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    unknown = {"token_ids": None, "sampled": None, "logprobs": None}
    bare = [
        run.model_copy(update={"steps": tuple(s.model_copy(update=unknown) for s in run.steps)})
        for run in runs
    ]
    with pytest.raises(UserError, match="no token ids"):
        texts_of(bare)
    said: list[str] = []
    again = texts_of([*bare, runs[0]], policy=policy, say=said.append)
    assert len(said) == 1 and said[0].startswith(f"{len(bare)} runs came without token ids")
    for text, known in zip(
        again, texts_of(runs), strict=False
    ):  # this world's tokens are whole words
        assert text.token_ids.tolist() == known.token_ids[: len(text)].tolist()
        assert len(known) - len(text) <= 1  # what ended the last action
        assert (text.deciding == known.deciding[: len(text)]).all()
