"""Paired activations of several checkpoints on the same tokens: what every method of this room reads.

A *stream* gives blocks as often as it is asked; nobody holds it whole. A block's rows are tokens; each row has one
vector a checkpoint (index 0 is before, the last is after), and says which token of which text it belongs to, so that
masks by role, step kind, channel, outcome and advantage can be made from the texts' notes.

Axes, here and everywhere in this room: `rows` (tokens), `models` (checkpoints), `width` (features of the site),
`latents`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from forensics.errors import UserError

PLAIN_TEXT = -1  # the step of a token of a text that has no steps


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """One step of a text: who wrote it, the kinds of the actions in it, the channels that it showed."""

    role: str
    kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TextNote:
    """One text. `task` is the unit of independence. `source`: which policy wrote it (`before`, `after`, ...)."""

    id: str
    task: str
    source: str = "plain"
    outcome: float | None = None
    steps: tuple[StepNote, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is known of each row, as columns `[rows]`.

    `text`: index into the stream's `texts`. `position`: of the token in its text. `token`: its id. `step`: index into
    the text's steps, or `PLAIN_TEXT`. `sampled`: drawn by the policy. `deciding`: the last token before an action's
    first one, where the next action is decided. `advantage`: NaN where none is known.
    """

    text: np.ndarray
    position: np.ndarray
    token: np.ndarray
    step: np.ndarray
    sampled: np.ndarray
    deciding: np.ndarray
    advantage: np.ndarray

    def __len__(self) -> int:
        return len(self.text)

    def take(self, chosen: np.ndarray) -> "Rows":
        """The chosen rows (indices or a mask)."""
        return Rows(**{name: column[chosen] for name, column in vars(self).items()})

    @classmethod
    def blank(cls, number: int) -> "Rows":
        """Rows of which nothing is known: one text, one after the other."""
        zero = np.zeros(number, dtype=np.int32)
        return cls(
            text=zero, position=np.arange(number, dtype=np.int32), token=zero,
            step=np.full(number, PLAIN_TEXT, dtype=np.int32), sampled=np.zeros(number, dtype=bool),
            deciding=np.zeros(number, dtype=bool), advantage=np.full(number, np.nan, dtype=np.float32),
        )


@dataclass(frozen=True, kw_only=True)
class Block:
    """`activations [rows, models, width]` and what is known of the rows."""

    activations: torch.Tensor
    rows: Rows


class Stream(Protocol):
    """Activations at one site. `blocks(seed)` is one pass: in order, or in one that the seed fixes."""

    @property
    def models(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def site(self) -> str: ...
    @property
    def texts(self) -> Sequence[TextNote]: ...
    @property
    def identity(self) -> str:
        """A hash of everything that decides the values: checkpoints, site, texts."""
        ...

    def blocks(self, seed: int | None = None) -> Iterator[Block]: ...


@dataclass(frozen=True, kw_only=True)
class HeldStream:
    """A stream that lies in memory: for tests, synthetic worlds and small studies."""

    activations: torch.Tensor  # [rows, models, width]
    rows: Rows
    texts: Sequence[TextNote] = (TextNote(id="text", task="text"),)
    site: str = "synthetic"
    identity: str = "synthetic"
    block: int = field(default=4096)

    def __post_init__(self) -> None:
        if len(self.activations) != len(self.rows):
            raise UserError(f"{len(self.activations)} activations and {len(self.rows)} rows; give one row for each")

    @property
    def models(self) -> int:
        return self.activations.shape[1]

    @property
    def width(self) -> int:
        return self.activations.shape[2]

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        number = len(self.rows)
        order = np.arange(number) if seed is None else np.random.default_rng(seed).permutation(number)
        for first in range(0, number, self.block):
            chosen = order[first : first + self.block]
            yield Block(activations=self.activations[torch.from_numpy(chosen)], rows=self.rows.take(chosen))


@dataclass(frozen=True, kw_only=True)
class ViewedStream:
    """Another stream, its blocks passed through `view`, which makes blocks of `models`. `name` ends its identity."""

    stream: Stream
    models: int
    name: str
    view: Callable[[Iterator[Block]], Iterator[Block]]

    @property
    def width(self) -> int:
        return self.stream.width

    @property
    def site(self) -> str:
        return self.stream.site

    @property
    def texts(self) -> Sequence[TextNote]:
        return self.stream.texts

    @property
    def identity(self) -> str:
        return self.stream.identity + self.name

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        return self.view(self.stream.blocks(seed))
