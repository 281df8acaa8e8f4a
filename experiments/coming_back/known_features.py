"""A stream that lies in memory, and one that is made of known features."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crosscoders import Block, Rows, TextNote

WIDTH, SHARED, OWN, ACTIVE, NOISE = 64, 128, 8, 8.0, 0.05
TEXT = 64  # rows of a text, which is a task


@dataclass(frozen=True, kw_only=True)
class HeldStream:
    """`activations [rows, models, width]`, in the order that a seed fixes."""

    activations: Tensor
    rows: Rows
    texts: Sequence[TextNote]
    site: str
    identity: str
    block: int = 4096

    @classmethod
    def of(cls, held: Mapping[str, Any], site: str, name: str) -> "HeldStream":
        """Of what was kept."""
        rows = Rows(**held["rows"])
        values = held["act"].float()
        return cls(activations=values, rows=rows, texts=held["texts"], site=site, identity=name)

    def first(self, number: int) -> "HeldStream":
        """Its first rows."""
        rows = self.rows.take(slice(0, number))
        return replace(self, activations=self.activations[:number], rows=rows)

    @property
    def models(self) -> int:
        return self.activations.shape[1]

    @property
    def width(self) -> int:
        return self.activations.shape[2]

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        number = len(self.rows)
        order = np.arange(number)
        if seed is not None:
            order = np.random.default_rng(seed).permutation(number)
        whole = Block(activations=self.activations, rows=self.rows)
        return (whole.take(order[at : at + self.block]) for at in range(0, number, self.block))


def known_features(rows: int, seed: int) -> HeldStream:
    """Sums of known directions, the last `OWN` of which the after model alone has."""
    known = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(
        torch.randn((SHARED + OWN, WIDTH), generator=known), dim=-1
    )
    norms = 2 ** (torch.rand((SHARED + OWN, 1), generator=known) - 0.5)
    drawn = torch.Generator().manual_seed(seed)
    active = torch.rand((rows, SHARED + OWN), generator=drawn) < ACTIVE / (SHARED + OWN)
    value = active * (0.5 + torch.rand(active.shape, generator=drawn))
    features = directions * norms
    clean = torch.stack([value[:, :SHARED] @ features[:SHARED], value @ features], 1)
    spread = (NOISE * clean.var(0).mean()).sqrt()
    noisy = clean + spread * torch.randn(clean.shape, generator=drawn)
    text = (np.arange(rows) // TEXT).astype(np.int32)
    told = Rows(**{**vars(Rows.blank(rows)), "text": text})
    notes = [TextNote(id=f"text-{i}", task=f"task-{i}") for i in range(-(-rows // TEXT))]
    return HeldStream(
        activations=noisy, rows=told, texts=notes, site="known", identity=f"known-{seed}"
    )
