"""Sides that take turns: how one is started in a process of its own, what it holds at most,
how repeats are told, and a random model to run them on.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

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


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measured(
    warm: Callable[[], object], work: Callable[[], float], device: str, times: int = 1
) -> dict[str, float]:
    """Median seconds of the work (on a CPU those of the processor), its peak of memory above
    what was held before, and the mean that it gives. On a GPU the first time warms up.
    """
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds, mean = [], 0.0
    warm()  # loads what is loaded late
    before = held(device)
    for _ in range(times + (device != "cpu")):
        start = clock()
        mean = work()
        wait(device)
        seconds.append(clock() - start)
    median, most = statistics.median(seconds[-times:]), max(1, peak(device) - before)
    return {"seconds": median, "peak_bytes": most, "mean_logprob": mean}


Made = TypeVar("Made")


def in_turn(
    sides: Mapping[str, Callable[[int], Made]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, Made]]:
    """Seconds of each side, after a round that warms up, and what it made last."""
    seconds, made = {name: list[float]() for name in sides}, dict[str, Made]()
    for repeat in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            made[name] = side(repeat)
            seconds[name].append(time.perf_counter() - start)
    return {name: each[1:] for name, each in seconds.items()}, made


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and most."""
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


def random_qwen3(dtype: str, seed: int, device: str, **shape: Any) -> Any:
    """A random Qwen3 with tied embeddings, of `VOCABULARY` tokens if `shape`, the rest of its
    config, says nothing else.

    Made where it stays and filled in place, so that making it leaves no peak of
    its own.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        **{"vocab_size": VOCABULARY, "num_key_value_heads": 2, "tie_word_embeddings": True, **shape}
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
