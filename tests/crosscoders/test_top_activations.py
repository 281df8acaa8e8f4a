"""Top tokens against sorting everything, whatever the blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosscoders.activations.streams import Rows, TensorStream, TextNote
from crosscoders.dictionaries.partition import Partition
from crosscoders.latents.top_activations import top_tokens
from forensics.errors import UserError
from tests.crosscoders.latent_worlds import random_dictionary


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


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    block=st.integers(1, 40),
    number=st.integers(1, 5),
    window=st.integers(0, 4),
    levels=st.sampled_from([0, 1]),
    seed=st.integers(0, 99),
)
def test_the_lists_are_those_of_sorting_everything(
    lengths: list[int], block: int, number: int, window: int, levels: int, seed: int
) -> None:
    dictionary = random_dictionary(Partition(latents=7, after_only=2), seed=3, width=5)
    stream = texts_stream(lengths, seed=seed, block=block, levels=levels)
    found = top_tokens(dictionary, stream, number=number, window=window)
    with torch.no_grad():
        values = dictionary.encode(dictionary.scaled(stream.activations)).dense(7).numpy()
    ends = np.cumsum(lengths)
    for latent in range(7):
        active = [row for row in range(len(values)) if values[row, latent] > 0]
        wanted = sorted(active, key=lambda row: (-values[row, latent], row))[:number]
        entries = found.of(latent)
        assert [entry.token for entry in entries] == pytest.approx(wanted)
        for entry, row in zip(entries, wanted, strict=True):
            text = stream.rows.text[row]
            first, last = (ends[text] - lengths[text], ends[text])
            assert entry.text == f"x{text}"
            assert entry.position == row - first
            assert entry.value == pytest.approx(values[row, latent], rel=1e-4)
            assert entry.before == tuple(range(max(first, row - window), row))
            assert entry.after == tuple(range(row + 1, min(last, row + window + 1)))


def test_context_stops_where_a_token_is_missing() -> None:
    stream = texts_stream([6], seed=0, block=2)
    rows = stream.rows.take(np.array([0, 1, 3, 4]))  # the stream left token 2 out
    holes = TensorStream(activations=stream.activations[:4], rows=rows, texts=stream.texts)
    found = top_tokens(
        random_dictionary(Partition(latents=7), seed=3, width=5), holes, number=4, window=2
    )
    entries = [entry for latent in range(7) for entry in found.of(latent)]
    around = {entry.token: (entry.before, entry.after) for entry in entries}
    assert around[1] == ((0,), ())
    assert around[3] == ((), (4,))


def test_of_equal_values_the_first_text_wins_whatever_came_first() -> None:
    stream = texts_stream([1, 1], seed=0, block=1)
    turned = TensorStream(
        activations=stream.activations[[0, 0]],
        rows=stream.rows.take(np.array([1, 0])),
        texts=stream.texts,
        block=1,
    )
    found = top_tokens(
        random_dictionary(Partition(latents=7), seed=3, width=5), turned, number=1, window=0
    )
    entries = [entry for latent in range(7) for entry in found.of(latent)]
    assert entries
    assert {entry.text for entry in entries} == {"x0"}


def test_a_list_needs_a_place() -> None:
    with pytest.raises(UserError, match="at least 1"):
        top_tokens(
            random_dictionary(Partition(latents=7), seed=3, width=5),
            texts_stream([3], seed=0, block=2),
            number=0,
        )
