"""Permutation tests whose unit is the task, the divergence they are mostly used
on, and the false discovery rate over many tests.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forensics.errors import MissingInput

Floats = NDArray[np.float64]
EXACT_UP_TO = 12  # tasks; 4,096 sign patterns
TIES = 1e-12
FLIPS_AT_ONCE = 1000


def sign_flip_test(
    differences: Floats, generator: np.random.Generator, *, repeats: int = 9999
) -> float:
    """Two-sided p-value that the mean of paired `differences [tasks]` is zero,
    by flipping signs.

    Exact for up to 12 tasks, otherwise from `repeats` draws with the observed
    one counted, so that the p-value is never 0 and never too small. Raises
    `MissingInput` without tasks.
    """
    values = np.asarray(differences, float)
    if values.size == 0:
        raise MissingInput(
            "There is no paired difference to test.", "Run the same tasks on both sides."
        )
    observed = abs(values.sum()) - TIES
    if values.size <= EXACT_UP_TO:
        patterns = np.array(list(product((-1.0, 1.0), repeat=values.size)))
        return float((np.abs(patterns @ values) >= observed).mean())
    hits = 0
    for start in range(0, repeats, FLIPS_AT_ONCE):
        flips = generator.integers(
            0, 2, size=(min(FLIPS_AT_ONCE, repeats - start), values.size), dtype=np.int8
        )
        hits += int((np.abs((2.0 * flips - 1.0) @ values) >= observed).sum())
    return (1 + hits) / (1 + repeats)


def permutation_test(
    first: Floats,
    second: Floats,
    statistic: Callable[[Floats, Floats], float],
    generator: np.random.Generator,
    *,
    repeats: int = 999,
    paired: bool = True,
) -> float:
    """P-value of `statistic(first, second)` (large is extreme) against
    exchanging tasks between the sides.

    `first`, `second [tasks, ...]`. Paired: the same tasks in the same order,
    the two sides of a task are swapped. Otherwise whole tasks are dealt anew to
    two samples of the same sizes. Raises `ValueError` where paired sides differ
    in shape.
    """
    if paired and first.shape != second.shape:
        raise ValueError(
            f"paired sides differ in shape: {first.shape} and {second.shape}; give the same tasks"
            " to both"
        )
    observed = statistic(first, second) - TIES
    everything, shape = np.concatenate([first, second]), (len(first),) + (1,) * (first.ndim - 1)
    hits = 0
    for _ in range(repeats):
        if paired:
            swap = generator.random(shape) < 0.5
            deal = np.where(swap, second, first), np.where(swap, first, second)
        else:
            order = generator.permutation(len(everything))
            deal = everything[order[: len(first)]], everything[order[len(first) :]]
        hits += int(statistic(*deal) >= observed)
    return (1 + hits) / (1 + repeats)


def jensen_shannon(first: ArrayLike, second: ArrayLike) -> float | None:
    """Jensen-Shannon divergence of two vectors of counts or weights `[kinds]`,
    in bits: 0 equal, 1 disjoint.

    `None` where a side has no counts at all: a mix of nothing is not a mix. No
    smoothing.
    """
    left, right = np.asarray(first, float), np.asarray(second, float)
    if left.sum() <= 0 or right.sum() <= 0:
        return None
    left, right = left / left.sum(), right / right.sum()
    middle = (left + right) / 2
    return max(0.0, 0.5 * _divergence(left, middle) + 0.5 * _divergence(right, middle))


def _divergence(mix: Floats, reference: Floats) -> float:
    """Kullback-Leibler divergence in bits; the reference is positive wherever the mix is."""
    some = mix > 0
    return float((mix[some] * np.log2(mix[some] / reference[some])).sum())


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values `[tests]` (Benjamini and Hochberg 1995): reject where
    they are at most the wanted rate.
    """
    p = np.asarray(p_values, float)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise ValueError(
            "a p-value lies outside [0, 1]; leave tests that could not be made out of the list"
        )
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0)
    return adjusted


def e_benjamini_hochberg(e_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted values `[tests]` from e-values (Wang and Ramdas 2022, arXiv
    2009.02824).

    Reject where they are at most the wanted rate. Valid under any dependence
    and under adaptive stopping.
    """
    e = np.asarray(e_values, float)
    if e.size and not (e >= 0).all():
        raise ValueError(
            "an e-value is negative or missing; leave tests that could not be made out of the list"
        )
    with np.errstate(divide="ignore"):
        return benjamini_hochberg(np.minimum(1 / e, 1.0))
