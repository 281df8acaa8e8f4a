"""Top tokens against sorting everything, whatever the blocks, and in their context."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from crosscoders.activations.streams import Rows, TextNote, plain_text
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.encoded_blocks import accumulate
from crosscoders.latents.table import TopTokens
from crosscoders.study.measures import token_views
from tests.crosscoders.latent_worlds import random_dictionary
from tests.crosscoders.tensor_stream import TensorStream


def texts_stream(lengths: list[int], *, seed: int, block: int, levels: int = 0) -> TensorStream:
    """Texts of these lengths; token ids count on over all texts. `levels`:
    round the values, so that there are ties.
    """
    text = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    position = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    rows = Rows(
        **{
            **vars(Rows.blank(len(text))),
            "text": text,
            "position": position,
            "token": np.arange(len(text), dtype=np.int32),
        }
    )
    values = torch.randn(len(text), 2, 5, generator=torch.Generator().manual_seed(seed))
    if levels:
        values = (values * levels).round() / levels
    return TensorStream(
        activations=values,
        rows=rows,
        texts=tuple(TextNote(id=f"x{i}", task=str(i)) for i in range(len(lengths))),
        block=block,
    )


def lists(dictionary: Dictionary, stream: TensorStream, number: int) -> TopTokens:
    tops = TopTokens(dictionary, number)
    accumulate(dictionary, stream, [tops])
    return tops


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    block=st.integers(1, 40),
    number=st.integers(1, 5),
    levels=st.sampled_from([0, 1]),
    seed=st.integers(0, 99),
)
def test_the_lists_are_those_of_sorting_everything(
    lengths: list[int], block: int, number: int, levels: int, seed: int
) -> None:
    dictionary = random_dictionary(Partition(latents=7, after_only=2), seed=3, width=5)
    stream = texts_stream(lengths, seed=seed, block=block, levels=levels)
    tops = lists(dictionary, stream, number)
    with torch.no_grad():
        values = dictionary.encode(dictionary.scaled(stream.activations)).dense(7).numpy()
    for latent in range(7):
        active = [row for row in range(len(values)) if values[row, latent] > 0]
        wanted = sorted(active, key=lambda row: (-values[row, latent], row))[:number]
        entries = tops.of(latent)
        assert [(entry.text, entry.position) for entry in entries] == [
            (stream.rows.text[row], stream.rows.position[row]) for row in wanted
        ]
        assert [entry.value for entry in entries] == pytest.approx(values[wanted, latent], rel=1e-4)


def test_context_ends_with_the_text() -> None:
    stream = texts_stream([30, 2], seed=0, block=7)
    dictionary = random_dictionary(Partition(latents=7), seed=3, width=5)
    tops = lists(dictionary, stream, number=40)
    texts = [plain_text(range(30), "x0"), plain_text(range(30, 32), "x1")]

    class Numbers:
        def decode(self, ids: list[int]) -> str:
            return str(ids[0])

    views = token_views(tops, range(7), texts, Numbers())
    seen = {(view["text"], view["position"]): view for one in views.values() for view in one}
    assert seen
    for (text, position), view in seen.items():
        start, length = (0, 30) if text == "x0" else (30, 2)
        around = range(max(0, position - 10), min(length, position + 11))
        assert view["tokens"] == [str(start + place) for place in around]
        assert view["at"] == position - around[0]
        assert view["values"][view["at"]] == view["value"] > 0
