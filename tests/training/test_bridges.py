"""The sites are TransformerLens sites: the same numbers from TransformerBridge
and nnsight on a bundled checkpoint.
"""

import numpy as np
import pytest

from forensics import load_policy
from training.organisms.organism import BUNDLED

SITES = [
    "blocks.0.hook_resid_pre",
    "blocks.1.hook_attn_out",
    "blocks.1.hook_mlp_out",
    "blocks.2.hook_resid_post",
]
TEXT = "fail kiwi : 2 -> 7\n$ open 1 \nkiwi : x * 2 + 1\n$"


@pytest.fixture(scope="module")
def policy():
    return load_policy(BUNDLED / "leak", device="cpu", dtype="float32")


def test_transformer_bridge_sees_the_same_activations(policy) -> None:
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / "leak")
    bridge = TransformerBridge.boot_transformers(
        str(BUNDLED / "leak"), device="cpu", dtype=torch.float32, tokenizer=tokenizer
    )
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        _, cache = bridge.run_with_cache(torch.tensor([ids]))
    ours = policy.activations([ids], SITES)[0]
    for site in SITES:
        assert np.allclose(ours[site], cache[site][0].numpy(), atol=2e-5), site


def test_nnsight_sees_the_same_activations(policy) -> None:
    import torch
    from nnsight import NNsight

    ids = policy.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    wrapped = NNsight(policy.model)
    with torch.no_grad(), wrapped.trace(torch.tensor([ids])):
        seen = wrapped.model.layers[2].output.save()
    value = seen[0] if isinstance(seen, tuple) else seen
    ours = policy.activations([ids], ["blocks.2.hook_resid_post"])[0]["blocks.2.hook_resid_post"]
    assert np.array_equal(ours, value.reshape(ours.shape).numpy())
