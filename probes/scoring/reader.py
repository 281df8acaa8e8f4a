"""A model that reads packs: last hidden states at chosen nodes, and logits from them.

1. Where a model takes positions and a mask and heeds both (told by a trial: a small forest against its texts one by
   one), a pack goes through as one row. Otherwise its texts go through as rows of like length, filled up on the
   right, where no causal model looks from the left.
2. Hidden states are taken at the chosen nodes only. A model whose head cannot be taken off
   (`forensics.policies.heads`) gives its logits there instead.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from forensics.policies.cache import attends_to_everything
from forensics.policies.heads import output_head
from probes.scoring.forest import Cost, Pack, pack

LIKE: Final = 0.8  # rows that are filled up are at least this share of the longest beside them
PADDED_TOKENS: Final = 8192  # of rows that go through together
WHOLE_NODES: Final = 256  # of a pack for a model whose head cannot be taken off
TOLERANCE: Final = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the spread of what is compared; below, for others
ROUNDER: Final = 0.1


class Reader:
    """Reads with a Hugging Face causal language model. `within`: entered around every pass (an adapter switched off).

    `packed`: whether a pack of several texts goes through as one row. `known`: how many token ids the model has.
    """

    def __init__(self, model: Any, within: Any = nullcontext, packed: bool | None = None) -> None:
        self.model, self._within = model, within
        self._head = output_head(model)
        self._takes_places = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.known: int = model.get_input_embeddings().weight.shape[0]
        self.vocabulary: int = self._head.linear.out_features if self._head else self.known
        self.packed = self._passes_trial() if packed is None else packed

    @property
    def cost(self) -> Cost:
        """What packs cost this model. A model that is run whole holds the logits of a pack, so its packs are small."""
        cost = _cost(self.model) if self.packed else Cost(square=1e9)
        return cost if self._head is not None else replace(cost, most=WHOLE_NODES)

    def inside(self) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = self._within()
        return entered

    def states(self, forest: Pack, nodes: np.ndarray) -> torch.Tensor:
        """`[len(nodes), width]`: what `logits` takes, at these nodes."""
        with self.inside():
            one_row = self.packed and len(forest.texts) > 1  # a text alone needs no mask
            return self._as_one_row(forest, nodes) if one_row else self._as_rows(forest, nodes)

    def logits(self, states: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """`[len(states), vocabulary]`, float32; into `out` where it serves. They may be written to."""
        if self._head is None:
            return states.to(torch.float32, copy=True)
        linear = self._head.linear
        same = out is not None and out.dtype == linear.weight.dtype and linear.bias is None
        raw = torch.mm(states, linear.weight.T, out=out) if same else torch.nn.functional.linear(
            states, linear.weight, linear.bias)
        logits: torch.Tensor = self._head.formula.logits(raw.float())
        return logits

    def _as_one_row(self, forest: Pack, nodes: np.ndarray) -> torch.Tensor:
        device = self.model.device
        mask = torch.from_numpy(forest.sees()).to(device)
        added = torch.zeros(mask.shape, dtype=self.model.dtype, device=device)
        added.masked_fill_(~mask, torch.finfo(self.model.dtype).min)
        known = {"position_ids": torch.from_numpy(forest.depth)[None].to(device), "attention_mask": added[None, None]}
        places = torch.from_numpy(nodes).to(device)
        return self._run(torch.from_numpy(forest.ids)[None].to(device), known, torch.zeros_like(places), places)

    def _as_rows(self, forest: Pack, nodes: np.ndarray) -> torch.Tensor:
        """Each node from the first text that has it."""
        found: torch.Tensor | None = None
        owner = forest.owner[nodes]
        for rows in _alike_rows([len(path) for path in forest.paths], sorted(set(owner.tolist()))):
            length = max(len(forest.paths[row]) for row in rows)
            ids = np.zeros((len(rows), length), np.int64)
            for place, row in enumerate(rows):
                ids[place, : len(forest.paths[row])] = forest.ids[forest.paths[row]]
            here = np.flatnonzero(np.isin(owner, rows))
            row_of = np.searchsorted(rows, owner[here])
            device = self.model.device
            got = self._run(torch.from_numpy(ids).to(device), {}, torch.from_numpy(row_of).to(device),
                            torch.from_numpy(forest.depth[nodes[here]]).to(device))
            found = got.new_empty((len(nodes), got.shape[-1])) if found is None else found
            found[torch.from_numpy(here).to(device)] = got
        assert found is not None
        return found

    def _run(
        self, ids: torch.Tensor, known: dict[str, Any], rows: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states (or logits) at `(rows, places)` of one pass."""
        if self._head is not None:
            return torch.as_tensor(
                self._head.decoder(ids, use_cache=False, **known).last_hidden_state[rows, places]
            )
        if len(ids) == 1 and self._takes_places:
            return torch.as_tensor(self.model(ids, use_cache=False, logits_to_keep=places, **known).logits[0])
        return torch.as_tensor(self.model(ids, use_cache=False, **known).logits[rows, places])

    @torch.inference_mode()
    def _passes_trial(self) -> bool:
        """Whether a small forest gives what its texts give one by one."""
        runs = self._head.decoder if self._head is not None else self.model
        if "position_ids" not in inspect.signature(runs.forward).parameters:
            return False
        if not attends_to_everything(self.model.config):
            return False
        texts = [np.array(text) % self.known for text in ([5, 3, 8, 2, 9, 4], [5, 3, 8, 7, 6], [1, 2, 3, 4])]
        (forest,) = pack(texts, Cost(square=1e9))
        nodes = np.arange(len(forest.ids))
        try:
            with self.inside():
                found, wanted = self._as_one_row(forest, nodes).float(), self._as_rows(forest, nodes).float()
        except (ValueError, RuntimeError, TypeError, AttributeError, NotImplementedError, IndexError):
            return False
        return bool((found - wanted).abs().max() <= TOLERANCE.get(self.model.dtype, ROUNDER) * wanted.std())


def _alike_rows(lengths: list[int], chosen: list[int]) -> Iterator[list[int]]:
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


def _cost(model: Any) -> Cost:
    """From the model's shape: products with weights against products of attention, a token."""
    text = model.config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
    embedded = model.get_input_embeddings().weight.numel()
    inner = max(sum(p.numel() for p in model.parameters()) - embedded, 1) / text.num_hidden_layers
    square = inner / (2 * width)
    if model.device.type == "cuda":
        return Cost(call=2048.0, square=square, most=8192)
    return Cost(square=square)
