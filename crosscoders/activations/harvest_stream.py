"""Harvesting: several checkpoints read on the same tokens, as a stream that
never holds more than a window.

1. A pass takes the texts in order, or in one that a seed fixes, a window of
   tokens at a time.
2. Inside a window texts of like length share a batch, padded on the right;
   every checkpoint reads the same batch, as far as the site.
3. Rows that nobody asked for are dropped before anything is copied; the others
   are checked to be finite, and outliers of the norm dropped where there are
   limits (`outlier_positions`).
4. In order, a window's rows are put back into the order of its texts; with a
   seed they go through a shuffling pool.

Nothing is written to disk: each pass runs the checkpoints again.

A `Reader` reads activations on a batch of tokens (the fast path is a hook that stops
the forward pass): one checkpoint seen through one way of reading. Any way plugs in
that gives the same values: raw hooks (`reader_of`), or a LoRA pair on one copy of
the weights (`adapter_readers`): before is the model, after is the model with its
adapter switched on. The adapter's layers are put into the policy's model and left
switched off, so that the policy itself stays what it was; the reader of *after*
switches them on for the time of a forward pass. Nothing is merged, so nothing is
rounded.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.outlier_positions import Limits, beyond
from crosscoders.activations.streams import Block, Rows, TextNote, in_blocks, shuffled
from crosscoders.activations.texts import TokenizedText
from forensics.errors import UserError
from forensics.policies import require
from forensics.policies.sites import read_sites
from forensics.records import content_hash

RowFilter = Literal["all", "sampled", "deciding", "assistant"]


Read = Callable[[Tensor, Sequence[str]], list[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`read(ids [texts, positions], sites)` gives one `[texts, positions,
    width]` a site.

    Texts are padded on the right and attention looks back only, so that what
    stands behind a text cannot change it.
    `vocabulary`: token to id. `tokens`: ids below this exist. `positions`: the
    longest text, `None` where unknown.
    """

    identity: str
    read: Read
    vocabulary: Mapping[str, int]
    tokens: int
    positions: int | None
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """`rows`: which tokens. `skip`: first tokens of each text that are left out.
    `limits`: of the norm, one a model; rows beyond them are left out
    (`outlier_positions`).

    `batch`: padded tokens of one forward pass. `window`: batches that are
    sorted by length together. `block`: rows of a block. `pool`: rows of the
    shuffling pool.
    """

    rows: RowFilter = "all"
    skip: int = 0
    limits: Limits | None = None
    batch: int = 8192
    window: int = 8
    block: int = 4096
    pool: int = 65536

    def __post_init__(self) -> None:
        for name in ("batch", "window", "block", "pool"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class HarvestStream:
    """Checkpoints read at a site, as a `Stream`. Made by `harvest`, which checks
    that all fit each other. Activations have the first checkpoint's type, and lie
    on its device.
    """

    readers: Sequence[Reader]
    tokenized: Sequence[TokenizedText]
    site: str
    config: HarvestConfig
    width: int

    @property
    def models(self) -> int:
        return len(self.readers)

    @cached_property
    def texts(self) -> tuple[TextNote, ...]:
        return tuple(text.note for text in self.tokenized)

    @cached_property
    def identity(self) -> str:
        config, readers = self.config, [reader.identity for reader in self.readers]
        texts = texts_hash(self.tokenized)
        dtype = str(self.readers[0].dtype)
        limits = [] if config.limits is None else [list(config.limits)]
        every_site = content_hash([readers, texts, config.rows, config.skip, dtype, *limits])
        return content_hash([every_site, self.site])

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        blocks = in_blocks(self._chunks(seed), self.config.block)
        if seed is None:
            return blocks
        return shuffled(blocks, self.config.pool, np.random.default_rng([seed, 1]))

    def _chunks(self, seed: int | None) -> Iterator[Block]:
        """A window of texts at a time; without a seed in the order of the texts."""
        order = np.arange(len(self.tokenized))
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(order))
        for window in self._windows(order):
            blocks = [block for block in map(self._read, self._batches(window)) if len(block.rows)]
            if seed is None and blocks:
                joined = Block.join(blocks)
                blocks = [joined.take(np.lexsort((joined.rows.position, joined.rows.text)))]
            yield from blocks

    def _windows(self, order: np.ndarray) -> Iterator[list[int]]:
        most, window, tokens = self.config.batch * self.config.window, [], 0
        for index in order.tolist():
            window.append(index)
            tokens += len(self.tokenized[index])
            if tokens >= most:
                yield window
                window, tokens = [], 0
        if window:
            yield window

    def _batches(self, window: Sequence[int]) -> Iterator[list[int]]:
        """Texts of like length together; the longest decides how many fit."""
        batch: list[int] = []
        for index in sorted(window, key=lambda i: len(self.tokenized[i])):
            if batch and len(self.tokenized[index]) * (len(batch) + 1) > self.config.batch:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _read(self, batch: Sequence[int]) -> Block:
        """The chosen rows of a batch of texts."""
        texts = [self.tokenized[i] for i in batch]
        ids = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for padded, text in zip(ids, texts, strict=True):
            padded[: len(text)] = text.token_ids
        kept = [np.flatnonzero(self._kept(text)) for text in texts]
        rows = [text.rows(i).take(k) for text, i, k in zip(texts, batch, kept, strict=True)]
        flat = np.concatenate([k + place * ids.shape[1] for place, k in enumerate(kept)])
        return self._gather(torch.from_numpy(ids), torch.from_numpy(flat), Rows.join(rows))

    def _kept(self, text: TokenizedText) -> np.ndarray:
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

    def _gather(self, ids: Tensor, flat: Tensor, rows: Rows) -> Block:
        """`flat`: where the rows stand in the padded `ids`."""
        shape = (len(flat), len(self.readers), self.width)
        first = self.readers[0]
        activations = torch.empty(shape, dtype=first.dtype, device=first.device)
        for m, reader in enumerate(self.readers if len(flat) else ()):
            (found,) = reader.read(ids.to(reader.device), [self.site])
            chosen = found.flatten(0, 1).index_select(0, flat.to(reader.device))
            activations[:, m] = chosen
            if not bool(chosen.sum(dtype=torch.float32).isfinite()):
                bad = np.flatnonzero(~chosen.isfinite().all(-1).cpu().numpy())
                if not len(bad):
                    continue
                text = self.texts[rows.text[bad[0]]].id
                raise UserError(
                    f"checkpoint {m + 1} of {len(self.readers)} gives activations that are not"
                    f" finite at {self.site}, first at token {rows.position[bad[0]]} of text"
                    f" {text}; load it in float32, or leave the checkpoint out"
                )
        block = Block(activations=activations, rows=rows)
        if self.config.limits is None:
            return block
        return block.take(np.flatnonzero(~beyond(activations, self.config.limits).cpu().numpy()))


