"""The KV cache against a plain one: lists of rows, copied whole at each step."""

import torch
from hypothesis import given, settings, strategies as st

from forensics.policies.kv_cache import FRESH_BYTES, GrowingLayer, Spare

HEADS, WIDTH = 2, 3

moves = st.tuples(st.just("move"), st.lists(st.floats(0, 0.999), min_size=1, max_size=12))
appends = st.tuples(st.just("append"), st.integers(1, 11))


@given(
    st.integers(1, 5), st.lists(st.one_of(moves, appends), max_size=25), st.sampled_from([0, 3, 40])
)
@settings(deadline=None, max_examples=60)
def test_rows_hold_what_was_put_into_them(rows: int, events: list, most: int) -> None:
    """Layers with one spare memory: appends and forks in any order, also beyond
    the rows that were foreseen. The last one holds token ids, as where a
    companion reads along.
    """
    spare, torch_stream = Spare(), torch.Generator().manual_seed(0)
    layers, types = (
        [GrowingLayer(most, spare) for _ in range(3)],
        (torch.float32, torch.float32, torch.long),
    )
    plain = [
        [torch.zeros(rows, HEADS, 0, WIDTH, dtype=kind) for _ in ("keys", "values")]
        for kind in types
    ]
    for kind, what in [("append", 1), *events]:
        if kind == "append":
            for layer, held in zip(layers, plain, strict=True):
                size = (len(held[0]), HEADS, what, WIDTH)
                new = [
                    torch.randint(1 << 20, size, generator=torch_stream).to(old.dtype)
                    for old in held
                ]
                held[:] = [torch.cat([old, added], 2) for old, added in zip(held, new, strict=True)]
                for found, wanted in zip(layer.update(*new), held, strict=True):
                    assert torch.equal(found, wanted)
        else:
            sources = torch.tensor([int(part * len(plain[0][0])) for part in what])
            for layer, held in zip(layers, plain, strict=True):
                layer.move(sources, torch.arange(len(sources)), len(sources))
                held[:] = [old[sources] for old in held]
    for layer, held in zip(layers, plain, strict=True):
        assert torch.equal(layer.keys[: layer.rows, :, : layer.length], held[0])
        assert torch.equal(layer.values[: layer.rows, :, : layer.length], held[1])


def test_a_large_buffer_has_pages_that_nobody_wrote() -> None:
    """What is freed is handed out again as it was left, so that each page of it counts."""
    size = FRESH_BYTES // torch.float32.itemsize
    for _ in range(3):
        torch.ones(size)
    like = torch.zeros(1, 1, 1, 64)
    taken = [Spare().take(like, 2, size // 256) for _ in range(2)]
    assert not any(buffer.any() for buffer in taken)
    taken[0][:] = 2.0
    assert not taken[1].any() and bool((taken[0] == 2).all())
