"""Simpler methods on the same stream, beside the dictionary: what a crosscoder
must beat to be worth its trouble.

1. Methods: the dictionary (all its latents; those specific to after alone), a
   small sparse dictionary of the models' difference that was trained beside it,
   PCA of the difference (as many components as that one has active latents, and
   as many as explain what the dictionary does), the mean difference between two
   groups of steps.
2. Explained: the share of the variance of the models' difference `d = h_after -
   h_before` that a method's account of it leaves out, taken from one: `1 - sum
   |r - mean r|^2 / sum |d - mean d|^2`. To say nothing has 0, to say all 1.
3. Separates: each method names one feature, whose AUROC between the two groups
   of steps is furthest from one half on the tasks that were trained on; told is
   its AUROC there on the other tasks, with its sign kept, so that choosing among
   many features gains nothing. Many rows are thinned evenly.

PCA and mean differences are those of the tasks trained on; every figure is of
the others.

`principal_components(stream)`: PCA of the models' difference from a streaming covariance.
Sums are in double precision about the first block's mean, so that a large common part does
not eat the digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Block, Stream, View, difference_view
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.latents.row_groups import Contrast
from forensics.errors import MissingInput, UserError
from forensics.statistics import auroc, auroc_columns, auroc_sparse


@dataclass(frozen=True)
class PrincipalComponents:
    """PCA: `directions` as rows by falling `variances`, in raw units squared."""

    mean: Float[Tensor, " width"]
    directions: Float[Tensor, "width width"]
    variances: Float[Tensor, " width"]


class Moments:
    """Mean and covariance of rows `[rows, width]` that come in parts; `width^2`
    memory, double precision.
    """

    def __init__(self, width: int) -> None:
        self.rows = 0
        self.shift: Tensor | None = None
        self.first = torch.zeros(width, dtype=torch.float64)
        self.second = torch.zeros((width, width), dtype=torch.float64)

    def add(self, values: Float[Tensor, "rows width"]) -> None:
        values = values.to("cpu", torch.float64)
        self.shift = values.mean(0) if self.shift is None else self.shift
        values = values - self.shift
        self.rows += len(values)
        self.first += values.sum(0)
        self.second += values.T @ values

    def mean(self) -> Float[Tensor, " width"]:
        """Of no rows, zero."""
        mean = self.first / max(self.rows, 1)
        return mean if self.shift is None else mean + self.shift

    def covariance(self) -> Float[Tensor, "width width"]:
        """Of the rows as they are (divided by their number)."""
        mean = self.first / max(self.rows, 1)
        return self.second / max(self.rows, 1) - torch.outer(mean, mean)

    def components(self) -> PrincipalComponents:
        """PCA of the rows."""
        eigen = torch.linalg.eigh(self.covariance())
        return PrincipalComponents(
            self.mean(), eigen.eigenvectors.T.flip(0), eigen.eigenvalues.flip(0).clamp(min=0)
        )


def principal_components(stream: Stream) -> PrincipalComponents:
    """PCA of the difference (or of the stream itself, if it has one model); one
    pass, `width^2` memory.
    """
    moments = moments_of(stream)
    if moments.rows < 2:
        raise UserError(
            f"the stream at {stream.site} gave {moments.rows} rows; principal parts need at least 2"
        )
    return moments.components()


MOST_ROWS: Final = 20_000  # of the groups
MOST_CELLS: Final = 2**27  # numbers among them
ROWS_AT_ONCE: Final = 2048


@dataclass(frozen=True, kw_only=True)
class Groups:
    """`pairs [rows, models, width]`, whether each row is `first` in the
    contrast, and its `task`.
    """

    pairs: Tensor
    first: np.ndarray
    task: np.ndarray


def moments_of(stream: Stream) -> Moments:
    """Of the models' difference (or of the stream itself, if it has one model)."""
    moments = Moments(stream.width)
    for block in stream.blocks():
        rows = block.activations
        moments.add((difference_view(rows) if stream.models > 1 else rows)[:, 0])
    return moments


