"""What rows have in common is kept once, and changes nothing but the cost."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from forensics.policies import decoder
from forensics.policies.attention import attend
from forensics.policies.kv_cache import enter_prefixes, move_rows, new_cache, shared_prefix_of
from forensics.policies.sequences import Branch, BranchedText
from forensics.policies.shared_prefix import PrefixCache, SharedPrefix, attend_with_shared_prefix
from forensics.protocols import Policy
from tests.forensics.test_trees import SETTINGS, Noting, policy


def random_prefix_cache(length: int, generator: torch.Generator) -> PrefixCache:
    keys, values = torch.randn(2, 2, length, 8, generator=generator)
    return PrefixCache(layers=((keys, values),), length=length)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=9),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_the_two_parts_meet_as_one_attention(
    owners: list[int], shared_prefix: int, own: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    prefix_caches = [random_prefix_cache(7, generator) for _ in range(3)]
    shared = SharedPrefix(shared_prefix)
    shared.enter([prefix_caches[i] for i in owners])
    query = torch.randn(len(owners), 6, 8, generator=generator)
    keys, values = torch.randn(2, len(owners), 2, own, 8, generator=generator)
    whole = [
        torch.cat(
            [
                torch.stack([prefix_caches[i].layers[0][side][:, :shared_prefix] for i in owners]),
                part,
            ],
            2,
        )
        for side, part in enumerate((keys, values))
    ]
    wanted = attend(query, whole[0], whole[1], 0.3)
    found = attend_with_shared_prefix(
        query, keys, values, list(shared.parts(0)), shared_prefix, 0.3
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def branches(text: int) -> list[Branch]:
    """Forks of one of four texts: inside an action of 9 tokens that starts at
    15, later ones for later texts.
    """
    return [
        Branch(
            kept=kept,
            start=15,
            logprobs=(-1.0,) * (kept - 15),
            drivers=tuple(Noting(1000 * text + 100 * kept + i) for i in range(12)),
        )
        for kept in range(15 + text, 22)
    ]


def grown(one: Policy, most: int) -> list[Noting]:
    one.batch_rows = most
    texts = [[*range(20 + 10 * number, 44 + 11 * number)] for number in range(4)]
    prefix_caches = one.prefix_caches(texts)
    assert prefix_caches is not None
    texts = [
        BranchedText(
            ids=ids, starts=frozenset({15}), branches=branches(number), prefix_cache=prefix_cache
        )
        for number, (ids, prefix_cache) in enumerate(zip(texts, prefix_caches, strict=True))
    ]
    for _ in one.branch(texts, SETTINGS):
        pass
    return [driver for text in texts for branch in text.branches for driver in branch.drivers]


@pytest.mark.parametrize("most", [1024, 40])
@pytest.mark.parametrize("sureness", [1.0, 20.0])
def test_runs_are_the_same_with_and_without_a_trunk(
    monkeypatch: pytest.MonkeyPatch, most: int, sureness: float
) -> None:
    """Texts that join later, rows that move, forks that wait for room."""
    found, used = [], []
    for many in (1, 10**9):
        monkeypatch.setattr(decoder, "MANY", many)
        caches: list[int] = []
        monkeypatch.setattr(
            decoder,
            "new_cache",
            lambda config, rows, shared_prefix, made=caches: (
                made.append(shared_prefix) or new_cache(config, rows, shared_prefix)
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
    prefix_caches = one.prefix_caches(texts)
    assert prefix_caches is not None
    following, logits = torch.tensor([[5, 6, 7]] * 3), []
    for shared_prefix in (12, 0):
        cache = new_cache(one.model.config, 2, shared_prefix)
        enter_prefixes(cache, prefix_caches, 14)
        move_rows(cache, [0, 1], [2, 0], 3)  # texts 1, 1, 0
        with torch.inference_mode():
            logits.append(one.model(following, past_key_values=cache, use_cache=True).logits)
        assert shared_prefix_of(cache) is None and cache.get_seq_length() == 17
    torch.testing.assert_close(logits[0], logits[1], atol=1e-5, rtol=1e-5)
    with torch.inference_mode():
        plain = one.model(torch.tensor([[*texts[0][:14], 5, 6, 7]]), use_cache=False).logits[0, -1]
    torch.testing.assert_close(logits[0][2, -1], plain, atol=1e-3, rtol=1e-3)
