"""Hidden states of one local model at chosen places of known texts.

1. Where a model takes positions and a mask and heeds both (told by a trial: a
   small forest against its texts one by one), a pack goes through as one row.
   Otherwise its texts go through as rows of like length, filled up on the
   right, where no causal model looks from the left.
2. Hidden states are taken at the chosen nodes only. A model whose head cannot
   be taken off (`forensics.policies.output_head`) gives its logits there instead.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch

from forensics.policies.kv_cache import TRIAL_ERRORS, agree, attends_to_everything
from forensics.policies.output_head import output_head
from forensics.policies.shared_prefixes import PackCost, PrefixPack, pack_by_prefix

LIKE: Final = 0.8  # rows that are filled up are at least this share of the longest beside them
PADDED_TOKENS: Final = 8192  # of rows that go through together
WHOLE_NODES: Final = 256  # of a pack for a model whose head cannot be taken off


class HiddenStates:
    """Reads with a Hugging Face causal language model. `within`: entered around
    every pass (an adapter switched off). `known`: how many token ids the model has.
    """

    def __init__(self, model: Any, within: Any = nullcontext) -> None:
        self.model, self.device, self._within = model, model.device, within
        self.head = output_head(model)
        self._takes_places = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.known: int = model.config.get_text_config().vocab_size
        self.vocabulary: int = self.head.linear.out_features if self.head else self.known

    @property
    def cost(self) -> PackCost:
        """What packs cost this model. A model that is run whole holds the
        logits of a pack, so its packs are small.
        """
        cost = _cost(self.model) if self.packed else PackCost(square=1e9)
        return cost if self.head is not None else replace(cost, most=WHOLE_NODES)

    def at(self, forest: PrefixPack, nodes: np.ndarray) -> torch.Tensor:
        """`[len(nodes), width]`: hidden states (or logits) at these nodes."""
        with self._inside():
            one_row = len(forest.texts) > 1 and self.packed  # a text alone needs no mask
            return self._as_one_row(forest, nodes) if one_row else self._as_rows(forest, nodes)

    def whole(self, ids: torch.Tensor, last: int = 0) -> torch.Tensor:
        """`[rows, length, width]`: at every place of rows of one length, or at their `last`."""
        with self._inside():
            if self.head is not None:
                found = self.head.decoder(ids, use_cache=False).last_hidden_state
            else:
                kept = {"logits_to_keep": last} if self._takes_places else {}
                found = self.model(ids, use_cache=False, **kept).logits
        return torch.as_tensor(found[:, -last:])

    def _inside(self) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = self._within()
        return entered

    def _as_one_row(self, forest: PrefixPack, nodes: np.ndarray) -> torch.Tensor:
        device = self.device
        mask = torch.from_numpy(forest.attention_mask()).to(device)
        added = torch.zeros(mask.shape, dtype=self.model.dtype, device=device)
        added.masked_fill_(~mask, torch.finfo(self.model.dtype).min)
        known = {
            "position_ids": torch.from_numpy(forest.depth)[None].to(device),
            "attention_mask": added[None, None],
        }
        places = torch.from_numpy(nodes).to(device)
        return self._run(
            torch.from_numpy(forest.ids)[None].to(device), known, torch.zeros_like(places), places
        )

    def _as_rows(self, forest: PrefixPack, nodes: np.ndarray) -> torch.Tensor:
        """Each node from the first text that has it."""
        states: torch.Tensor | None = None
        first_text, device = forest.first_text[nodes], self.device
        lengths = [len(path) for path in forest.paths]
        for rows in rows_of_like_length(lengths, sorted(set(first_text.tolist()))):
            ids = np.zeros((len(rows), max(lengths[row] for row in rows)), np.int64)
            for place, row in enumerate(rows):
                ids[place, : lengths[row]] = forest.ids[forest.paths[row]]
            here = np.flatnonzero(np.isin(first_text, rows))
            row_of = np.searchsorted(rows, first_text[here])
            got = self._run(
                torch.from_numpy(ids).to(device),
                {},
                torch.from_numpy(row_of).to(device),
                torch.from_numpy(forest.depth[nodes[here]]).to(device),
            )
            states = got.new_empty((len(nodes), got.shape[-1])) if states is None else states
            states[torch.from_numpy(here).to(device)] = got
        assert states is not None
        return states

    def _run(
        self, ids: torch.Tensor, known: dict[str, Any], rows: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states (or logits) at `(rows, places)` of one pass."""
        if self.head is not None:
            found = self.head.decoder(ids, use_cache=False, **known).last_hidden_state
        elif len(ids) == 1 and self._takes_places:
            found = self.model(ids, use_cache=False, logits_to_keep=places, **known).logits
            return torch.as_tensor(found[0])
        else:
            found = self.model(ids, use_cache=False, **known).logits
        return torch.as_tensor(found[rows, places])

    @cached_property
    @torch.inference_mode()
    def packed(self) -> bool:
        """Whether a pack of several texts goes through as one row: whether a small
        forest gives what its texts give one by one.
        """
        runs = self.head.decoder if self.head is not None else self.model
        if "position_ids" not in inspect.signature(runs.forward).parameters:
            return False
        if not attends_to_everything(self.model.config):
            return False
        texts = [
            np.array(text) % self.known
            for text in ([5, 3, 8, 2, 9, 4], [5, 3, 8, 7, 6], [1, 2, 3, 4])
        ]
        (forest,) = pack_by_prefix(texts, PackCost(square=1e9))
        nodes = np.arange(len(forest.ids))
        try:
            with self._inside():
                found, wanted = self._as_one_row(forest, nodes), self._as_rows(forest, nodes)
        except TRIAL_ERRORS:
            return False
        return agree(found, wanted, self.model.dtype)


def rows_of_like_length(lengths: list[int], chosen: list[int]) -> Iterator[list[int]]:
    """Rows of like length that go through together, each group in ascending order."""
    group: list[int] = []
    for row in sorted(chosen, key=lambda i: -lengths[i]):
        longest = lengths[group[0]] if group else 0
        if group and (lengths[row] < LIKE * longest or longest * (len(group) + 1) > PADDED_TOKENS):
            yield sorted(group)
            group = []
        group.append(row)
    if group:
        yield sorted(group)


def _cost(model: Any) -> PackCost:
    """From the model's shape: products with weights against products of attention, a token."""
    text = model.config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
    embedded = model.get_input_embeddings().weight.numel()
    inner = max(sum(p.numel() for p in model.parameters()) - embedded, 1) / text.num_hidden_layers
    square = inner / (2 * width)
    if model.device.type == "cuda":
        return PackCost(call=2048.0, square=square, most=8192)
    return PackCost(square=square)
