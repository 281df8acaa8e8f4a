"""Every way of reading gives the same stream: TransformerLens, nnsight, and an
adapter switched on one model.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest_stream import HarvestConfig, adapter_readers, harvest
from crosscoders.activations.streams import Block
from crosscoders.activations.texts import TokenizedText, plain_text
from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.protocols import Policy
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer
from training.organisms.organism import checkpoint_path

SITES = (
    "blocks.1.hook_resid_post",
    "hook_embed",
    "blocks.0.hook_resid_pre",
    "blocks.1.hook_mlp_out",
    "blocks.1.hook_attn_out",
)
PAIR = ("capped-base", "leak")
SMALL = HarvestConfig(batch=96, window=2, block=37, pool=200)


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


def save_adapter(folder: Path, seed: int, **options: Any) -> Path:
    """A LoRA adapter of a tiny model, with weights that change something."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = get_peft_model(
            tiny_qwen3(0), LoraConfig(r=4, target_modules=["q_proj", "down_proj"], **options)
        )
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, 0, 0.3)
    model.save_pretrained(str(folder))
    return folder


def test_an_adapter_on_one_copy_is_the_merged_model(tmp_path: Path) -> None:
    from peft import PeftModel

    folders = [save_adapter(tmp_path / "a", 1), save_adapter(tmp_path / "b", 2)]
    merged = [
        policy_from(
            PeftModel.from_pretrained(tiny_qwen3(0), str(f)).merge_and_unload(),
            tiny_tokenizer(),
            f.name,
        )
        for f in folders
    ]
    base = policy_from(tiny_qwen3(0), tiny_tokenizer(), "base")
    texts = made_texts(300)
    alone = values([base], texts)
    expected = values([policy_from(tiny_qwen3(0), tiny_tokenizer(), "base"), *merged], texts)
    readers = adapter_readers(base, *folders)
    parameters = sum(p.numel() for p in base.model.parameters())
    assert parameters < 1.3 * sum(
        p.numel() for p in tiny_qwen3(0).parameters()
    )  # one copy of the weights
    found = values(readers, texts)
    for site in SITES:
        torch.testing.assert_close(found[site], expected[site], atol=2e-5, rtol=0)
    assert (expected[SITES[0]][:, 0] - expected[SITES[0]][:, 1]).abs().max() > 0.1
    assert torch.equal(found[SITES[0]][:, 0], alone[SITES[0]][:, 0])
    after = values([base], texts)  # the policy itself is what it was
    assert all(torch.equal(after[site], alone[site]) for site in SITES)
    assert len({reader.identity for reader in readers}) == 3


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    base = policy_from(tiny_qwen3(0), tiny_tokenizer(), "base")
    with pytest.raises(UserError, match="has no adapter_config"):
        adapter_readers(base, save_tiny_qwen3(tmp_path / "model"))
    other = load_policy(checkpoint_path("bundled:leak"), device="cpu", dtype="float32")
    with pytest.raises(UserError, match="does not fit the model"):
        adapter_readers(other, save_adapter(tmp_path / "a", 1))


def test_checkpoints_along_a_run_are_one_axis(leak: list[Policy]) -> None:
    texts = made_texts(89)
    three = harvest([*leak, leak[0]], texts, SITES[0], SMALL)
    found = whole(three.blocks()).activations
    assert (
        three.models == 3
        and torch.equal(found[:, 0], found[:, 2])
        and not torch.equal(found[:, 0], found[:, 1])
    )
    assert torch.equal(
        found[:, :2], whole(harvest(leak, texts, SITES[0], SMALL).blocks()).activations
    )
