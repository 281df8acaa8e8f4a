"""Which one feature of a method tells two groups of steps apart: chosen on some
tasks, judged on others.

1. `Seen` reads a stream once: moments of the models' difference, and the rows
   of both groups, thinned evenly where there are many.
2. `Judge` takes the feature whose AUROC is furthest from one half on the rows
   to choose from, and tells its AUROC on the others with its sign kept, so that
   choosing among many features gains nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.streams import Rows, Stream, difference_view
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from crosscoders.latents.row_groups import Contrast
from crosscoders.moments import Moments
from forensics.errors import MissingInput
from forensics.statistics import auroc, auroc_columns, auroc_sparse

MOST_ROWS: Final = 20_000  # of the groups
MOST_CELLS: Final = 2**27  # numbers among them
ROWS_AT_ONCE: Final = 2048
NOTHING: Final[Mapping[str, Any]] = {"feature": None, "auroc": None}
View = Callable[[Tensor], Tensor]


@dataclass(kw_only=True)
class Seen:
    """What one pass keeps: moments of the models' difference, and rows of the
    contrast's groups, thinned evenly.
    """

    stream: Stream
    contrast: Contrast | None
    moments: Moments = field(init=False)
    stride: int = 1
    number: int = 0
    pairs: list[Tensor] = field(default_factory=list)  # [rows, models, width]
    known: list[np.ndarray] = field(
        default_factory=list
    )  # [rows, (number, in the first group, text)]

    def __post_init__(self) -> None:
        self.moments = Moments(self.stream.width)

    def add(self, activations: Tensor, rows: Rows) -> None:
        self.moments.add(difference_view(activations)[:, 0])
        if self.contrast is None:
            return
        first, second = (
            one.mask(rows, self.stream.texts) for one in (self.contrast.first, self.contrast.second)
        )
        place = np.flatnonzero(first ^ second)
        numbers = self.number + np.arange(len(place))
        self.number += len(place)
        place, numbers = place[numbers % self.stride == 0], numbers[numbers % self.stride == 0]
        self.pairs.append(activations[torch.from_numpy(place).to(activations.device)].float().cpu())
        self.known.append(np.stack([numbers, first[place], rows.text[place]], axis=1))
        most = min(MOST_ROWS, max(2, MOST_CELLS // (self.stream.models * self.stream.width)))
        while sum(map(len, self.known)) > most:
            self._thin()

    def _thin(self) -> None:
        self.stride *= 2
        kept = [known[:, 0] % self.stride == 0 for known in self.known]
        self.pairs = [
            pairs[torch.from_numpy(one)] for pairs, one in zip(self.pairs, kept, strict=True)
        ]
        self.known = [known[one] for known, one in zip(self.known, kept, strict=True)]

    def groups(self) -> "Groups | None":
        """The rows kept; `None` where a group has none."""
        if not self.known:
            return None
        known = np.concatenate(self.known)
        first = known[:, 1].astype(bool)
        if first.all() or not first.any():
            return None
        return Groups(
            pairs=torch.cat(self.pairs),
            first=first,
            task=np.array([self.stream.texts[text].task for text in known[:, 2]]),
        )


@dataclass(frozen=True, kw_only=True)
class Groups:
    """`pairs [rows, models, width]`, whether each row is `first` in the
    contrast, and its `task`.
    """

    pairs: Tensor
    first: np.ndarray
    task: np.ndarray


@dataclass(frozen=True)
class Judge:
    """One feature of a method: chosen on the rows of some tasks, told on those
    of others. `feature` and `auroc` of what is found are `None` where there are
    no two groups, or nothing to choose from.
    """

    chosen: Groups | None
    told: Groups | None

    @property
    def both(self) -> tuple[Groups, Groups] | None:
        return (self.chosen, self.told) if self.chosen and self.told else None

    def latent(
        self, dictionary: Dictionary, view: View, among: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """The best latent (`among` some) of a dictionary that reads `view` of the rows."""
        latents = len(dictionary.bias)
        allowed = np.arange(latents) if among is None else np.array(list(among), dtype=int)
        if self.both is None or not len(allowed):
            return dict(NOTHING)
        chosen, told = self.both
        codes = codes_of(dictionary, view(chosen.pairs))
        row, latent, value = (part.cpu().numpy() for part in (codes.row, codes.latent, codes.value))
        areas = auroc_sparse(row, latent, value, chosen.first, latents)
        best = int(allowed[np.abs(areas[allowed] - 0.5).argmax()])
        codes = codes_of(dictionary, view(told.pairs))
        here = (codes.latent == best).cpu().numpy()
        scores = np.zeros(len(told.first))
        scores[codes.row.cpu().numpy()[here]] = codes.value.cpu().numpy()[here]
        return _judged(f"latent {best}", scores, float(areas[best]), told)

    def direction(self, name: str, directions: Tensor, view: View) -> dict[str, Any]:
        """The best of `directions [directions, width]` to project `view` of the rows on."""
        if self.both is None:
            return dict(NOTHING)
        chosen, told = self.both
        areas = auroc_columns((view(chosen.pairs)[:, 0] @ directions.T).numpy(), chosen.first)
        best = int(np.abs(areas - 0.5).argmax())
        scores = (view(told.pairs)[:, 0] @ directions[best]).numpy()
        return _judged(
            f"{name} {best + 1}" if len(directions) > 1 else name, scores, float(areas[best]), told
        )


def _judged(name: str, scores: np.ndarray, area: float, told: Groups) -> dict[str, Any]:
    try:
        found = auroc(scores if area >= 0.5 else -scores, told.first, told.task)
    except MissingInput:
        return {"feature": name, "auroc": None}
    ends = dict(zip(("estimate", "low", "high"), found.ends, strict=True))
    return {"feature": name, "auroc": ends | {"tasks": found.clusters}}


@torch.no_grad()
def codes_of(dictionary: Dictionary, rows: Tensor) -> Codes:
    """Codes of `[rows, models, width]`, some rows at a time."""
    parts = []
    for first in range(0, len(rows), ROWS_AT_ONCE):
        codes = dictionary.encode(
            dictionary.scaled(rows[first : first + ROWS_AT_ONCE].to(dictionary.bias.device))
        )
        parts.append((codes.row + first, codes.latent, codes.value))
    row, latent, value = (torch.cat(one) for one in zip(*parts, strict=True))
    return Codes(len(rows), row, latent, value)
