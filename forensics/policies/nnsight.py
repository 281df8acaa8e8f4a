"""nnsight: a model wrapped by `NNsight` or `LanguageModel` as a policy, and what
its traces name as a site: `model.layers.3.output`, `model.layers.3.mlp.input`.

The wrapped module itself runs in our decoder; what an intervention sees and
changes is what a trace would see and change there. Remote execution is not
used.
"""

from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies import huggingface, policy_from
from forensics.protocols import Policy, Renderer


def open_policy(
    where: str | Path,
    *,
    device: str = "auto",
    dtype: str | None = None,
    identity: str | None = None,
) -> Policy:
    """A checkpoint directory through nnsight."""
    from nnsight import NNsight

    plain = huggingface.load_policy(where, device=device, dtype=dtype, identity=identity)
    return from_nnsight(NNsight(plain.model), plain.tokenizer, plain.identity)


def from_nnsight(
    wrapped: Any,
    tokenizer: Any = None,
    identity: str | None = None,
    renderer: Renderer | None = None,
) -> Policy:
    """A wrapped model in memory as a policy with every capability. `tokenizer`:
    the wrapper's own unless given. `identity`: the hash of its weights unless
    given. Raises `UserError` where there is no tokenizer.
    """
    model = wrapped._module
    tokenizer = tokenizer or wrapped.__dict__.get("tokenizer")
    if tokenizer is None:
        raise UserError("an NNsight wrapper has no tokenizer; give one, or wrap a LanguageModel")
    model.named_sites = {
        f"{name}.{side}": (module, side == "output")
        for name, module in model.named_modules()
        if name
        for side in ("input", "output")
    }
    return policy_from(model, tokenizer, identity, renderer)
