"""How far a model's cache can be trusted to carry texts that fork.

Lockstep decoding copies rows of the cache where texts part; it never crops one,
so that the two meanings that a negative count to `crop` has had (transformers 4
and 5) cannot matter here. What does matter:

1. `ours`: every layer attends to all positions; our own cache serves.
2. `attention`: some layers look back over a window only; the library's cache
   serves, several tokens at a time.
3. `one-by-one`: some layers carry a state. Some of these models start it anew
   where several tokens follow a state, without a word (Jamba in transformers
   5.23), so after the first pass they are fed one token at a time.
4. `none`: the cache does not carry the text (Mamba takes it under another name
   and ignores ours, Recurrent Gemma keeps its state in its modules, where no
   row can be copied). The whole text is read again for each token.

Whether 2 and 3 hold is not guessed from a model's name: a short text is forked
and held against a plain pass.
"""

import inspect
from typing import Any, Literal

import torch

from forensics.policies.cache import attends_to_everything, move_rows, new_cache

Memory = Literal["ours", "attention", "one-by-one", "none"]

MOST_ROWS = 1024
CACHE_BYTES = (
    2 * 2**30
)  # what the KV cache of one batch may take on a CPU; on a GPU two fifths of what is free
CACHED_TOKENS = 512  # tokens a row that the batch size allows for

KNOWN, DRAWN = 6, 6  # tokens of the trial before and behind the fork
TOLERANCE = {
    torch.float32: 1e-3,
    torch.float64: 1e-3,
}  # of the logits' spread; below, for rounder numbers
ROUNDER = 0.1


def memory_of(model: Any) -> Memory:
    """What the model's cache can be used for."""
    takes_cache = "past_key_values" in inspect.signature(model.forward).parameters
    if (
        takes_cache
        and attends_to_everything(model.config)
        and not getattr(model, "_is_stateful", False)
    ):
        return "ours"
    if not takes_cache or not _carries_forks(model):
        return "none"
    cache = new_cache(model.config)
    return (
        "attention"
        if all(hasattr(layer, "get_seq_length") for layer in cache.layers)
        else "one-by-one"
    )


@torch.inference_mode()
def _carries_forks(model: Any) -> bool:
    """Whether rows copied in the cache go on as the texts that they stand for."""
    device, size = model.device, model.config.get_text_config().vocab_size
    known = torch.arange(KNOWN, device=device).remainder(size).expand(3, -1)
    drawn = torch.arange(3 * DRAWN, device=device).remainder(size).view(3, -1)
    text = torch.cat([known, drawn], 1)
    try:
        wanted = model(text, use_cache=False).logits[:, KNOWN:].float()
        cache = new_cache(model.config)
        model(known[:1], past_key_values=cache, use_cache=True)
        move_rows(cache, [0, 0], [1, 2], 3)
        steps = [
            model(drawn[:, i : i + 1], past_key_values=cache, use_cache=True).logits
            for i in range(DRAWN)
        ]
    except (ValueError, RuntimeError, TypeError, AttributeError, NotImplementedError, IndexError):
        return False
    found = torch.cat(steps, 1).float()
    allowed = TOLERANCE.get(model.dtype, ROUNDER) * wanted.std()
    return bool((found - wanted).abs().max() <= allowed)


def batch_rows(model: Any) -> int:
    """How many rows fit: a memory budget over the KV cache of a row of `CACHED_TOKENS`."""
    text = model.config.get_text_config()
    queries = getattr(text, "num_attention_heads", None) or 1
    heads = getattr(text, "num_key_value_heads", None) or queries
    width = getattr(text, "head_dim", None) or text.hidden_size // queries
    row = 2 * text.num_hidden_layers * heads * width * model.dtype.itemsize * CACHED_TOKENS
    budget: int = CACHE_BYTES
    if model.device.type == "cuda":
        budget = int(torch.cuda.mem_get_info(model.device)[0] * 0.4)
    return int(max(1, min(MOST_ROWS, budget // row)))