def groups_of(stream: Stream, contrast: Contrast | None) -> Groups | None:
    """Rows of the contrast's groups, thinned evenly; `None` where a group has none."""
    if contrast is None:
        return None

    def chosen(block: Block) -> np.ndarray:
        groups = (contrast.first, contrast.second)
        first, second = (group.mask(block.rows, stream.texts) for group in groups)
        return np.flatnonzero(first ^ second)

    number = sum(len(chosen(block)) for block in stream.blocks())
    most, stride = min(MOST_ROWS, max(2, MOST_CELLS // (stream.models * stream.width))), 1
    while -(-number // stride) > most:
        stride *= 2
    kept, passed = [], 0
    for block in stream.blocks():
        places = chosen(block)
        kept.append(block.take(places[-passed % stride :: stride]))
        passed += len(places)
    if not number:
        return None
    whole = Block.join(kept)
    first = contrast.first.mask(whole.rows, stream.texts)
    if first.all() or not first.any():
        return None
    tasks = np.array([text.task for text in stream.texts])
    return Groups(pairs=whole.activations.float().cpu(), first=first, task=tasks[whole.rows.text])


@dataclass(frozen=True)
class Judge:
    """One feature of a method: `chosen` on the rows of some tasks, `told` on those
    of others. `feature` and `auroc` of what is found are `None` where there are
    no two groups, or nothing to choose from.
    """

    chosen: Groups | None
    told: Groups | None

    def latent(
        self,
        dictionary: Dictionary,
        among: Sequence[int] | None = None,
        view: View = lambda pairs: pairs,
    ) -> dict[str, Any]:
        """The best latent (`among` some) of a dictionary that reads `view` of the rows."""
        latents = len(dictionary.bias)
        allowed = np.arange(latents) if among is None else np.array(list(among), dtype=int)
        if self.chosen is None or self.told is None or not len(allowed):
            return {"feature": None, "auroc": None}
        row, latent, value = _codes(dictionary, view(self.chosen.pairs))
        areas = auroc_sparse(row, latent, value, self.chosen.first, latents)
        best = int(allowed[np.abs(areas[allowed] - 0.5).argmax()])
        row, latent, value = _codes(dictionary, view(self.told.pairs))
        scores = np.zeros(len(self.told.first))
        scores[row[latent == best]] = value[latent == best]
        return _judged(f"latent {best}", scores, float(areas[best]), self.told)

    def direction(self, name: str, directions: Tensor, view: View) -> dict[str, Any]:
        """The best of `directions [directions, width]` to project `view` of the rows on."""
        if self.chosen is None or self.told is None:
            return {"feature": None, "auroc": None}
        along = view(self.chosen.pairs)[:, 0] @ directions.T
        areas = auroc_columns(along.numpy(), self.chosen.first)
        best = int(np.abs(areas - 0.5).argmax())
        scores = (view(self.told.pairs)[:, 0] @ directions[best]).numpy()
        name = f"{name} {best + 1}" if len(directions) > 1 else name
        return _judged(name, scores, float(areas[best]), self.told)


def _judged(name: str, scores: np.ndarray, area: float, told: Groups) -> dict[str, Any]:
    try:
        found = auroc(scores if area >= 0.5 else -scores, told.first, told.task)
    except MissingInput:
        return {"feature": name, "auroc": None}
    ends = dict(zip(("estimate", "low", "high"), found.ends, strict=True))
    return {"feature": name, "auroc": ends | {"tasks": found.clusters}}


@torch.no_grad()
def _codes(dictionary: Dictionary, rows: Tensor) -> list[np.ndarray]:
    """Row, latent and value of every active latent of `[rows, models, width]`; a dictionary of
    one model reads the last.
    """
    rows = rows[:, -dictionary.config.models :]
    parts = []
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[first : first + ROWS_AT_ONCE].to(dictionary.bias.device)
        codes = dictionary.encode(dictionary.scaled(part))
        parts.append((codes.row + first, codes.latent, codes.value))
    return [torch.cat(one).cpu().numpy() for one in zip(*parts, strict=True)]


def compared(
    dictionary: Dictionary,
    small: Dictionary,
    training: Stream,
    reported: Stream,
    contrast: Contrast | None,
    specific: Sequence[int],
) -> dict[str, Any]:
    """`baselines.json`: a row for each method. `small`: the dictionary of the
    difference. `specific`: latents.
    """
    learnt, judged = moments_of(training), moments_of(reported)
    (variance, *left), (_, *active) = _left_over(dictionary, small, reported, specific)
    judge = Judge(groups_of(training, contrast), groups_of(reported, contrast))

    methods = [
        {
            "name": name,
            "features": features,
            "active": many,
            "explained": 1 - rest / variance if variance > 0 else None,
            **feature,
        }
        for rest, many, (name, features, feature) in zip(
            left,
            active,
            (
                ("dictionary", len(dictionary.bias), judge.latent(dictionary)),
                (
                    "its latents specific to after",
                    len(specific),
                    judge.latent(dictionary, specific),
                ),
                ("difference-SAE", len(small.bias), judge.latent(small, view=difference_view)),
            ),
            strict=True,
        )
    ]
    equal = methods[0]["explained"]
    methods += components(learnt, judged, small.config.k, equal, judge)
    methods += mean_differences(judged, judge)
    told = judge.chosen and judge.told
    return {
        "contrast": contrast.name if contrast else None,
        "rows": judged.rows,
        "methods": methods,
        "missing": None if told else "no two groups of steps are known, so nothing is told apart",
    }


@torch.no_grad()
def _left_over(
    dictionary: Dictionary, small: Dictionary, stream: Stream, specific: Sequence[int]
) -> tuple[list[float], list[float]]:
    """The variance of the models' difference, and what of it is left over by the dictionary, by
    its `specific` latents, and by the small one; and how many latents of each are active a row.
    """
    wanted = torch.zeros(len(dictionary.bias), dtype=torch.bool, device=dictionary.bias.device)
    wanted[list(specific)] = True
    apart = dictionary.directions(stream.models)
    sums = torch.zeros((4, 2, stream.width), dtype=torch.float64, device=wanted.device)
    active, number = torch.zeros(4, dtype=torch.int64), 0
    for encoded in encoded_blocks(dictionary, stream):
        gap = encoded.scaled[:, -1] - encoded.scaled[:, 0]
        codes, given = encoded.codes, encoded.reconstructions
        chosen = wanted[codes.latent]
        parts = (apart[:, -1] - apart[:, 0])[codes.latent[chosen]]
        written = torch.zeros_like(gap)
        written.index_add_(0, codes.row[chosen], parts * codes.value[chosen, None])
        there = small.scaled(difference_view(encoded.scaled / dictionary.scale))
        others: Codes = small.encode(there)
        missed = (there[:, 0] - small.decode(others, 0)) * (dictionary.scale / small.scale)
        left = torch.stack([gap, gap - given[:, -1] + given[:, 0], gap - written, missed]).double()
        sums += torch.stack([left.sum(1), left.square().sum(1)], 1)
        active += torch.tensor([0, len(codes.row), int(chosen.sum()), len(others.row)])
        number += len(gap)
    total, squares = sums.cpu().unbind(1)
    variances = (squares - total.square() / max(number, 1)).sum(1)
    return variances.tolist(), (active.double() / max(number, 1)).tolist()


def components(
    learnt: Moments, judged: Moments, few: int, equal: float | None, judge: Judge
) -> list[dict[str, Any]]:
    """PCA of the difference by `few` components, and by as many as explain the share `equal`."""
    directions, covariance = learnt.components().directions, judged.covariance()
    along = torch.einsum("cw,wv,cv->c", directions, covariance, directions).cumsum(0)
    total = float(covariance.trace())
    if total <= 0 or equal is None:
        return []
    shares = along / total
    rank = min(int((shares < equal).sum()) + 1, len(shares))
    return [
        {
            "name": name,
            "features": number,
            "active": number,
            "explained": float(shares[number - 1]),
            **judge.direction("component", directions[:number].float(), difference_view),
        }
        for name, number in (
            ("PCA of the difference", min(few, len(shares))),
            ("PCA of equal error", rank),
        )
    ]


def mean_differences(judged: Moments, judge: Judge) -> list[dict[str, Any]]:
    """Mean differences between the two groups of steps, as directions; none
    where there are no groups.
    """
    if judge.chosen is None or judge.told is None:
        return []
    first, covariance, rows = torch.from_numpy(judge.chosen.first), judged.covariance(), []
    total = float(covariance.trace())
    views: dict[str, View] = {
        "mean difference, after model": lambda pairs: pairs[:, -1:],
        "mean difference, of the models' difference": difference_view,
    }
    for name, view in views.items():
        values = view(judge.chosen.pairs)[:, 0].double()
        gap = values[first].mean(0) - values[~first].mean(0)
        unit = gap / gap.norm().clamp(min=1e-30)
        share = float(unit @ covariance @ unit) / total if total > 0 else None
        about = {"name": name, "features": 1, "active": 1, "explained": share}
        rows.append(about | judge.direction("direction", unit[None].float(), view))
    return rows
