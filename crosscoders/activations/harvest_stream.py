"""Harvesting: several checkpoints read on the same tokens, as streams that
never hold more than a window.

1. A pass takes the texts in order, or in one that a seed fixes, a window of
   tokens at a time.
2. Inside a window texts of like length share a batch, padded on the right;
   every checkpoint reads the same batch.
3. Rows that nobody asked for are dropped before anything is copied; the others
   are checked to be finite.
4. In order, a window's rows are put back into the order of its texts; with a
   seed they go through a shuffling pool.

Several sites come from one forward pass (`Harvest.chunks`). Nothing is written
to disk: see `cache`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.model_readers import Reader, reader_of
from crosscoders.activations.streams import Block, Rows, TextNote, in_blocks, shuffled
from crosscoders.activations.texts import TokenizedText
from forensics.errors import UserError
from forensics.records import content_hash

RowFilter = Literal["all", "sampled", "deciding", "assistant"]
Sites = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """`rows`: which tokens. `skip`: first tokens of each text that are left out
    (their norms are often huge).

    `batch`: padded tokens of one forward pass. `window`: batches that are
    sorted by length together. `block`: rows of a block. `pool`: rows of the
    shuffling pool. `dtype` of the activations and the `device` that blocks lie
    on: the first checkpoint's unless given.
    """

    rows: RowFilter = "all"
    skip: int = 0
    batch: int = 8192
    window: int = 8
    block: int = 4096
    pool: int = 65536
    dtype: torch.dtype | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "window", "block", "pool"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class Harvest:
    """Checkpoints, texts and sites. Made by `harvest_sites`, which checks that
    they fit each other.
    """

    readers: Sequence[Reader]
    texts: Sequence[TokenizedText]
    sites: tuple[str, ...]
    config: HarvestConfig
    widths: Mapping[str, int]

    @cached_property
    def notes(self) -> tuple[TextNote, ...]:
        return tuple(text.note for text in self.texts)

    @cached_property
    def identity(self) -> str:
        """Of all that decides values and rows, but for the site."""
        config = self.config
        return content_hash(
            [
                [reader.identity for reader in self.readers],
                texts_hash(self.texts),
                config.rows,
                config.skip,
                str(self.dtype),
            ]
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of the activations. Unless given, of the first checkpoint as it is loaded."""
        return self.config.dtype or self.readers[0].dtype

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.device) if self.config.device else self.readers[0].device

    def stream(self, site: str | None = None) -> "HarvestStream":
        """The stream of one site (the only one unless given)."""
        if (site or self.sites[0]) not in self.sites or (site is None and len(self.sites) > 1):
            raise UserError(
                f"this harvest has the sites {', '.join(self.sites)}, not '{site}'; name one of"
                " them"
            )
        return HarvestStream(self, site or self.sites[0])

    def chunks(
        self, seed: int | None = None, *, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[Sites, Rows]]:
        """Activations `[rows, models, width]` at every site, with their rows, a
        window of texts at a time.

        In order (`seed` is `None`) the rows stand in the order of the texts,
        from text `first` to before `last`.
        """
        places = np.arange(len(self.texts))[first:last]
        if seed is not None:
            places = np.random.default_rng(seed).permutation(len(self.texts))
        for window in self._windows(places):
            batches = [self._read(batch) for batch in self._batches(window)]
            batches = [found for found in batches if len(found[1])]
            if seed is None and batches:
                rows = Rows.join([rows for _, rows in batches])
                order = np.lexsort((rows.position, rows.text))
                index = torch.from_numpy(order).to(self.device)
                joined = {
                    site: torch.cat([found[site] for found, _ in batches])[index]
                    for site in self.sites
                }
                batches = [(joined, rows.take(order))]
            yield from batches

    def _windows(self, order: np.ndarray) -> Iterator[list[int]]:
        most, window, tokens = self.config.batch * self.config.window, [], 0
        for index in order.tolist():
            window.append(index)
            tokens += len(self.texts[index])
            if tokens >= most:
                yield window
                window, tokens = [], 0
        if window:
            yield window

    def _batches(self, window: Sequence[int]) -> Iterator[list[int]]:
        """Texts of like length together; the longest decides how many fit."""
        ordered = sorted(window, key=lambda i: len(self.texts[i]))
        batch: list[int] = []
        for index in ordered:
            if batch and len(self.texts[index]) * (len(batch) + 1) > self.config.batch:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _read(self, batch: Sequence[int]) -> tuple[Sites, Rows]:
        """The chosen rows of a batch of texts, at every site."""
        texts = [self.texts[i] for i in batch]
        length = max(len(text) for text in texts)
        ids = np.zeros((len(texts), length), dtype=np.int64)
        for place, text in zip(ids, texts, strict=True):
            place[: len(text)] = text.token_ids
        kept = [np.flatnonzero(self.kept(text)) for text in texts]
        rows = Rows.join(
            [text.rows(i).take(k) for text, i, k in zip(texts, batch, kept, strict=True)]
        )
        flat = torch.from_numpy(
            np.concatenate([k + place * length for place, k in enumerate(kept)])
        )
        return self._gather(torch.from_numpy(ids), flat, rows), rows

    def kept(self, text: TokenizedText) -> np.ndarray:
        """`[tokens]`: which rows were asked for."""
        which = self.config.rows
        chosen: np.ndarray = np.ones(len(text), dtype=bool)
        if which == "assistant":  # the last stands for no step
            roles = [*(step.role == "assistant" for step in text.note.steps), False]
            chosen = np.asarray(roles)[text.step]
        elif which != "all":
            chosen = getattr(text, which).copy()
        chosen[: self.config.skip] = False
        return chosen

    def _gather(self, ids: Tensor, flat: Tensor, rows: Rows) -> Sites:
        found = {
            site: torch.empty(
                (len(flat), len(self.readers), width), dtype=self.dtype, device=self.device
            )
            for site, width in self.widths.items()
        }
        if not len(flat):
            return found
        for m, reader in enumerate(self.readers):
            index = flat.to(reader.device)
            for site, activation in zip(
                self.sites, reader.read(ids.to(reader.device), self.sites), strict=True
            ):
                chosen = activation.flatten(0, 1).index_select(0, index)
                found[site][:, m] = chosen
                if not bool(chosen.sum(dtype=torch.float32).isfinite()):
                    bad = np.flatnonzero(~chosen.isfinite().all(-1).cpu().numpy())
                    if not len(bad):
                        continue
                    text = self.texts[rows.text[bad[0]]].note.id
                    raise UserError(
                        f"checkpoint {m + 1} of {len(self.readers)} gives activations that are not"
                        f" finite at {site}, first at token {rows.position[bad[0]]} of text"
                        f" {text}; load it in float32, or leave the checkpoint out"
                    )
        return found


