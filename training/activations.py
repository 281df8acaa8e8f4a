"""How much of the update's activations may be held at once.

What a token leaves for the backward pass is not read off a config, which knows
neither adapters nor autocast nor checkpointing. It is measured, in two passes over
a few tokens: their difference holds nothing that does not grow with the tokens.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch

CPU_BYTES = 2**30
GPU_SHARE = 0.25  # of what this process may take of the card
FEW = 4  # tokens of the shorter pass; the longer one has twice as many


def activation_budget(device: Any) -> float:
    """Bytes that the activations of one micro-batch may take."""
    if torch.device(device).type != "cuda":
        return CPU_BYTES
    share = torch.cuda.get_per_process_memory_fraction(device)
    return GPU_SHARE * share * float(torch.cuda.get_device_properties(device).total_memory)


def token_bytes(score: Callable[[torch.Tensor, torch.Tensor], Any], device: Any) -> float:
    """What one more token keeps for the backward pass of `score(token_ids, mask)`."""
    return (_held(score, 2 * FEW, device) - _held(score, FEW, device)) / FEW


def _held(score: Callable[[torch.Tensor, torch.Tensor], Any], tokens: int, device: Any) -> int:
    ids = torch.zeros(1, tokens + 1, dtype=torch.long, device=device)
    last = torch.arange(tokens, device=device)[None] == tokens - 1
    return held_bytes(lambda: score(ids, last))


def held_bytes(run: Callable[[], Any]) -> int:
    """Bytes of all memory that `run` keeps for its backward pass, weights included."""
    saved: list[weakref.ref[torch.Tensor]] = []

    def note(value: torch.Tensor) -> torch.Tensor:
        kept = value.detach()
        saved.append(weakref.ref(kept))
        return kept

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        result = run()
    alive = [kept.untyped_storage() for one in saved if (kept := one()) is not None]
    del result
    return sum({memory._cdata: memory.nbytes() for memory in alive}.values())
