"""SAELens reads what we write and we read what it writes; and its own trainer, on
the same rows, explains about as much as ours.
"""

import json

import pytest
import torch

from crosscoders.dictionaries.saelens import export_saelens, load_saelens
from forensics.errors import UserError
from tests.crosscoders.test_saved import PARTITIONS, trained

sae_lens = pytest.importorskip("sae_lens")


def inputs(rows=64, models=2, width=7, seed=5):
    return torch.randn(rows, models, width, generator=torch.Generator().manual_seed(seed))


def ours(dictionary, activations):
    """Codes, and reconstructions in raw units `[rows, models, width]`."""
    codes = dictionary.encode(dictionary.scaled(activations))
    models = range(dictionary.config.models)
    decoded = torch.stack([dictionary.decode(codes, m) for m in models], dim=1) / dictionary.scale
    return codes.dense(dictionary.config.partition.latents), decoded


@pytest.mark.parametrize("activation", ["relu", "topk", "batchtopk", "jumprelu"])
@pytest.mark.parametrize("partition", PARTITIONS)
@torch.no_grad()
def test_stock_saelens_computes_what_we_do(tmp_path, activation, partition):
    dictionary, activations = trained(activation, PARTITIONS[partition]), inputs()
    export_saelens(dictionary, tmp_path / "sae", site="blocks.1.hook_resid_post")
    sae = sae_lens.SAE.load_from_disk(tmp_path / "sae")
    joined = torch.cat([activations[:, 0], activations[:, 1]], dim=-1)
    codes, decoded = ours(dictionary, activations)
    assert (codes > 0).any(dim=1).float().mean() > 0.5
    torch.testing.assert_close(sae.encode(joined), codes, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        sae.decode(sae.encode(joined)), decoded.flatten(1), atol=1e-5, rtol=1e-5
    )
    assert sae.cfg.metadata.hook_name == "blocks.1.hook_resid_post"


@torch.no_grad()
def test_what_was_exported_comes_back(tmp_path):
    dictionary, activations = trained("batchtopk"), inputs()
    again = load_saelens(export_saelens(dictionary, tmp_path / "sae"))
    assert again.config.models == 2
    for mine, found in zip(ours(dictionary, activations), ours(again, activations), strict=True):
        torch.testing.assert_close(found, mine, atol=1e-5, rtol=1e-5)


def stock(kind, **settings):
    """A stock SAE with random weights, decoder norms apart from one."""
    config = {
        "standard": sae_lens.StandardSAEConfig,
        "gated": sae_lens.GatedSAEConfig,
        "topk": sae_lens.TopKSAEConfig,
        "jumprelu": sae_lens.JumpReLUSAEConfig,
    }[kind]
    sae = sae_lens.SAE.get_sae_class_for_architecture(kind)(config(d_in=6, d_sae=20, **settings))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in sae.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        if kind == "jumprelu":
            sae.threshold.abs_()
    return sae


KINDS = [
    ("standard", {}),
    ("standard", {"apply_b_dec_to_input": False}),
    ("gated", {}),
    ("jumprelu", {}),
    ("topk", {"k": 4}),
    ("topk", {"k": 4, "rescale_acts_by_decoder_norm": True}),
]


@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=lambda value: "-".join(value))
@torch.no_grad()
def test_a_stock_sae_computes_the_same_here(tmp_path, kind, settings):
    sae = stock(kind, **settings)
    sae.save_model(tmp_path / "sae")
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(9))
    codes, decoded = ours(load_saelens(tmp_path / "sae"), rows[:, None])
    torch.testing.assert_close(codes, sae.encode(rows), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(decoded[:, 0], sae.decode(sae.encode(rows)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architecture": "temporal"}, "kind 'temporal'"),
        ({"normalize_activations": "layer_norm"}, "layer_norm"),
        ({"reshape_activations": "hook_z"}, "attention heads"),
        ({"d_sae": 21}, "SAELens cannot read"),
    ],
)
def test_what_would_mean_something_else_is_refused(tmp_path, change, told):
    stock("standard").save_model(tmp_path / "sae")
    file = tmp_path / "sae" / "cfg.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=told):
        load_saelens(tmp_path / "sae")


LATENTS, K, STEPS, BATCH, RATE = 24, 2, 500, 128, 5e-3