@dataclass(frozen=True)
class HarvestStream:
    """One site of a harvest as a `Stream`."""

    harvest: Harvest
    site: str

    @property
    def models(self) -> int:
        return len(self.harvest.readers)

    @property
    def width(self) -> int:
        return self.harvest.widths[self.site]

    @property
    def texts(self) -> Sequence[TextNote]:
        return self.harvest.notes

    @property
    def identity(self) -> str:
        return site_identity(self.harvest.identity, self.site)

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        config = self.harvest.config
        chunks = (
            Block(activations=found[self.site], rows=rows)
            for found, rows in self.harvest.chunks(seed)
        )
        blocks = in_blocks(chunks, config.block)
        return (
            blocks
            if seed is None
            else shuffled(blocks, config.pool, np.random.default_rng([seed, 1]))
        )


def harvest(
    policies: Sequence[Any],
    texts: Sequence[TokenizedText],
    site: str,
    config: HarvestConfig | None = None,
) -> HarvestStream:
    """Activations of every policy (index 0 is before) at one site, on the same
    tokens; see `harvest_sites`.
    """
    return harvest_sites(policies, texts, [site], config).stream()


def harvest_sites(
    policies: Sequence[Any],
    texts: Sequence[TokenizedText],
    sites: Sequence[str],
    config: HarvestConfig | None = None,
) -> Harvest:
    """Several sites from one pass. `policies`: Hugging Face policies, or
    `Reader`s.

    Raises `UserError` where tokenizers, widths or sites do not fit, and for a
    text that a checkpoint cannot read.
    """
    if not policies or not texts or not sites:
        raise UserError("a harvest needs a policy, a text and a site; one of them is missing")
    readers = [reader_of(policy) for policy in policies]
    first = readers[0]
    for reader in readers[1:]:
        if differing := set(first.vocabulary.items()) ^ set(reader.vocabulary.items()):
            raise UserError(
                f"the tokenizers of checkpoints {first.identity} and {reader.identity} differ (for"
                f" example at {min(differing)[0]!r}); compare checkpoints of one model family that"
                " share a tokenizer"
            )
    _require_readable(readers, texts)
    named = tuple(dict.fromkeys(sites))
    return Harvest(readers, texts, named, config or HarvestConfig(), _widths(readers, texts, named))


def texts_hash(texts: Sequence[TokenizedText]) -> str:
    """SHA-256 of every token and of what is known of it."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text.note).encode())
        for column in (text.token_ids, text.step, text.sampled, text.deciding, text.advantage):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def site_identity(harvest: str, site: str) -> str:
    """Of one site's stream."""
    return content_hash([harvest, site])


def _require_readable(readers: Sequence[Reader], texts: Sequence[TokenizedText]) -> None:
    most = min(
        (reader.positions for reader in readers if reader.positions is not None), default=None
    )
    tokens = min(reader.tokens for reader in readers)
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


def _widths(
    readers: Sequence[Reader], texts: Sequence[TokenizedText], sites: tuple[str, ...]
) -> dict[str, int]:
    """The width of every site, from one token read by each checkpoint."""
    token = torch.from_numpy(texts[0].token_ids[:1].astype(np.int64))[None]
    found = [[a.shape[-1] for a in r.read(token.to(r.device), sites)] for r in readers]
    for m, widths in enumerate(found):
        for site, first, width in zip(sites, found[0], widths, strict=True):
            if first != width:
                raise UserError(
                    f"at {site} checkpoint 1 has {first} features and checkpoint {m + 1} has"
                    f" {width}; give checkpoints of one shape"
                )
    return dict(zip(sites, found[0], strict=True))
