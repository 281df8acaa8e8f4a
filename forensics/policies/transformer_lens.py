"""TransformerLens: a `TransformerBridge` as a policy, and every hook of it as a
site.

The bridge's own modules run in our decoder, with our prefix cache. Weights stay
raw: the compatibility mode folds and centres them, which gives other
activations. The bridge's attention is the plain one, so values agree with the
backend `huggingface` to rounding only. A `HookedTransformer` has no model of
transformers inside and is refused.
"""

import copy
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
    """A checkpoint directory through TransformerLens."""
    from transformer_lens.model_bridge import TransformerBridge

    plain = huggingface.load_policy(where, device=device, dtype=dtype, identity=identity)
    bridge: Any = TransformerBridge.boot_transformers(
        str(where),
        device=str(plain.model.device),
        dtype=plain.model.dtype,
        tokenizer=copy.deepcopy(plain.tokenizer),  # TransformerLens changes the one it is given
        hf_model=plain.model,
    )
    return from_transformer_lens(bridge, plain.tokenizer, plain.identity)


def from_transformer_lens(
    bridge: Any,
    tokenizer: Any = None,
    identity: str | None = None,
    renderer: Renderer | None = None,
) -> Policy:
    """A bridge in memory as a policy with every capability.

    `tokenizer`: the one that the policy was trained with. The bridge's own, taken
    where none is given, may put a beginning-of-text token before every text.
    `identity`: the hash of its weights unless given. Raises `UserError` for
    anything but a bridge.
    """
    if not (hasattr(bridge, "hook_dict") and hasattr(bridge, "original_model")):
        raise UserError(
            f"a {type(bridge).__name__} is no TransformerBridge; boot the model with"
            " transformer_lens.model_bridge.TransformerBridge.boot_transformers"
        )
    model = bridge.original_model
    model.named_sites = {name: (point, True) for name, point in bridge.hook_dict.items()}
    return policy_from(model, tokenizer or bridge.tokenizer, identity, renderer)
