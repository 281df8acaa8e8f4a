"""Crosscoders of dictionary_learning, read by the example of a format, compute here what their own
formulas, written out below, compute.
"""

import json

import pytest
import torch
from safetensors.torch import save_file

from forensics.errors import UserError
from tests.crosscoders.example_package.jkminder import recognise
from tests.crosscoders.test_saelens import inputs, ours

LAYERS, WIDTH, LATENTS = 2, 7, 30


def state(threshold=0.6, seed=1, **more):
    """Their state dict with random tensors."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return 0.4 * torch.randn(shape, generator=generator)

    found = {
        "encoder.weight": normal(LAYERS, WIDTH, LATENTS),
        "encoder.bias": normal(LATENTS),
        "decoder.weight": normal(LAYERS, LATENTS, WIDTH),
        "decoder.bias": normal(LAYERS, WIDTH),
    }
    if threshold is not None:
        found |= {"threshold": torch.tensor(threshold), "k": torch.tensor(5, dtype=torch.int)}
    return found | more


def theirs(tensors, x, norm, threshold):
    """`relu(x W + b)`, kept where `f * norm > threshold`; decoded by `f W_dec + b_dec`."""
    f = torch.relu(
        torch.einsum("bld,ldf->bf", x, tensors["encoder.weight"]) + tensors["encoder.bias"]
    )
    if threshold is not None:
        f = f * (f * norm > threshold)
    return f, torch.einsum("bf,lfd->bld", f, tensors["decoder.weight"]) + tensors["decoder.bias"]


def norms(decoders):
    each = decoders.norm(dim=2)  # [layers, latents]
    joint = each.pow(2).sum(0).sqrt()
    return {1: each.sum(0), 2: joint, 3: 0.7 * joint + 0.2 * each.sum(0), 4: torch.ones(LATENTS)}


def written(folder, tensors, config=None):
    folder.mkdir()
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@torch.no_grad()
def test_a_batchtopk_crosscoder_with_its_threshold(tmp_path, kind):
    tensors = state(code_normalization_id=torch.tensor(kind))
    alphas = {"trainer": {"code_normalization_alpha_sae": 0.7, "code_normalization_alpha_cc": 0.2}}
    found = recognise(written(tmp_path / "cc", tensors, alphas)).load(WIDTH)
    x = inputs()
    codes, decoded = theirs(tensors, x, norms(tensors["decoder.weight"])[kind], 0.6)
    assert 0 < (codes > 0).float().mean() < 0.5
    torch.testing.assert_close(ours(found, x)[0], codes, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(found, x)[1], decoded, atol=1e-5, rtol=1e-5)
    assert found.config.k == 5


@pytest.mark.parametrize("relative", [True, False])
@torch.no_grad()
def test_their_normalised_activations_are_folded_into_the_weights(tmp_path, relative):
    generator = torch.Generator().manual_seed(8)
    mean = torch.randn(LAYERS, WIDTH, generator=generator)
    spread = 0.5 + torch.rand(LAYERS, WIDTH, generator=generator)
    scale = 1 / torch.sqrt(spread.pow(2).sum(-1) + 1e-8)
    tensors = state(
        activation_mean=mean,
        activation_std=spread,
        target_rms=torch.tensor(1.0),
        activation_global_scale=scale if relative else torch.ones(LAYERS),
    )
    found = recognise(written(tmp_path / "cc", tensors, {"keep_relative_variance": relative})).load(
        WIDTH
    )
    x = 2 * inputs() + 1
    factor = scale[:, None] if relative else 1 / (spread + 1e-8)
    codes, decoded = theirs(tensors, (x - mean) * factor, norms(tensors["decoder.weight"])[1], 0.6)
    torch.testing.assert_close(ours(found, x)[0], codes, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(ours(found, x)[1], decoded / factor + mean, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({"W_enc": torch.zeros(3)}, "no crosscoder"),
        (state() | {"encoder.weight": torch.zeros(WIDTH, LATENTS)}, "no crosscoder"),
        (state() | {"encoder.weight": torch.zeros(1, WIDTH, LATENTS)}, "no crosscoder"),
        (state(code_normalization_id=torch.tensor(5)), "DECOUPLED"),
    ],
)
def test_what_is_no_such_crosscoder_is_told(tmp_path, tensors, told):
    with pytest.raises(UserError, match=told):
        recognise(written(tmp_path / "cc", tensors)).load(WIDTH)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert recognise(empty) is None
