"""Reading activations of one checkpoint on a batch of tokens; the fast path is
a hook that stops the forward pass.

A `Reader` is one checkpoint seen through one way of reading. Any way plugs in
that gives the same values: raw hooks (`reader_of`), or a LoRA pair on one copy of
the weights (`adapter_readers`): before is the model, after is the model with its
adapter switched on. The adapter's layers are put into the policy's model and left
switched off, so that the policy itself stays what it was; the reader of *after*
switches them on for the time of a forward pass. Nothing is merged, so nothing is
rounded.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forensics.errors import UserError
from forensics.policies import require
from forensics.policies.sites import read_sites
from forensics.records import content_hash

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
Read = Callable[[Tensor, Sequence[str]], list[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`read(ids [texts, positions], sites)` gives one `[texts, positions,
    width]` a site.

    Texts are padded on the right and attention looks back only, so that what
    stands behind a text cannot change it.
    `vocabulary`: token to id. `tokens`: ids below this exist. `positions`: the
    longest text, `None` where unknown.
    """

    identity: str
    read: Read
    vocabulary: Mapping[str, int]
    tokens: int
    positions: int | None
    device: torch.device
    dtype: torch.dtype


def reader_of(policy: Any) -> Reader:
    """A local policy read through raw hooks. A `Reader` is given back as it is."""
    if isinstance(policy, Reader):
        return policy
    require(policy, "weights", "tokens", task="reading activations of batches")
    return Reader(
        identity=policy.identity,
        read=lambda ids, sites: read_sites(policy.model, ids, sites),
        vocabulary=policy.tokenizer.get_vocab(),
        tokens=policy.model.get_input_embeddings().num_embeddings,
        positions=policy.context_length,
        device=policy.model.device,
        dtype=policy.model.dtype,
    )


def adapter_readers(policy: Any, *adapters: Path | str) -> list[Reader]:
    """Readers of a policy and of it with each adapter in turn, all on the
    policy's own weights.

    `adapters`: folders that peft's `save_pretrained` wrote. Raises `UserError`
    for one that is no such folder, does not fit the model, or does more than
    change the model's layers (a prompt that is learned changes the tokens).
    """
    before = reader_of(policy)
    found, wrapped = [before], None
    for number, adapter in enumerate(adapters):
        folder, name = Path(adapter).expanduser(), f"adapter{number}"
        for file in (CONFIG, WEIGHTS):
            if not (folder / file).is_file():
                raise UserError(
                    f"{folder} has no {file}; give a folder that peft's save_pretrained wrote"
                )
        wrapped = _put_in(wrapped or policy.model, folder, name, first=wrapped is None)
        files = [sha256((folder / file).read_bytes()).hexdigest() for file in (CONFIG, WEIGHTS)]
        identity = content_hash([policy.identity, *files])
        found.append(_switched(policy, wrapped, name, before, identity))
    return found


def _switched(policy: Any, wrapped: Any, name: str, before: Reader, identity: str) -> Reader:
    def read(ids: Tensor, sites: Sequence[str]) -> list[Tensor]:
        wrapped.set_adapter(name)
        wrapped.base_model.enable_adapter_layers()
        try:
            return read_sites(policy.model, ids, sites)
        finally:
            wrapped.base_model.disable_adapter_layers()

    return Reader(**vars(before) | {"identity": identity, "read": read})


def _put_in(model: Any, folder: Path, name: str, first: bool) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError("adapters need peft; install it with: pip install peft") from None
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wrapped: Any = (
                PeftModel.from_pretrained(model, str(folder), adapter_name=name) if first else model
            )
            if not first:
                wrapped.load_adapter(str(folder), adapter_name=name)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"the adapter {folder} does not fit the model ({error}); give the model it was"
            " trained on"
        ) from error
    if any("missing adapter keys" in str(warning.message) for warning in said):
        raise UserError(
            f"the adapter {folder} lacks weights that its {CONFIG} names; save the adapter again"
        )
    wrapped.requires_grad_(False).eval()
    wrapped.base_model.disable_adapter_layers()
    return wrapped
