"""What the identity `drop <= 1 - pi` and plain binomial noise say about
published cliffs (2606.25524).

1. A position is impossible where the probability mass of its cliff tokens
   leaves less than the least reported drop.
2. The rule itself, and its exact rate of false cliffs where the potential is
   flat.
3. Dispersion of neighbouring potentials against 64 draws each.
"""

from collections.abc import Sequence

import numpy as np

DRAWS = 64
LEAST = 0.1  # no smaller drop is ever reported by the rule
Z = 1.645


def is_possible(mass: float, drop: float = LEAST) -> bool:
    """Whether tokens of probability `mass` at one prefix can have a mean drop
    of `drop` (`drop <= 1 - mass`).
    """
    return drop <= 1 - mass


def greedy_mass(entropy: float) -> float:
    """The least probability of a greedy token under an entropy in nats: `max pi >= exp(-H)`."""
    return float(np.exp(-entropy))


def threshold(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The drop that the published rule asks for, from two estimates of `DRAWS` draws each."""
    variance = (before * (1 - before) + after * (1 - after)) / DRAWS
    return np.asarray(LEAST + Z * np.sqrt(variance))


def false_rate(potential: float) -> float:
    """The probability that one token of a flat potential is called a cliff,
    exactly (two binomials).
    """
    from scipy.stats import binom

    counts = np.arange(DRAWS + 1)
    weights = binom.pmf(counts, DRAWS, potential)
    before, after = np.meshgrid(counts / DRAWS, counts / DRAWS, indexing="ij")
    called = before - after > threshold(before, after)
    return float((np.outer(weights, weights) * called).sum())


def dispersion(potentials: Sequence[float], left_out: Sequence[int] = ()) -> tuple[float, int]:
    """Squared steps over their expectation from sampling alone, and how many
    steps were used.

    `left_out`: indices t whose steps to and from t + 1 are not used. 1 means
    that neighbours differ by noise alone. Steps between two estimates of 0 or
    of 1 say nothing of noise and are not used either.
    """
    p = np.asarray(potentials, dtype=float)
    unbiased = p * (1 - p) / (DRAWS - 1)
    expected = unbiased[:-1] + unbiased[1:]
    used = (expected > 0) & ~np.isin(np.arange(len(expected)), list(left_out))
    return float((np.diff(p)[used] ** 2).sum() / expected[used].sum()), int(used.sum())
