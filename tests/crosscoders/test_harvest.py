"""Harvested rows are the policy's own activations, each with what is known of
its token, in every order and at any batch; a pair that does not fit is refused
in one sentence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import HarvestConfig, harvest
from crosscoders.activations.streams import Block, TokenizedText, plain_text, texts_of
from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

SITES = (
    "hook_embed",
    "blocks.0.hook_attn_out",
    "blocks.1.hook_resid_pre",
    "blocks.1.hook_mlp_out",
    "blocks.1.hook_resid_post",
)
SMALL = HarvestConfig(batch=96, window=2)


def tiny(seed: int) -> Policy:
    return policy_from(tiny_qwen3(seed), tiny_tokenizer(), f"tiny-{seed}")


@pytest.fixture(scope="module")
def pair() -> list[Policy]:
    return [tiny(0), tiny(1)]


@pytest.fixture(scope="module")
def texts() -> list[TokenizedText]:
    random = np.random.default_rng(0)
    lengths = [5, 1, 40, 17, 96, 30, 2, 55, 120, 9]
    return [plain_text(random.integers(0, 300, n).tolist(), f"t{i}") for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def runs() -> list[Trajectory]:
    policy = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    world = MiniRepo()
    return list(policy.play(world, world.tasks("held-out", 6, 0), 2, SamplingSettings(), 0))


def whole(blocks: Iterator[Block]) -> Block:
    return Block.join(list(blocks))


def expected(policies: Sequence[Any], texts: Sequence[TokenizedText], site: str) -> np.ndarray:
    """`[rows, models, width]` from one text at a time."""
    found = [
        policy.activations([t.token_ids.tolist() for t in texts], [site]) for policy in policies
    ]
    return np.stack([np.concatenate([text[site] for text in model]) for model in found], 1)


@pytest.mark.parametrize("site", SITES)
def test_rows_are_the_policies_own_activations(
    site: str, pair: list[Policy], texts: list[TokenizedText]
) -> None:
    stream = harvest(pair, texts, site, SMALL)
    found = whole(stream.blocks())
    assert (stream.models, stream.width) == (2, 64)
    np.testing.assert_allclose(found.activations.numpy(), expected(pair, texts, site), atol=1e-5)
    assert found.rows.token.tolist() == [int(t) for text in texts for t in text.token_ids]
    assert found.rows.text.tolist() == [i for i, text in enumerate(texts) for _ in range(len(text))]


def test_the_pass_stops_behind_the_site(pair: list[Policy], texts: list[TokenizedText]) -> None:
    """The layer behind the site and the output head never run, and no hook is left behind."""
    ran: list[int] = []
    layers = pair[0].model.model.layers
    handles = [
        layer.register_forward_hook(lambda *_, i=i: ran.append(i)) for i, layer in enumerate(layers)
    ]
    try:
        whole(harvest([pair[0]], texts, "blocks.0.hook_resid_post", SMALL).blocks())
    finally:
        [handle.remove() for handle in handles]
    assert set(ran) <= {0}
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in pair[0].model.modules()
    )


def test_a_seed_shuffles_and_loses_nothing(pair: list[Policy], texts: list[TokenizedText]) -> None:
    stream = replace(harvest(pair, texts, SITES[-1], SMALL), block=37, pool=200)
    plain, first, again, other = (whole(stream.blocks(seed)) for seed in (None, 1, 1, 2))

    def key(block: Any) -> list[tuple[int, int]]:
        return list(zip(block.rows.text.tolist(), block.rows.position.tolist(), strict=True))

    assert sorted(key(first)) == sorted(key(other)) == key(plain)
    assert key(first) == key(again) != key(other)
    order = np.lexsort((first.rows.position, first.rows.text))
    torch.testing.assert_close(first.activations[order], plain.activations, atol=1e-5, rtol=0)
    neighbours = np.mean(
        [
            a[0] == b[0] and a[1] + 1 == b[1]
            for a, b in zip(key(first), key(first)[1:], strict=False)
        ]
    )
    assert neighbours < 0.1
    assert [len(block.rows) for block in stream.blocks()][:-1] == [37] * (len(plain.rows) // 37)


@pytest.mark.parametrize("which", ["sampled", "deciding", "assistant"])
def test_only_the_rows_asked_for(which: Any, runs: list[Trajectory]) -> None:
    policy = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    texts, site = texts_of(runs), "blocks.1.hook_resid_post"
    full = whole(harvest([policy], texts, site).blocks())
    part = whole(harvest([policy], texts, site, HarvestConfig(rows=which)).blocks())
    mask = (
        full.rows.deciding if which == "deciding" else full.rows.sampled
    )  # here every token of a turn is drawn
    assert 0 < mask.sum() < len(mask)
    torch.testing.assert_close(part.activations, full.activations[mask])
    assert (part.rows.position == full.rows.position[mask]).all()
    skipped = whole(harvest([policy], texts, site, HarvestConfig(skip=2)).blocks())
    assert len(skipped.rows) == len(full.rows) - 2 * len(texts) and skipped.rows.position.min() == 2


def test_a_pair_that_does_not_fit_is_refused(
    pair: list[Policy], texts: list[TokenizedText]
) -> None:
    site = SITES[-1]
    other = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    with pytest.raises(UserError, match="tokenizers of checkpoints tiny-0 and"):
        harvest([pair[0], other], texts, site)
    with pytest.raises(UserError, match="this model has hook_embed and"):
        harvest(pair, texts, "blocks.9.hook_resid_post")
    with pytest.raises(UserError, match="token 9999 and a checkpoint has 304"):
        harvest(pair, [plain_text([1, 9999], "bad")], site)
    with pytest.raises(UserError, match="2049 tokens and a checkpoint was made for 2048"):
        harvest(pair, [plain_text([1] * 2049, "long")], site)
    with pytest.raises(UserError, match="needs a policy, a text and a site"):
        harvest(pair, [], site)


def test_activations_that_are_not_finite_are_named(texts: list[TokenizedText]) -> None:
    broken = tiny(1)
    with torch.no_grad():
        broken.model.model.embed_tokens.weight[int(texts[3].token_ids[4])] = torch.nan
    holds = [i for i, text in enumerate(texts) if texts[3].token_ids[4] in text.token_ids]
    with pytest.raises(
        UserError, match="checkpoint tiny-1 gives activations that are not"
    ) as error:
        whole(harvest([tiny(0), broken], texts, SITES[-1], SMALL).blocks())
    assert any(f"of text t{i};" in str(error.value) for i in holds)
