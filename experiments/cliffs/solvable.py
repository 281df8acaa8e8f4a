"""Part (a): ours, the published rule and halving on exactly solvable policies,
judged by the truth.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cliffs.random_traces import (
    Found,
    halving,
    published_rule,
    random_traces,
    true_cliffs,
)
from forensics.progress import Progress
from forensics.records.files import read_json, write_json
from resampling import SolvableSampler, SolvableTrace, find_cliffs

TRACES = 100
HALVING = (256, 0.15)  # continuations a prefix and the gap; chosen on other seeds


def solvable(
    seeds: Sequence[int], folder: Path, progress: Progress
) -> dict[str, list[dict[str, Any]]]:
    """Counts and cost by rule, one row a seed."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "published": [], "halving": []}
    for number, seed in enumerate(seeds):
        progress("solvable worlds", number, len(seeds))
        path = folder / f"{seed}.json"
        if not path.exists():
            write_json(path, _one(seed))
        for name, row in read_json(path).items():
            found[name].append(row)
    progress("solvable worlds", len(seeds), len(seeds))
    return found


def _one(seed: int) -> dict[str, Any]:
    planted = random_traces("long", TRACES, seed)
    traces = [world.trace for world in planted]
    report = find_cliffs(traces, SolvableSampler(planted, seed=seed))
    ours = Found(
        cliffs=frozenset((cliff.trace, cliff.token) for cliff in report.cliffs),
        rollouts=report.rollouts,
        tokens=report.tokens,
    )
    return {
        "ours": _judged(ours, planted),
        "published": _judged(published_rule(traces, SolvableSampler(planted, seed=seed)), planted),
        "halving": _judged(halving(traces, SolvableSampler(planted, seed=seed), *HALVING), planted),
    }


def _judged(found: Found, planted: Sequence[SolvableTrace]) -> dict[str, Any]:
    large, real = true_cliffs(planted, 0.2), true_cliffs(planted, 0.05 + 1e-9)
    return {
        "large": len(large),
        "found": len(large & found.cliffs),
        "reported": len(found.cliffs),
        "false": len(found.cliffs - real),
        "rollouts": found.rollouts / len(planted),
        "tokens": found.tokens / len(planted),
    }