def harvest(
    policies: Sequence[Any],
    texts: Sequence[TokenizedText],
    site: str,
    config: HarvestConfig | None = None,
) -> HarvestStream:
    """Activations of every policy (index 0 is before) at one site, on the same
    tokens. `policies`: Hugging Face policies, or `Reader`s.

    Raises `UserError` where tokenizers, widths or the site do not fit, and for a
    text that a checkpoint cannot read.
    """
    if not policies or not texts or not site:
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
    token = torch.from_numpy(texts[0].token_ids[:1].astype(np.int64))[None]
    widths = [reader.read(token.to(reader.device), [site])[0].shape[-1] for reader in readers]
    for m, width in enumerate(widths):
        if width != widths[0]:
            raise UserError(
                f"at {site} checkpoint 1 has {widths[0]} features and checkpoint {m + 1} has"
                f" {width}; give checkpoints of one shape"
            )
    return HarvestStream(readers, texts, site, config or HarvestConfig(), widths[0])


def texts_hash(texts: Sequence[TokenizedText]) -> str:
    """SHA-256 of every token and of what is known of it."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text.note).encode())
        for column in (text.token_ids, text.step, text.sampled, text.deciding, text.advantage):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


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


WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def reader_of(policy: Any) -> Reader:
    """A local policy read through raw hooks. A `Reader` is given back as it is."""
    if isinstance(policy, Reader):
        return policy
    require(policy, "weights", "tokens", task="reading activations of batches")
    return Reader(
        identity=policy.identity,
        read=lambda ids, sites: read_sites(policy.model, ids, sites),
        vocabulary=policy.tokenizer.get_vocab(),
        tokens=policy.model.get_input_embeddings().num_embeddings,
        positions=policy.context_length,
        device=policy.model.device,
        dtype=policy.model.dtype,
    )


def adapter_readers(policy: Any, *adapters: Path | str) -> list[Reader]:
    """Readers of a policy and of it with each adapter in turn, all on the
    policy's own weights.

    `adapters`: folders that peft's `save_pretrained` wrote. Raises `UserError`
    for one that is no such folder, does not fit the model, or does more than
    change the model's layers (a prompt that is learned changes the tokens).
    """
    before = reader_of(policy)
    found, wrapped = [before], None
    for number, adapter in enumerate(adapters):
        folder, name = Path(adapter).expanduser(), f"adapter{number}"
        for file in (CONFIG, WEIGHTS):
            if not (folder / file).is_file():
                raise UserError(
                    f"{folder} has no {file}; give a folder that peft's save_pretrained wrote"
                )
        wrapped = _put_in(wrapped or policy.model, folder, name, first=wrapped is None)
        files = [sha256((folder / file).read_bytes()).hexdigest() for file in (CONFIG, WEIGHTS)]
        identity = content_hash([policy.identity, *files])
        found.append(_switched(policy, wrapped, name, before, identity))
    return found


def _switched(policy: Any, wrapped: Any, name: str, before: Reader, identity: str) -> Reader:
    def read(ids: Tensor, sites: Sequence[str]) -> list[Tensor]:
        wrapped.set_adapter(name)
        wrapped.base_model.enable_adapter_layers()
        try:
            return read_sites(policy.model, ids, sites)
        finally:
            wrapped.base_model.disable_adapter_layers()

    return Reader(**vars(before) | {"identity": identity, "read": read})


def _put_in(model: Any, folder: Path, name: str, first: bool) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError("adapters need peft; install it with: pip install peft") from None
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wrapped: Any = (
                PeftModel.from_pretrained(model, str(folder), adapter_name=name) if first else model
            )
            if not first:
                wrapped.load_adapter(str(folder), adapter_name=name)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(
            f"the adapter {folder} does not fit the model ({error}); give the model it was"
            " trained on"
        ) from error
    if any("missing adapter keys" in str(warning.message) for warning in said):
        raise UserError(
            f"the adapter {folder} lacks weights that its {CONFIG} names; save the adapter again"
        )
    wrapped.requires_grad_(False).eval()
    wrapped.base_model.disable_adapter_layers()
    return wrapped
