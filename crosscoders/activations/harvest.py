"""Harvest: checkpoints read on the same tokens, once, into a store.

1. Texts are taken in their order, a window of tokens at a time; a window is a shard
   of the store, and what the store has of a checkpoint is not read again.
2. Inside a window texts of like length share a batch, padded on the right, which cannot
   change what stands before; a checkpoint reads it as far as the site.
3. Rows that nobody asked for are dropped before anything is copied; the others are
   checked to be finite, and stored as they are.

Any policy with weights in this process is read: a checkpoint, a model of TransformerLens or
nnsight, or a model whose adapter `policy_from(..., within=...)` switches off, so that a LoRA
pair needs one copy of the weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.activation_store import (
    StoredStream,
    TemporaryPlace,
    batches,
    read_shard,
    require_room,
    windows,
    write_shard,
)
from crosscoders.activations.texts import TokenizedText, texts_hash
from forensics.errors import UserError
from forensics.policies import read_sites, require
from forensics.progress import Progress, silent, ticking
from forensics.records import content_hash

RowFilter = Literal["all", "sampled", "deciding", "assistant"]


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """`rows`: which tokens. `skip`: first tokens of each text that are left out. `batch`:
    padded tokens of one forward pass. `window`: batches that are sorted by length
    together and written as one shard.
    """

    rows: RowFilter = "all"
    skip: int = 0
    batch: int = 8192
    window: int = 8

    def __post_init__(self) -> None:
        if min(self.batch, self.window) < 1:
            raise UserError(f"batch is {self.batch}, window is {self.window}; give at least 1")

    def tokens(self, text: TokenizedText) -> np.ndarray:
        """Which tokens of a text become rows."""
        chosen: np.ndarray = np.ones(len(text), dtype=bool)
        if self.rows == "assistant":  # the last stands for no step
            roles = [*(step.role == "assistant" for step in text.note.steps), False]
            chosen = np.asarray(roles)[text.step]
        elif self.rows != "all":
            chosen = getattr(text, self.rows)
        return np.flatnonzero(chosen[self.skip :]) + self.skip


@dataclass(frozen=True)
class Window:
    """Consecutive texts, with the `tokens` of each that become rows."""

    texts: Sequence[TokenizedText]
    tokens: Sequence[np.ndarray]

    @property
    def rows(self) -> list[int]:
        """How many, by text."""
        return [*map(len, self.tokens)]


@dataclass(frozen=True)
class Side:
    """One checkpoint at a site: `row` is one of its rows, `folder` that of its shards."""

    policy: Any
    row: Tensor
    site: str
    batch: int
    folder: Path

    @classmethod
    def opened(
        cls, policy: Any, text: TokenizedText, site: str, batch: int, store: Path, asked: str
    ) -> "Side":
        """Of a policy that reads the first token of a text, and in a store the folder of what is
        `asked` of it.
        """
        first = torch.from_numpy(text.token_ids[:1].astype(np.int64))[None]
        row = read_rows(policy, first, site)
        key = content_hash([policy.identity, str(row.dtype), asked])
        return cls(policy, row, site, batch, store / key)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.safetensors"

    def missing(self, windows: Sequence[Window]) -> int:
        """Bytes of the windows that the store does not have."""
        there = (self.path(number).is_file() for number in range(len(windows)))
        rows = sum(sum(one.rows) for one, known in zip(windows, there, strict=True) if not known)
        return rows * self.row.shape[1] * self.row.element_size()

    def rows(
        self, number: int, window: Window, tick: Callable[[int], None] = lambda texts: None
    ) -> tuple[Tensor, ...]:
        """Those of a window by text `[rows, width]`, mapped; read now where they are missing.
        `tick` hears of how many texts more.
        """
        path = self.path(number)
        if path.is_file():
            tick(len(window.texts))
        else:
            write_shard(path, self.read(window, tick))
        return torch.split(read_shard(path, sum(window.rows), self.row), window.rows)

    def read(self, window: Window, tick: Callable[[int], None] = lambda texts: None) -> Tensor:
        """The rows `[rows, width]` of a window, in the order of its texts."""
        lengths = [*map(len, window.texts)]
        found: dict[int, Tensor] = {}
        for members in batches(range(len(lengths)), lengths, self.batch):
            ids = np.zeros((len(members), max(lengths[i] for i in members)), dtype=np.int64)
            for padded, i in zip(ids, members, strict=True):
                padded[: lengths[i]] = window.texts[i].token_ids
            flat = [window.tokens[i] + at * ids.shape[1] for at, i in enumerate(members)]
            chosen = torch.from_numpy(np.concatenate(flat))
            seen = read_rows(self.policy, torch.from_numpy(ids), self.site)
            rows = seen.index_select(0, chosen.to(seen.device)).cpu()
            found |= zip(members, rows.split([len(one) for one in flat]), strict=True)
            tick(len(members))
        whole = torch.cat([found[i] for i in range(len(lengths))])
        if not bool(whole.sum(dtype=torch.float32).isfinite()):
            self._require_finite(whole, window)
        return whole

    def _require_finite(self, rows: Tensor, window: Window) -> None:
        bad = np.flatnonzero(~rows.isfinite().all(-1).numpy())
        if not len(bad):
            return
        ends = np.cumsum(window.rows)
        text = int(np.searchsorted(ends, bad[0], side="right"))
        token = window.tokens[text][bad[0] - ends[text] + window.rows[text]]
        raise UserError(
            f"checkpoint {self.policy.identity} gives activations that are not finite at"
            f" {self.site}, first at token {token} of text {window.texts[text].note.id}; load it in"
            " float32, or leave the checkpoint out"
        )


def read_rows(policy: Any, ids: Tensor, site: str) -> Tensor:
    """Activations `[texts * positions, width]` of token ids `[texts, positions]`."""
    with policy.within():
        (found,) = read_sites(policy.model, ids.to(policy.model.device), [site])
    return found.flatten(0, 1)


def harvest(
    policies: Sequence[Any],
    texts: Sequence[TokenizedText],
    site: str,
    config: HarvestConfig | None = None,
    *,
    store: Path | None = None,
    progress: Progress = silent,
) -> StoredStream:
    """Activations of every policy (index 0 is before) at one site, on the same tokens.

    `store`: the folder that keeps them (default: a temporary one, for as long as the
    stream lives). Raises `UserError` where tokenizers, widths or the site do not fit, for a
    text that a checkpoint cannot read and for activations that are not finite, and
    `OutsideFailure` where the disk has no room.
    """
    config = config or HarvestConfig()
    if not policies or not texts or not site:
        raise UserError("a harvest needs a policy, a text and a site; one of them is missing")
    _require_readable(policies, texts)
    tokens = [config.tokens(text) for text in texts]
    parts = windows(range(len(texts)), [*map(len, texts)], config.batch * config.window)
    read = [Window([texts[i] for i in part], [tokens[i] for i in part]) for part in parts]
    place = TemporaryPlace() if store is None else None
    folder = place.path if place else Path(store or "")
    asked = content_hash([site, texts_hash(texts, tokens), config.batch, config.window])
    sides = [
        Side.opened(policy, texts[0], site, config.batch, folder, asked) for policy in policies
    ]
    widths = [side.row.shape[1] for side in sides]
    if len(set(widths)) > 1:
        raise UserError(
            f"at {site} the checkpoints have {' and '.join(map(str, widths))} features; give"
            " checkpoints of one shape"
        )
    require_room(folder, sum(side.missing(read) for side in sides))
    values: list[tuple[Tensor, ...]] = []
    tick = ticking(progress, "reading activations", len(texts) * len(sides))
    for number, window in enumerate(read):
        values += zip(*(side.rows(number, window, tick) for side in sides), strict=True)
    return StoredStream(
        tokenized=texts,
        values=values,
        tokens=tokens,
        chosen=[np.arange(len(one)) for one in tokens],
        site=site,
        width=widths[0],
        models=len(sides),
        identity=content_hash([[side.folder.name for side in sides], texts_hash(texts)]),
        batch=config.batch,
        window=config.window,
        place=place,
    )


def _require_readable(policies: Sequence[Any], texts: Sequence[TokenizedText]) -> None:
    for policy in policies:
        require(policy, "weights", "tokens", task="reading activations of batches")
        words, others = (set(one.tokenizer.get_vocab().items()) for one in (policies[0], policy))
        if differing := words ^ others:
            raise UserError(
                f"the tokenizers of checkpoints {policies[0].identity} and {policy.identity} differ"
                f" (for example at {min(differing)[0]!r}); compare checkpoints of one model family"
                " that share a tokenizer"
            )
    lengths = [policy.context_length for policy in policies]
    most = min((length for length in lengths if length is not None), default=None)
    tokens = min(policy.model.get_input_embeddings().num_embeddings for policy in policies)
    for text in texts:
        if most is not None and len(text) > most:
            raise UserError(
                f"text {text.note.id} has {len(text)} tokens and a checkpoint was made for {most} "
                "positions; cut it into pieces"
            )
        if len(text) and not 0 <= text.token_ids.min() <= text.token_ids.max() < tokens:
            raise UserError(
                f"text {text.note.id} holds token {text.token_ids.max()} and a checkpoint has"
                f" {tokens} tokens; tokenise the texts with the checkpoints' own tokenizer"
            )
