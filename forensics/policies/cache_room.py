"""How many rows a batch of a model may have: a budget of memory over what the KV cache
of a row takes.

On a GPU the budget is a share of the memory that is free when the policy is made, and a
row is reckoned with every token that its text may have. What rows a run was played with
is written down with it (`Room.stated`), so that a resumed one does not depend on what
else the card holds by then. On a CPU the budget is fixed, and so are the rows: pages of
a buffer that are never written cost nothing there, so a row is reckoned with
`CACHED_TOKENS`.

Where memory does not suffice after all, batches are halved (`Room.halve`).
"""

import gc
import logging
from dataclasses import dataclass
from typing import Any, Final

import torch

MOST_ROWS: Final = 1024
CACHE_BYTES: Final = 2**31  # on a CPU
GPU_SHARE: Final = 0.4  # of what is free
CACHED_TOKENS: Final = 512  # of a row on a CPU
logger = logging.getLogger("forensics")


def cached_numbers(config: Any) -> int:
    """Numbers that the cache of a model keeps of one token, keys and values of all layers."""
    text = config.get_text_config()
    queries = getattr(text, "num_attention_heads", None) or 1
    heads = getattr(text, "num_key_value_heads", None) or queries
    width = getattr(text, "head_dim", None) or text.hidden_size // queries
    return int(2 * text.num_hidden_layers * heads * width)


def rows_within(budget: int, numbers: int, itemsize: int, length: int) -> int:
    """Rows of `length` tokens whose cache takes at most `budget` bytes; one at least."""
    return max(1, min(MOST_ROWS, budget // (numbers * itemsize * length)))


@dataclass
class Room:
    """The room of one model, on whatever policies share it. `budget` in bytes; `most`:
    rows that turned out to be too many, less one half.
    """

    numbers: int
    itemsize: int
    budget: int
    device: str
    most: int = MOST_ROWS

    @classmethod
    def of(cls, model: Any) -> "Room":
        budget, device = CACHE_BYTES, model.device.type
        if device == "cuda":
            budget = int(free_memory(model.device) * GPU_SHARE)
        return cls(cached_numbers(model.config), model.dtype.itemsize, budget, device)

    def rows(self, length: int) -> int:
        """How many rows of at most `length` tokens go through together."""
        itemsize = self.itemsize
        if self.device == "cpu":
            length = CACHED_TOKENS
        elif torch.is_autocast_enabled(self.device):
            itemsize = min(itemsize, torch.get_autocast_dtype(self.device).itemsize)
        return min(self.most, rows_within(self.budget, self.numbers, itemsize, length))

    def halve(self, rows: int) -> None:
        """Memory did not suffice for so many rows."""
        self.most = max(1, rows // 2)
        logger.warning(
            "memory does not suffice for %d rows at once; from here on %d go through together",
            rows,
            self.most,
        )

    @property
    def stated(self) -> dict[str, int]:
        """What decides about rows, to be written down; nothing where it is always the same."""
        return {} if self.device == "cpu" else {"cache_bytes": self.budget, "rows": self.most}

    def restore(self, stated: dict[str, int]) -> None:
        """Go on with the rows of an earlier run."""
        self.budget = stated.get("cache_bytes", self.budget)
        self.most = stated.get("rows", self.most)


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process may still take: what is free, within its share of the
    card (`torch.cuda.set_per_process_memory_fraction`).
    """
    share = torch.cuda.get_per_process_memory_fraction(device)
    whole = torch.cuda.get_device_properties(device).total_memory
    left = int(share * whole) - torch.cuda.memory_reserved(device)
    return int(max(0, min(torch.cuda.mem_get_info(device)[0], left)))


def release_memory(device: torch.device) -> None:
    """Give back what no tensor holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
