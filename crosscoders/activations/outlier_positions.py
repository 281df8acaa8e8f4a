"""Attention sinks and other positions whose activations are many times as large
as all others: found, named, and left out.

In most trained transformers a few positions (the first token, sometimes the first
delimiter) carry a vector hundreds of times as long as the others, which the later
layers attend to when they have nothing to attend to (attention sinks, 2309.17453;
massive activations, 2402.17762). It says next to nothing of the text, and it holds nearly
all of the variance, and of the difference between two checkpoints: whatever
explains variance explains this one position.

1. A row (one token of one text, at one site) is an *outlier* where its norm in any
   of the models is more than `TIMES` the median norm of that model at that
   site, over all rows that are surveyed. Ordinary tokens lie below 3 times it in
   the mid-network residual of the models that we have seen, sinks above 40 times.
2. `survey` takes one pass over a stream, and names what it found: how many rows in
   how many texts, at which positions, on which tokens, in which models, and which
   share of the sum of squares, of the models and of their difference, they hold.
3. Without an outlier there are no limits, and nothing that reads the stream
   differs by a bit.

An outlier that one model alone has was made or unmade by training: it is left
out as well, and `sentences` says so, since that may be the finding.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crosscoders.activations.streams import Rows, Stream
from forensics.phrases import percent, plural, printable

TIMES: Final = 10.0  # of the median norm
MOST_NAMED: Final = 5  # positions and tokens
Limits = tuple[float, ...]  # the largest norm that is no outlier, one a model
Share = float | None


@dataclass(frozen=True, kw_only=True)
class Outliers:
    """What a survey found. `limits`: of the norms, by model. `number` of `rows`
    are outliers, in `texts` of `of_texts`; `by_model`: in each model alone. `positions`,
    `tokens`: the most frequent ones, each with its number. `largest`: the largest
    norm over the median, by model. `squares`: the share of the sum of
    squares that they hold, by model; `difference`: of last less first (`None`:
    nothing differs, or there is one model).
    """

    site: str
    times: float
    limits: Limits
    rows: int
    number: int
    texts: int
    of_texts: int
    by_model: tuple[int, ...]
    positions: tuple[tuple[int, int], ...]
    tokens: tuple[tuple[int, int], ...]
    largest: tuple[float, ...]
    squares: tuple[Share, ...]
    difference: Share

    @property
    def applied(self) -> Limits | None:
        """The limits; `None` where nothing is beyond them."""
        return self.limits if self.number else None


def norms_of(activations: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
    """Float32, so that half precision cannot overflow."""
    norms: Tensor = activations.float().norm(dim=-1)
    return norms


def limits_of(norms: Float[Tensor, "rows models"], times: float = TIMES) -> Limits:
    """`times` the median norm, by model. Where more than half of the rows are
    zero there is no measure, and no limit.
    """
    medians = norms.median(dim=0).values.tolist()
    return tuple(times * one if one > 0 else float("inf") for one in medians)


def beyond(
    activations: Float[Tensor, "*rows models width"], limits: Sequence[float]
) -> Bool[Tensor, "*rows"]:
    """Which rows are outliers in any of the models."""
    allowed = torch.tensor(list(limits), device=activations.device)
    found: Tensor = (norms_of(activations) > allowed).any(-1)
    return found


def survey(stream: Stream, times: float = TIMES) -> Outliers:
    """One pass in order; a few numbers a row are kept. A stream without rows has
    no outliers.
    """
    norms, gaps, known = [torch.zeros((0, stream.models))], [torch.zeros(0)], [Rows.blank(0)]
    for block in stream.blocks():
        norms.append(norms_of(block.activations).cpu())
        gaps.append(norms_of(block.activations[:, -1] - block.activations[:, 0]).cpu())
        known.append(block.rows)
    size, gap, rows = torch.cat(norms), torch.cat(gaps), Rows.join(known)
    limits = limits_of(size, times) if len(size) else (float("inf"),) * stream.models
    over = size > torch.tensor(limits)
    chosen = over.any(-1)
    outlying = rows.take(chosen.numpy())
    relative = size / (torch.tensor(limits) / times)
    return Outliers(
        site=stream.site,
        times=times,
        limits=limits,
        rows=len(size),
        number=int(chosen.sum()),
        texts=len(np.unique(outlying.text)),
        of_texts=len(np.unique(rows.text)),
        by_model=tuple(over.sum(0).tolist()),
        positions=_frequent(outlying.position),
        tokens=_frequent(outlying.token),
        largest=tuple(relative.amax(0).tolist()) if len(size) else (0.0,) * stream.models,
        squares=tuple(_share(size[:, m], chosen) for m in range(stream.models)),
        difference=_share(gap, chosen) if stream.models > 1 else None,
    )


def _frequent(values: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Values with their number, the most frequent first, then the smallest."""
    counted = Counter(values.tolist()).items()
    return tuple(sorted(counted, key=lambda one: (-one[1], one[0]))[:MOST_NAMED])


def _share(sizes: Tensor, chosen: Tensor) -> Share:
    squares = sizes.double().square()
    total = float(squares.sum())
    return float(squares[chosen].sum()) / total if total > 0 else None


def sentences(
    found: Outliers, decode: Callable[[int], str] | None = None, kept: bool = False
) -> list[str]:
    """What a reader is told; nothing where there is no outlier. `kept`: they were not
    left out.
    """
    if not found.number:
        return []
    places = ", ".join(f"{place} ({number:,} times)" for place, number in found.positions[:2])
    tokens = ""
    if decode is not None:
        named = ", ".join(printable(repr(decode(token)), 40) for token, _ in found.tokens[:2])
        tokens = f", on {named}"
    held = percent(max((one for one in found.squares if one is not None), default=0.0))
    if found.difference is not None:
        held += f" (of the models' difference {percent(found.difference)})"
    done = "kept, as asked" if kept else "left out of what follows"
    said = [
        f"Outliers at {found.site} (attention sinks): {plural(found.number, 'row')} in"
        f" {found.texts:,} of {plural(found.of_texts, 'text')}, most often at position"
        f" {places}{tokens}, with up to {max(found.largest):,.0f} times the median norm. They are"
        f" {percent(found.number / found.rows)} of the rows and hold {held} of the sum of squares;"
        f" they are {done}."
    ]
    alone = [m for m, number in enumerate(found.by_model) if not number]
    if alone and len(found.by_model) > 1:
        said.append(
            f"Only {'the after' if 0 in alone else 'the before'} model has such outliers here, so"
            " training made or unmade them; look at them with --keep-outliers."
        )
    return said


def plain(found: Outliers, kept: bool) -> dict[str, Any]:
    """As JSON."""
    limits = [None if limit == float("inf") else limit for limit in found.limits]
    return {**vars(found), "limits": limits, "left_out": not kept}
