"""Many tests at once: false discovery rate over all of them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values `[tests]` (Benjamini and Hochberg 1995): reject where they are at most the wanted rate."""
    p = np.asarray(p_values, float)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p-value lies outside [0, 1]; leave tests that could not be made out of the list")
    order = np.argsort(p)
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    return _unsorted(np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0), order)


def e_benjamini_hochberg(e_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted values `[tests]` from e-values (Wang and Ramdas 2022, arXiv 2009.02824).

    Reject where they are at most the wanted rate. Valid under any dependence and under adaptive stopping.
    """
    e = np.asarray(e_values, float)
    if e.size and not (e >= 0).all():
        raise ValueError("an e-value is negative or missing; leave tests that could not be made out of the list")
    order = np.argsort(-e)
    with np.errstate(divide="ignore"):
        ranked = len(e) / (np.arange(1, len(e) + 1) * e[order])
    return _unsorted(np.minimum(np.minimum.accumulate(ranked[::-1])[::-1], 1.0), order)


def _unsorted(values: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
    result = np.empty_like(values)
    result[order] = values
    return result
