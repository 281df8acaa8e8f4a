"""Sides that run in processes of their own: how one is started, what it holds
at most, and a model to run it on.
"""

import json
import resource
import subprocess
import sys
from typing import Any

VOCABULARY = 151_936


def child(module: str, *arguments: object) -> dict[str, float]:
    """What `python -m module arguments` prints last, as JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def held(device: str) -> int:
    """Bytes held now: of this process, or of the device."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak(device: str) -> int:
    """The most bytes so far; on CUDA since `held`."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def random_qwen3(dtype: str, seed: int, device: str, **shape: int) -> Any:
    """A random Qwen3 of `VOCABULARY` tokens with tied embeddings. `shape`: the
    rest of its config.

    Made where it stays and filled in place, so that making it leaves no peak of
    its own.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCABULARY, num_key_value_heads=2, tie_word_embeddings=True, **shape
    )
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    model = model.to(getattr(torch, dtype)).to_empty(device=device)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0) if "norm" in name else parameter.normal_(
                0, 0.02, generator=generator
            )
    return model.eval()
