"""Policies in memory, named by their weights as they are now.

A policy's own `identity` is that of the weights it was made with: a live policy
in a trainer still has the start's after a thousand updates, and what is kept
under that name would be another policy's. Reading the weights costs about a
second a gigabyte.
"""

import hashlib
import json
from itertools import chain
from typing import Any

from forensics.records import content_hash


def identity_now(policy: Any) -> str:
    """The content hash of a policy's identity with its weights; its own
    identity where it has no `model` here.
    """
    model = getattr(policy, "model", None)
    return (
        str(policy.identity)
        if model is None
        else content_hash([policy.identity, weights_hash(model)], 64)
    )


def weights_hash(model: Any) -> str:
    """SHA-256 of all parameters and buffers with names, dtypes and shapes."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(chain(model.named_parameters(), model.named_buffers())):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
