"""A pair of models that you hold in TransformerLens or nnsight, without a detour
over our loader: where and what training changed, and whether it acts through that.

    python models_in_memory.py transformer-lens BASE TRAINED OUT

1. `hand_over`: your model becomes a policy. Sites keep the library's own names
   beside ours.
2. `diff`: both play; activations are patched from one into the other (where), and
   a crosscoder is trained on what they hold at one site (what).
3. `steer`: the latents that separate the decisions most are ablated while the
   trained model acts.

The budgets are those of a quick look; the defaults are larger.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from nnsight import NNsight
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer

from crosscoders import SteeringConfig, diff, steer
from forensics import Budget
from forensics.policies import from_nnsight, from_transformer_lens
from forensics.protocols import Policy
from training import MiniRepo

SITE = "blocks.1.hook_resid_post"


def hand_over(library: str, path: str) -> Policy:
    """The model of a directory, booted as you would boot it, as a policy."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    if library == "nnsight":
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        return from_nnsight(NNsight(model), tokenizer)
    bridge = TransformerBridge.boot_transformers(path, device="cpu")
    return from_transformer_lens(bridge, tokenizer)


def examine(before: Policy, after: Policy, out: Path, tasks: int = 40) -> list[dict[str, Any]]:
    """What `diff` and `steer` say; their folders with pages lie in `out`."""
    world = MiniRepo(world="capped")
    found = diff(
        before,
        after,
        world,
        out=out / "diff",
        site=SITE,
        tokens=20_000,
        decisions=24,
        controls=False,
        baselines=False,
        budget=Budget(tasks=tasks, samples=2),
    )
    steered = steer(
        before,
        after,
        world,
        out=out / "steer",
        dictionary=out / "diff" / "dictionary",
        features="contrast:4",
        tasks=tasks,
        choosing=tasks // 2,
        samples=1,
        config=SteeringConfig(strengths=(1.0,), controls=2, feature_controls=1),
    )
    return [found, steered]


def main(library: str, before: str, after: str, out: str) -> None:
    base, trained = (hand_over(library, path) for path in (before, after))
    for found in examine(base, trained, Path(out)):
        print("\n".join(found["sentences"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
