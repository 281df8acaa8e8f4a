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
   its AUROC there on the other tasks, with its sign kept.

PCA and mean differences are those of the tasks trained on; every figure is of
the others. Two passes over texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from crosscoders.activations.streams import Stream, difference_view
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import all_directions, encoded_blocks
from crosscoders.latents.row_groups import Contrast
from crosscoders.moments import Moments
from crosscoders.study.one_feature import Judge, Seen, View


class Variance:
    """Sum of squares about the mean of rows `[rows, width]` that come in parts."""

    def __init__(self, like: Tensor) -> None:
        self.rows = 0
        self.sums = torch.zeros(
            (2, like.shape[-1]), dtype=torch.float64, device=like.device
        )  # of values, of squares

    def add(self, rows: Tensor) -> None:
        values = rows.double()
        self.rows += len(values)
        self.sums += torch.stack([values.sum(0), values.square().sum(0)])

    def total(self) -> float:
        total, squares = self.sums.cpu()
        return float((squares - total.square() / max(self.rows, 1)).sum())


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
    learnt, judged = (Seen(stream=one, contrast=contrast) for one in (training, reported))
    for block in training.blocks():
        learnt.add(block.activations, block.rows)
    of = _accounts(dictionary, small, judged, specific)
    judge = Judge(learnt.groups(), judged.groups())

    def own_view(pairs: Tensor) -> Tensor:
        return pairs if dictionary.config.models > 1 else pairs[:, -1:]

    methods = [
        {
            "name": "dictionary",
            "features": len(dictionary.bias),
            **of["dictionary"],
            **judge.latent(dictionary, own_view),
        },
        {
            "name": "its latents specific to after",
            "features": len(specific),
            **of["specific"],
            **judge.latent(dictionary, own_view, specific),
        },
        {
            "name": "difference-SAE",
            "features": len(small.bias),
            **of["small"],
            **judge.latent(small, difference_view),
        },
        *_components(
            learnt.moments, judged.moments, small.config.k, of["dictionary"]["explained"], judge
        ),
        *_means(judged.moments, judge),
    ]
    return {
        "contrast": contrast.name if contrast else None,
        "rows": judged.moments.rows,
        "methods": methods,
        "missing": None
        if judge.both
        else "no two groups of steps are known, so nothing is told apart",
    }


@torch.no_grad()
def _accounts(
    dictionary: Dictionary, small: Dictionary, judged: Seen, specific: Sequence[int]
) -> dict[str, dict[str, float | None]]:
    """What the dictionaries explain, and their `active` latents a row; `judged`
    sees the same pass.
    """
    names = ("all", "dictionary", "specific", "small")
    left, active = {name: Variance(dictionary.centres) for name in names}, dict.fromkeys(names, 0)
    wanted = torch.zeros(len(dictionary.bias), dtype=torch.bool, device=dictionary.bias.device)
    wanted[list(specific)] = True
    for encoded in encoded_blocks(dictionary, judged.stream):
        gap = encoded.scaled[:, -1] - encoded.scaled[:, 0]
        raw = encoded.scaled / dictionary.scale
        judged.add(raw, encoded.rows)
        codes = encoded.codes
        chosen, directions = wanted[codes.latent], all_directions(dictionary, raw.shape[1])
        parts = (directions[:, -1] - directions[:, 0])[codes.latent[chosen]]
        written = torch.zeros_like(gap)
        written.index_add_(0, codes.row[chosen], parts * codes.value[chosen, None])
        there = small.scaled(difference_view(raw))
        others = small.encode(there)
        missed = there[:, 0] - small.decode(others, 0)
        for name, rows, number in (
            ("all", gap, 0),
            (
                "dictionary",
                gap - encoded.reconstructions[:, -1] + encoded.reconstructions[:, 0],
                len(codes.row),
            ),
            ("specific", gap - written, int(chosen.sum())),
            ("small", missed * (dictionary.scale / small.scale), len(others.row)),
        ):
            left[name].add(rows)
            active[name] += number
    whole, number = left["all"].total(), left["all"].rows
    return {
        name: {
            "active": active[name] / number,
            "explained": 1 - one.total() / whole if whole > 0 else None,
        }
        for name, one in left.items()
    }


def _components(
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


def _means(judged: Moments, judge: Judge) -> list[dict[str, Any]]:
    """Mean differences between the two groups of steps, as directions; none
    where there are no groups.
    """
    if judge.both is None:
        return []
    first, covariance, rows = torch.from_numpy(judge.both[0].first), judged.covariance(), []
    views: Mapping[str, View] = {
        "mean difference, after model": lambda pairs: pairs[:, -1:],
        "mean difference, of the models' difference": difference_view,
    }
    for name, view in views.items():
        values = view(judge.both[0].pairs)[:, 0].double()
        gap = values[first].mean(0) - values[~first].mean(0)
        unit, total = gap / gap.norm().clamp(min=1e-30), float(covariance.trace())
        share = float(unit @ covariance @ unit) / total if total > 0 else None
        rows.append(
            {
                "name": name,
                "features": 1,
                "active": 1,
                "explained": share,
                **judge.direction("direction", unit[None].float(), view),
            }
        )
    return rows
