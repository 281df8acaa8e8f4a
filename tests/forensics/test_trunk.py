"""What rows have in common is kept once, and changes nothing but the cost."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.policies import lockstep
from forensics.policies.attention import attend
from forensics.policies.cache import move_rows, new_cache, plant_stems, trunk_of
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.policies.rows import Fork, Tree
from forensics.policies.trunk import Stem, Trunk, attend_with_trunk
from tests.forensics.test_trees import SETTINGS, Noting, policy


def random_stem(length: int, generator: torch.Generator) -> Stem:
    keys, values = torch.randn(2, 2, length, 8, generator=generator)
    return Stem(layers=((keys, values),), length=length)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=9),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_the_two_parts_meet_as_one_attention(
    owners: list[int], trunk: int, own: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    stems = [random_stem(7, generator) for _ in range(3)]
    shared = Trunk(trunk)
    shared.plant([stems[i] for i in owners])
    query = torch.randn(len(owners), 6, 8, generator=generator)
    keys, values = torch.randn(2, len(owners), 2, own, 8, generator=generator)
    whole = [
        torch.cat([torch.stack([stems[i].layers[0][side][:, :trunk] for i in owners]), part], 2)
        for side, part in enumerate((keys, values))
    ]
    wanted = attend(query, whole[0], whole[1], 0.3)
    found = attend_with_trunk(query, keys, values, list(shared.parts(0)), trunk, 0.3)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def forks(text: int) -> list[Fork]:
    """Forks of one of four texts: inside an action of 9 tokens that starts at
    15, later ones for later texts.
    """
    return [
        Fork(
            kept=kept,
            start=15,
            logprobs=(-1.0,) * (kept - 15),
            drivers=tuple(Noting(1000 * text + 100 * kept + i) for i in range(12)),
        )
        for kept in range(15 + text, 22)
    ]


def grown(one: HuggingFacePolicy, most: int) -> list[Noting]:
    one.rows = most
    texts = [[*range(20 + 10 * number, 44 + 11 * number)] for number in range(4)]
    stems = one.stems(texts)
    assert stems is not None
    trees = [
        Tree(ids=ids, starts=frozenset({15}), forks=forks(number), stem=stem)
        for number, (ids, stem) in enumerate(zip(texts, stems, strict=True))
    ]
    for _ in one.grow(trees, SETTINGS):
        pass
    return [driver for tree in trees for fork in tree.forks for driver in fork.drivers]


@pytest.mark.parametrize("most", [1024, 40])
@pytest.mark.parametrize("sureness", [1.0, 20.0])
def test_runs_are_the_same_with_and_without_a_trunk(
    monkeypatch: pytest.MonkeyPatch, most: int, sureness: float
) -> None:
    """Texts that join later, rows that move, forks that wait for room."""
    found, used = [], []
    for many in (1, 10**9):
        monkeypatch.setattr(lockstep, "MANY", many)
        caches: list[int] = []
        monkeypatch.setattr(
            lockstep,
            "new_cache",
            lambda config, rows, trunk, made=caches: (
                made.append(trunk) or new_cache(config, rows, trunk)
            ),
        )
        found.append(grown(policy(sureness), most))
        used.append(caches[1])  # the first one is made before any text is there
    assert used == [14, 0]
    for shared, alone in zip(*found, strict=True):
        assert (shared.ids, shared.stop) == (alone.ids, alone.stop)
        assert shared.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_a_reader_that_knows_no_trunk_gets_everything() -> None:
    """The library's own forward pass on such a cache, rows moved and all."""
    one = policy()
    texts = [[*range(20, 40)], [*range(60, 80)]]
    stems = one.stems(texts)
    assert stems is not None
    following, logits = torch.tensor([[5, 6, 7]] * 3), []
    for trunk in (12, 0):
        cache = new_cache(one.model.config, 2, trunk)
        plant_stems(cache, stems, 14)
        move_rows(cache, [0, 1], [2, 0], 3)  # texts 1, 1, 0
        with torch.inference_mode():
            logits.append(one.model(following, past_key_values=cache, use_cache=True).logits)
        assert trunk_of(cache) is None and cache.get_seq_length() == 17
    torch.testing.assert_close(logits[0], logits[1], atol=1e-5, rtol=1e-5)
    with torch.inference_mode():
        plain = one.model(torch.tensor([[*texts[0][:14], 5, 6, 7]]), use_cache=False).logits[0, -1]
    torch.testing.assert_close(logits[0][2, -1], plain, atol=1e-3, rtol=1e-3)
