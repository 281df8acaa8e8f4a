"""Random solvable traces with planted cliffs, and published ways to find cliffs to
be compared with.

1. `long_trace`: 300 tokens, a quarter of them uncertain, the potential drifting
   slowly everywhere, 0 to 3 cliffs of 0.2 to 0.6. A drop of d needs `1 - pi >=
   d / (1 - p_after)`, so a cliff's token gets a probability that allows it.
2. `flat_trace`: the same tokens, with a potential that does not move.
3. `hard_trace`: compensating moves (a drop undone a few uncertain tokens
   later), cliffs at both ends of the trace, potentials near 0 and 1, and
   near-certain tokens whose contrast is large while their drop is bounded by 1
   - pi.
4. `published_rule` (2606.25524): 64 continuations at every token; a cliff where
   the estimate falls by more than `0.1 + 1.645 sqrt(p(1-p)/64 + p'(1-p')/64)`.
   Prefix caching is taken for granted: only generated tokens count.
5. `halving` (Pivotal Token Search, 2412.08905, as in codelion/pts): estimate
   both ends of a segment, halve it while they differ by the gap or more, report
   single tokens that do. Kinder than the published code, which estimates both
   ends of every segment anew: here every prefix is estimated once.

The published ways report falls only. Missing outcomes are left out; a prefix
without any outcome has no estimate and no cliff.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.resampling.solvable_traces import SolvableTrace, solvable_trace

CERTAIN = 1e-3  # near-certain tokens have at most this much left for others


def long_trace(
    identifier: str, generator: np.random.Generator, tokens: int = 300, cliffs: int | None = None
) -> SolvableTrace:
    """A trace of the benchmark; `cliffs`: how many (default: 0 to 3, each as likely)."""
    count = int(generator.integers(4)) if cliffs is None else cliffs
    while True:
        free = _freedom(generator, tokens)
        sizes = generator.uniform(0.2, 0.6, count)
        places = np.sort(generator.choice(np.flatnonzero(free > CERTAIN), count, replace=False))
        start = (
            generator.uniform(min(sizes.sum() + 0.05, 0.97), 0.97)
            if count
            else generator.uniform(0.03, 0.97)
        )
        potentials = _path(
            generator, free, dict(zip(places.tolist(), sizes.tolist(), strict=True)), float(start)
        )
        if potentials is not None:
            return solvable_trace(
                identifier, 1 - free, potentials, outcome=float(generator.random() < potentials[-1])
            )


def flat_trace(
    identifier: str, generator: np.random.Generator, tokens: int = 300, level: float | None = None
) -> SolvableTrace:
    """No token matters: every potential is `level` (default: anywhere in [0, 1])."""
    height = float(generator.random()) if level is None else level
    return solvable_trace(identifier, 1 - _freedom(generator, tokens), np.full(tokens + 1, height))


def hard_trace(identifier: str, generator: np.random.Generator, tokens: int = 120) -> SolvableTrace:
    """Compensating moves, cliffs at the ends, extreme levels; `tokens` at least 40."""
    while True:
        free = _freedom(generator, tokens)
        moves = _compensating(generator, free)
        start = generator.choice([0.02, 0.98, generator.uniform(0.1, 0.9)])
        potentials = _path(generator, free, moves, float(start), drift=0.003)
        if potentials is not None:
            return solvable_trace(identifier, 1 - free, potentials)


def certain_trace(
    identifier: str, generator: np.random.Generator, tokens: int = 60
) -> SolvableTrace:
    """Near-certain tokens whose every alternative fails, at a level of about
    one half: no token is a cliff.
    """
    free = generator.uniform(1e-3, 0.02, tokens)
    potentials = 0.5 * np.cumprod(
        np.append(1.0, 1 / (1 - free))
    )  # others = 0: p after = p before / pi
    keep = int(np.searchsorted(potentials, 0.97))
    return solvable_trace(identifier, 1 - free[: keep - 1], potentials[:keep])


def random_traces(kind: str, count: int, seed: int, **options: int) -> list[SolvableTrace]:
    """`count` worlds of a kind (`long`, `flat`, `hard`, `certain`) with its
    maker's options; the seed decides.
    """
    makers: dict[str, Callable[..., SolvableTrace]] = {
        "long": long_trace,
        "flat": flat_trace,
        "hard": hard_trace,
        "certain": certain_trace,
    }
    streams = np.random.SeedSequence(seed).spawn(count)
    make = makers[kind]
    return [
        make(f"{kind}-{number}", np.random.default_rng(each), **options)
        for number, each in enumerate(streams)
    ]


def _freedom(generator: np.random.Generator, tokens: int) -> np.ndarray:
    """`1 - pi` `[N]`: a quarter of the tokens at random places between 0.1 and
    0.8, the others near 0.
    """
    free = generator.uniform(0, CERTAIN, tokens)
    free[generator.choice(tokens, tokens // 4, replace=False)] = generator.uniform(
        0.1, 0.8, tokens // 4
    )
    return free


def _compensating(generator: np.random.Generator, free: np.ndarray) -> dict[int, float]:
    """Moves by token: a fall and its undoing 1 to 4 uncertain tokens later, or
    a cliff at one of the ends.
    """
    uncertain = np.flatnonzero(free > CERTAIN)
    size = float(generator.uniform(0.2, 0.5))
    shape = generator.integers(3)
    if shape == 0:
        return {int(uncertain[0]): size}
    if shape == 1:
        return {int(uncertain[-1]): size}
    first = int(generator.integers(2, len(uncertain) - 6))
    sign = generator.choice([-1.0, 1.0])
    return {
        int(uncertain[first]): sign * size,
        int(uncertain[first + generator.integers(1, 5)]): -sign * size,
    }


def _path(
    generator: np.random.Generator,
    free: np.ndarray,
    moves: dict[int, float],
    start: float,
    drift: float = 0.01,
) -> np.ndarray | None:
    """Potentials `[N + 1]` with these drops at these tokens; `free` is raised
    there. `None` where there is no room.
    """
    potentials: list[float] = [start]
    slope = generator.normal(0, drift / 5)
    for token in range(len(free)):
        before, drop = potentials[-1], moves.get(token)
        if drop is None:
            step = (
                generator.normal(slope, drift)
                if free[token] > CERTAIN
                else generator.normal(0, free[token] / 3)
            )
            potentials.append(_bounded(before, step, float(free[token])))
            continue
        after = before - drop
        needed = drop / (1 - after) if drop > 0 else -drop / max(after, 1e-9)
        if not (0.01 <= after <= 0.99) or needed > 0.97:
            return None
        free[token] = generator.uniform(max(needed * 1.001, 0.2), max(needed * 1.02, 0.8))
        potentials.append(after)
    return np.asarray(potentials)


def _bounded(before: float, step: float, free: float) -> float:
    """One step of drift, turned back at 0.01 and 0.99, and kept inside what
    other tokens can make up for.
    """
    low, high = (before - free) / (1 - free), before / (1 - free)
    turned = step if 0.01 <= before + step <= 0.99 else -step
    return float(np.clip(before + turned, max(low, 0.01), min(high, 0.99)))


def true_cliffs(planted: Sequence[SolvableTrace], delta: float) -> set[tuple[str, int]]:
    """Every (trace, token) with a drop of at least `delta`."""
    return {(world.trace.id, token) for world in planted for token in world.cliffs(delta)}
