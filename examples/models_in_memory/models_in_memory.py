"""A pair of models that you hold in TransformerLens or nnsight, without a detour
over our loader: where and what training changed, and whether it acts through that.

    python models_in_memory.py transformer-lens BASE TRAINED

1. `hand_over`: your model becomes a policy. Sites keep the library's own names.
2. `differ`: both play; activations are patched from one into the other (where),
   and a crosscoder is trained on what they hold at one site (what).
3. `steer`: the directions of the trained model's own latents are taken out while
   it acts.
"""

import sys
from typing import Any

import torch
from nnsight import NNsight
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer

from crosscoders import (
    Dictionary,
    DictionaryConfig,
    Partition,
    TrainerSettings,
    decisions_of,
    harvest,
    patch_map,
    texts_of,
    train_crosscoder,
)
from forensics import SamplingSettings
from forensics.policies import from_nnsight, from_transformer_lens
from forensics.protocols import Environment, Intervention, Policy
from training import MiniRepo

SITES = {"transformer-lens": "blocks.1.hook_resid_post", "nnsight": "model.layers.1.output"}


def hand_over(library: str, path: str) -> Policy:
    """The model of a directory, booted as you would boot it, as a policy."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    if library == "nnsight":
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        return from_nnsight(NNsight(model), tokenizer)
    bridge = TransformerBridge.boot_transformers(path, device="cpu")
    return from_transformer_lens(bridge, tokenizer)


def differ(
    before: Policy, after: Policy, world: Environment, site: str, tasks: int = 40
) -> tuple[float, Dictionary]:
    """The share of the change in behaviour that the site carries, and a
    crosscoder of both models there.
    """
    names = world.tasks("held-out", tasks, 0)
    runs = [
        run for one in (before, after) for run in one.play(world, names, 2, SamplingSettings(), 0)
    ]
    patched = patch_map(before, after, decisions_of(runs)[:24], sites=[site], positions=["all"])
    stream = harvest([before, after], texts_of(runs), site)
    config = DictionaryConfig(
        width=stream.width, partition=Partition(latents=64, after_only=4), k=8
    )
    trained = train_crosscoder(stream, config, TrainerSettings(tokens=20_000, batch=256))
    return patched.rows[0].kl_moved.estimate or 0.0, trained.dictionary


def steer(policy: Policy, dictionary: Dictionary, world: Environment, site: str) -> list[float]:
    """Success on held-out tasks, as it is and with the directions of the trained
    model's own latents taken out.
    """
    own = torch.linalg.qr(dictionary.directions()[-4:, 1].T).Q  # [width, 4], orthonormal

    def take_out(activations: Any, _: Any) -> Any:
        return activations - activations @ own @ own.T

    rates = []
    for changes in ([], [Intervention(site=site, name="own latents out", apply=take_out)]):
        names = world.tasks("held-out", 40, 0)
        runs = policy.play(world, names, 2, SamplingSettings(), 1, interventions=changes)
        outcomes = [run.outcome or 0.0 for run in runs]
        rates.append(sum(outcomes) / len(outcomes))
    return rates


def main(library: str, before: str, after: str) -> None:
    base, trained = (hand_over(library, path) for path in (before, after))
    world, site = MiniRepo(world="capped"), SITES[library]
    share, dictionary = differ(base, trained, world, site)
    plain, without = steer(trained, dictionary, world, site)
    print(f"{share:.0%} of the change in the next action goes through {site}.")
    print(f"Success {plain:.0%}; with the directions of its own latents taken out {without:.0%}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
