"""Every way of reading gives the same stream: TransformerLens, nnsight, and an
adapter switched on one model.
"""

from typing import Any

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import HarvestConfig, harvest
from crosscoders.activations.streams import Block, TokenizedText, plain_text
from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.protocols import Policy
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.organisms.organism import checkpoint_path

SITES = (
    "blocks.1.hook_resid_post",
    "hook_embed",
    "blocks.0.hook_resid_pre",
    "blocks.1.hook_mlp_out",
    "blocks.1.hook_attn_out",
)
PAIR = ("capped-base", "leak")
SMALL = HarvestConfig(batch=96, window=2)


def made_texts(tokens: int) -> list[TokenizedText]:
    random = np.random.default_rng(0)
    return [
        plain_text(random.integers(0, tokens, n).tolist(), f"t{n}") for n in (12, 40, 3, 25, 60)
    ]


def whole(blocks: Any) -> Block:
    return Block.join(list(blocks))


def values(
    readers: Any, texts: list[TokenizedText], sites: tuple[str, ...] = SITES
) -> dict[str, torch.Tensor]:
    return {
        site: whole(harvest(readers, texts, site, SMALL).blocks()).activations for site in sites
    }


@pytest.fixture(scope="module")
def leak() -> list[Policy]:
    return [
        load_policy(checkpoint_path(f"bundled:{n}"), device="cpu", dtype="float32") for n in PAIR
    ]


def test_transformer_lens_gives_the_same_stream(leak: list[Policy]) -> None:
    paths = [checkpoint_path(f"bundled:{name}") for name in PAIR]
    bridges = [load_policy(p, backend="transformer-lens", device="cpu") for p in paths]
    texts = made_texts(89)
    ours, theirs = values(leak, texts), values(bridges, texts)
    for site in SITES:
        torch.testing.assert_close(theirs[site], ours[site], atol=2e-5, rtol=0)
    first, other = (harvest(readers, texts, SITES[0], SMALL) for readers in (leak, bridges))
    assert first.identity == other.identity
    found, expected = (whole(stream.blocks(3)).activations for stream in (first, other))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    with pytest.raises(UserError, match="unknown site 'hook_nothing'"):
        harvest(bridges, texts, "hook_nothing")


def test_nnsight_gives_the_same_stream(leak: list[Policy]) -> None:
    texts = made_texts(89)
    paths = [checkpoint_path(f"bundled:{name}") for name in PAIR]
    wrapped = [load_policy(path, backend="nnsight", device="cpu") for path in paths]
    ours, theirs = values(leak, texts), values(wrapped, texts)
    for site in SITES:
        assert torch.equal(theirs[site], ours[site]), site
    mixed = whole(harvest([leak[0], wrapped[1]], texts, SITES[0], SMALL).blocks())
    assert torch.equal(mixed.activations, ours[SITES[0]])


def test_an_adapter_on_one_copy_is_the_merged_model() -> None:
    from peft import LoraConfig, PeftModel, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(1)
        wrapped: Any = get_peft_model(tiny_qwen3(0), LoraConfig(r=4, target_modules=["q_proj"]))
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, 0, 0.3)
    assert isinstance(wrapped, PeftModel)
    inner = wrapped.base_model.model
    pair = [
        policy_from(inner, tiny_tokenizer(), "base", within=wrapped.disable_adapter),
        policy_from(inner, tiny_tokenizer(), "adapted"),
    ]
    texts = made_texts(300)
    found = values(pair, texts)
    base = policy_from(tiny_qwen3(0), tiny_tokenizer(), "base")
    merged = policy_from(wrapped.merge_and_unload(), tiny_tokenizer(), "merged")
    expected = values([base, merged], texts)
    for site in SITES:
        torch.testing.assert_close(found[site], expected[site], atol=2e-5, rtol=0)
    assert (expected[SITES[0]][:, 0] - expected[SITES[0]][:, 1]).abs().max() > 0.05
