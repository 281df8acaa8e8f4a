"""One local model over a pack of texts: hidden states at chosen nodes, then
columns of numbers, a chunk of positions at a time.

1. Where a model takes positions and a mask and heeds both (told by a trial: a
   small forest against its texts one by one), a pack goes through as one row.
   Otherwise its texts go through as rows of like length, filled up on the
   right, where no causal model looks from the left.
2. Hidden states are taken at the chosen nodes only. A model whose head cannot
   be taken off (`forensics.policies.output_head`) gives its logits there instead.
3. Positions with one and the same text before them have one distribution. It is
   formed once.
4. Logits of a chunk become log-probabilities under the stated settings
   (`forensics.policies.distribution`); where nothing is shut out of the
   distribution they do so in place. So a few `[chunk, vocabulary]` arrays live
   at once.
5. The standard columns are taken, then every readout sees both distributions
   with the tokens drawn there.

Standard columns (nats): `policy`, `reference` (log-probabilities), `entropy`,
`kl` (of the policy from the reference), `self_certainty` (of the uniform
distribution from the policy, 2502.18581), `top_logprob` (of the likeliest
token).
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from forensics.policies.distribution import Text, log_distribution
from forensics.policies.kv_cache import attends_to_everything
from forensics.policies.output_head import output_head
from forensics.protocols import SamplingSettings
from probes.scores.prefix_pack import PackCost, PrefixPack, pack_by_prefix
from probes.scores.token_scores import Readout, TokenPositions

LIKE: Final = 0.8  # rows that are filled up are at least this share of the longest beside them
PADDED_TOKENS: Final = 8192  # of rows that go through together
WHOLE_NODES: Final = 256  # of a pack for a model whose head cannot be taken off
TOLERANCE: Final = {
    torch.float32: 1e-3,
    torch.float64: 1e-3,
}  # of the spread of what is compared; below, for others
ROUNDER: Final = 0.1
CHUNK_BYTES: Final = {"cpu": 24 * 2**20, "cuda": 256 * 2**20}  # one array of log-probabilities
NO_CHANCE: Final = -1e4  # in place of log 0 where it is multiplied by probability 0
STANDARD: Final = ("policy", "reference", "entropy", "kl", "self_certainty", "top_logprob")
OF_BOTH: Final = frozenset({"reference", "kl"})


class Reader:
    """Reads with a Hugging Face causal language model. `within`: entered around
    every pass (an adapter switched off).

    `packed`: whether a pack of several texts goes through as one row. `known`:
    how many token ids the model has.
    """

    def __init__(self, model: Any, within: Any = nullcontext, packed: bool | None = None) -> None:
        self.model, self._within = model, within
        self._head = output_head(model)
        self._takes_places = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.known: int = model.get_input_embeddings().weight.shape[0]
        self.vocabulary: int = self._head.linear.out_features if self._head else self.known
        self.packed = self._passes_trial() if packed is None else packed

    @property
    def cost(self) -> PackCost:
        """What packs cost this model. A model that is run whole holds the
        logits of a pack, so its packs are small.
        """
        cost = _cost(self.model) if self.packed else PackCost(square=1e9)
        return cost if self._head is not None else replace(cost, most=WHOLE_NODES)

    def inside(self) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = self._within()
        return entered

    def states(self, forest: PrefixPack, nodes: np.ndarray) -> torch.Tensor:
        """`[len(nodes), width]`: what `logits` takes, at these nodes."""
        with self.inside():
            one_row = self.packed and len(forest.texts) > 1  # a text alone needs no mask
            return self._as_one_row(forest, nodes) if one_row else self._as_rows(forest, nodes)

    def logits(self, states: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """`[len(states), vocabulary]`, float32; into `out` where it serves.
        They may be written to.
        """
        if self._head is None:
            return states.to(torch.float32, copy=True)
        linear = self._head.linear
        same = out is not None and out.dtype == linear.weight.dtype and linear.bias is None
        raw = (
            torch.mm(states, linear.weight.T, out=out)
            if same
            else torch.nn.functional.linear(states, linear.weight, linear.bias)
        )
        logits: torch.Tensor = self._head.formula.logits(raw.float())
        return logits

    def _as_one_row(self, forest: PrefixPack, nodes: np.ndarray) -> torch.Tensor:
        device = self.model.device
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
        first_text = forest.first_text[nodes]
        for rows in rows_of_like_length(
            [len(path) for path in forest.paths], sorted(set(first_text.tolist()))
        ):
            length = max(len(forest.paths[row]) for row in rows)
            ids = np.zeros((len(rows), length), np.int64)
            for place, row in enumerate(rows):
                ids[place, : len(forest.paths[row])] = forest.ids[forest.paths[row]]
            here = np.flatnonzero(np.isin(first_text, rows))
            row_of = np.searchsorted(rows, first_text[here])
            device = self.model.device
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
        if self._head is not None:
            return torch.as_tensor(
                self._head.decoder(ids, use_cache=False, **known).last_hidden_state[rows, places]
            )
        if len(ids) == 1 and self._takes_places:
            return torch.as_tensor(
                self.model(ids, use_cache=False, logits_to_keep=places, **known).logits[0]
            )
        return torch.as_tensor(self.model(ids, use_cache=False, **known).logits[rows, places])

    @torch.inference_mode()
    def _passes_trial(self) -> bool:
        """Whether a small forest gives what its texts give one by one."""
        runs = self._head.decoder if self._head is not None else self.model
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
            with self.inside():
                packed, wanted = (
                    self._as_one_row(forest, nodes).float(),
                    self._as_rows(forest, nodes).float(),
                )
        except (
            ValueError,
            RuntimeError,
            TypeError,
            AttributeError,
            NotImplementedError,
            IndexError,
        ):
            return False
        return bool(
            (packed - wanted).abs().max() <= TOLERANCE.get(self.model.dtype, ROUNDER) * wanted.std()
        )


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


@dataclass(frozen=True, kw_only=True)
class PackPositions:
    """Sampled positions of a pack: `node [n]` is the row of `states` that tells
    what may stand there.

    `at`: their tokens and places, numpy `[n]` each. `texts`: what stands
    before each, where settings ask.
    """

    node: np.ndarray
    at: TokenPositions
    texts: Sequence[Text] | None = None


class Columns:
    """Reads columns off states of the policy and, where there is one, of the reference."""

    def __init__(
        self,
        policy: Reader,
        reference: Reader | None,
        settings: SamplingSettings,
        readouts: Sequence[Readout],
    ) -> None:
        self._readers = [policy] if reference is None else [policy, reference]
        self._same = reference is policy
        self._settings, self._readouts = settings, readouts
        self.standard = tuple(
            name for name in STANDARD if reference is not None or name not in OF_BOTH
        )
        self.names = (*self.standard, *(name for readout in readouts for name in readout.names))
        kind = policy.model.device.type
        self._chunk = max(
            1, CHUNK_BYTES["cpu" if kind == "cpu" else "cuda"] // (4 * policy.vocabulary)
        )
        self._buffers: dict[str, torch.Tensor] = {}

    def read(self, states: Sequence[torch.Tensor], positions: PackPositions) -> np.ndarray:
        """`[n, names]`, float64. `states`: of the policy, and of the reference."""
        order = np.argsort(positions.node, kind="stable")
        numbers = np.empty((len(order), len(self.names)))
        for rows, here in self._parts(positions.node[order], len(states[0])):
            logprobs = self._logprobs_of_both(states, rows, positions, order[here])
            numbers[order[here]] = self._numbers(
                logprobs, positions.node[order[here]] - rows.start, positions, order[here]
            )
        return numbers

    def _parts(self, node: np.ndarray, states: int) -> Iterator[tuple[slice, slice]]:
        """Chunks of states, with the sorted positions that stand at them; never
        more positions than a chunk.
        """
        first = 0
        while first < len(node):
            start = int(node[first])
            last = int(np.searchsorted(node, start + self._chunk))
            last = min(last, first + self._chunk)
            yield slice(start, int(node[last - 1]) + 1), slice(first, last)
            first = last

    def _logprobs_of_both(
        self,
        states: Sequence[torch.Tensor],
        rows: slice,
        positions: PackPositions,
        here: np.ndarray,
    ) -> list[torch.Tensor]:
        """Log-probabilities `[rows, vocabulary]` under each reader's model."""
        readers = self._readers[:1] if self._same else self._readers
        logprobs = [
            self._logprobs(reader, part[rows], number, positions, here)
            for number, (reader, part) in enumerate(zip(readers, states, strict=False))
        ]
        return logprobs * 2 if self._same else logprobs

    def _logprobs(
        self,
        reader: Reader,
        states: torch.Tensor,
        number: int,
        positions: PackPositions,
        here: np.ndarray,
    ) -> torch.Tensor:
        settings = self._settings
        logits = reader.logits(states, self._buffer("logits", states, reader.vocabulary))
        if is_whole(settings):
            logits = logits.div_(settings.temperature) if settings.temperature != 1 else logits
            return torch.log_softmax(
                logits, -1, out=self._buffer(f"spread {number}", logits, logits.shape[-1])
            )
        texts = None if positions.texts is None else [positions.texts[i] for i in here]
        return log_distribution(logits, settings, texts)

    def _buffer(self, name: str, like: torch.Tensor, width: int) -> torch.Tensor:
        """Fresh arrays of this size are mapped anew each time, which on a CPU
        costs more than the arithmetic.
        """
        if name not in self._buffers or self._buffers[name].shape[-1] != width:
            self._buffers[name] = torch.empty(
                (self._chunk, width), dtype=torch.float32, device=like.device
            )
        return self._buffers[name][: len(like)]

    def _numbers(
        self,
        logprobs: list[torch.Tensor],
        node: np.ndarray,
        positions: PackPositions,
        here: np.ndarray,
    ) -> np.ndarray:
        """`[positions, names]` of one chunk; `node`: the row of each position in the chunk."""
        device = logprobs[0].device
        rows = torch.from_numpy(node).to(device)
        at = positions.at
        near = TokenPositions(
            **{
                name: torch.from_numpy(getattr(at, name)[here]).to(device)
                for name in ("token", "trajectory", "step", "place")
            }
        )
        parts = [one[rows, near.token][:, None] for one in logprobs]
        if self._readouts:
            expanded = [_expanded(one, rows) for one in logprobs]
            reference = expanded[1] if len(expanded) > 1 else None
            extra = [
                readout(expanded[0], reference, near).reshape(len(rows), -1)
                for readout in self._readouts
            ]
        else:
            extra = []
        parts += [self._of_rows(logprobs)[rows], *extra]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def _of_rows(self, logprobs: list[torch.Tensor]) -> torch.Tensor:
        """What does not depend on the token drawn: entropy, kl, self-certainty
        and top log-probability `[rows, ..]`.

        Overwrites the distribution of the reference.
        """
        policy, size = logprobs[0], logprobs[0].shape[-1]
        top, total = policy.amax(-1), policy.sum(-1)
        if not is_whole(self._settings):
            policy = policy.clamp(min=NO_CHANCE)
        chances = torch.exp(policy, out=self._buffer("logits", policy, size))
        columns = [-torch.linalg.vecdot(chances, policy)]
        if len(logprobs) > 1:
            columns.append(
                torch.zeros_like(columns[0])
                if self._same
                else self._divergence(chances, policy, logprobs[1])
            )
        log_size = torch.log(torch.tensor(float(size), dtype=torch.float64))
        return torch.stack([*columns, -(total.double() / size) - log_size.to(total.device), top], 1)

    def _divergence(
        self, chances: torch.Tensor, policy: torch.Tensor, reference: torch.Tensor
    ) -> torch.Tensor:
        if not is_whole(self._settings):
            return torch.where(chances > 0, chances * (policy - reference), 0.0).sum(-1)
        kl: torch.Tensor = torch.linalg.vecdot(chances, reference.sub_(policy)).neg_()
        return kl


def is_whole(settings: SamplingSettings) -> bool:
    """Whether every token keeps a chance, whatever stands before it."""
    cut = settings.top_k > 0 or settings.top_p < 1
    return settings.temperature > 0 and not cut and not settings.penalises


def _expanded(logprobs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """One row a position."""
    if len(rows) == len(logprobs) and bool(
        (rows == torch.arange(len(rows), device=rows.device)).all()
    ):
        return logprobs
    return logprobs[rows]
