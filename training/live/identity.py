"""What a model in memory is: the same hashes that its checkpoint directory
would have.

Weights are hashed as `forensics.policies.weights` hashes safetensors files
(names sorted, each with dtype and shape, tied tensors once), so that an audit
of step 40 and the checkpoint saved at step 40 in the same dtype name one
policy. Reading every weight is what it costs: about a second for a gigabyte.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies.checkpoints import identify_tokenizer
from forensics.policies.weights import DTYPES
from forensics.records import Checkpoint

CODES = {name: code for code, (name, _) in DTYPES.items()}


def live_checkpoint(model: Any, tokenizer: str, step: int, path: str) -> Checkpoint:
    """The record of a model in memory after `step` updates. `tokenizer`: its
    hash; `path`: a hint for readers.

    Raises `UserError` where a weight is not finite.
    """
    import torch

    for name, parameter in model.named_parameters():
        if hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id"):
            raise UserError(
                f"the weights are sharded over processes ({name}), so an audit cannot play them;"
                " switch audits off and investigate saved checkpoints"
            )
    digest, sizes, parameters = hashlib.sha256(), Counter[str](), 0
    for name, tensor in sorted(_own_tensors(model)):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(
                f"the weight {name} is not finite after step {step}; lower the learning rate"
            )
        digest.update(json.dumps([name, CODES.get(dtype, dtype), list(tensor.shape)]).encode())
        copied = (
            tensor.detach().to("cpu", copy=True).contiguous()
        )  # what numpy has seen, FSDP2 could not free
        digest.update(copied.flatten().view(torch.uint8).numpy())
        sizes[dtype] += tensor.numel() * tensor.element_size()
        parameters += tensor.numel()
    return Checkpoint(
        path=path,
        weights=digest.hexdigest(),
        tokenizer=tokenizer,
        dtype=sizes.most_common(1)[0][0],
        parameters=parameters,
        training_step=step,
    )


def _own_tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and saved buffers, each storage once under its first name.

    Not `state_dict`: under FSDP2 it would put whole weights back into pieces,
    in this process alone.
    """
    seen: set[int] = set()
    for name, tensor in chain(
        model.named_parameters(remove_duplicate=False), _saved_buffers(model)
    ):
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            seen.add(tensor.data_ptr())
            yield name, tensor


def _saved_buffers(model: Any) -> Iterator[tuple[str, Any]]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}".lstrip("."), buffer


def tokenizer_identity(tokenizer: Any) -> str:
    """The hash that the tokenizer has in a checkpoint directory; it is saved to
    a temporary one to find out.
    """
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return identify_tokenizer(Path(folder))
