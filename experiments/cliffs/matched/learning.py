"""What an arm learns: its rate is chosen on some held-out tasks, its score told on others."""

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cliffs.cliff_dpo import MINIBATCH, Pairs, played, trained, weighted_tokens
from experiments.cliffs.collecting import start, world
from forensics.records import content_hash
from forensics.records.files import read_json, write_json

RATES = (1e-5, 3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 3e-3)
FEWER = {"whole-budget": (1e-5, 3e-5, 1e-4)}  # arms of many steps, which take long
HIGHEST = 1.0  # no rate above
HELD_OUT, CHOOSING, REPORTING = (
    2000,
    200,
    400,
)  # the draw of tasks; how many choose, how many report
Score = dict[str, float]


def learnt(arm: str, pairs: Pairs, tokens: int, seed: int, folder: Path) -> dict[str, Any]:
    """Everything of one arm of one seed; `tokens`: what was sampled for its
    pairs. Kept in the folder.
    """
    path = folder / "arm.json"
    if not path.exists():
        rates = FEWER.get(arm, RATES)
        tried = rates_tried(
            rates, lambda rate: _mean(_scores(arm, pairs, seed, rate, "choosing", folder))
        )
        rate = best(tried)
        write_json(
            path,
            {
                "pairs": len(pairs),
                "weighted": weighted_tokens(pairs),
                "sampled": tokens,
                "rate": rate,
                "steps": steps(pairs),
                "tasks": len({pair.task for pair in pairs}),
                "tried": {f"{rate:g}": score for rate, score in tried.items()},
                "scores": _scores(arm, pairs, seed, rate, "reporting", folder),
            },
        )
    found: dict[str, Any] = read_json(path)
    return found


def untrained(seed: int, folder: Path) -> Score:
    """The start's score on the tasks that report."""
    return _scores("start", (), seed, 0.0, "reporting", folder)


def steps(pairs: Pairs) -> int:
    """Optimizer steps of one pass."""
    return ceil(len(pairs) / MINIBATCH)


def rates_tried(rates: Sequence[float], read: Callable[[float], float]) -> dict[float, float]:
    """The score at every rate; as long as the best is the largest, the next
    larger one is tried as well.
    """
    tried = {rate: read(rate) for rate in rates}
    while best(tried) == max(tried) < HIGHEST:
        rate = above(max(tried))
        tried[rate] = read(rate)
    return tried


def best(tried: dict[float, float]) -> float:
    """The rate of the best score; the smallest of equals."""
    return max(tried, key=lambda rate: (tried[rate], -rate))


def above(rate: float) -> float:
    """The next rate of the row 1, 3, 10, 30, ..."""
    power = 10.0 ** np.floor(np.log10(rate) + 1e-9)
    return float(f"{(3 if rate / power < 2 else 10) * power:.0e}")


def _mean(score: Score) -> float:
    return float(np.mean(list(score.values())))


def _scores(arm: str, pairs: Pairs, seed: int, rate: float, part: str, folder: Path) -> Score:
    path = folder / f"{part}-{rate:g}.json"
    if not path.exists():
        policy = trained(pairs, seed, rate)[0] if pairs else start()
        tasks = world().tasks("held-out", CHOOSING + REPORTING, HELD_OUT)
        stream = int(
            content_hash(["matched", arm, part, seed], 7), 16
        )  # of its own: no arm shares another's luck
        write_json(
            path,
            played(policy, tasks[:CHOOSING] if part == "choosing" else tasks[CHOOSING:], stream),
        )
    found: Score = read_json(path)
    return found
