"""See rule.md."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from experiments.coming_back.rule_2.__main__ import (
    PAIRS,
    Piece,
    carried_out,
    held,
    null,
    share_of,
)
from experiments.coming_back.rule_2.disjoint_halves import retrained_row
from experiments.coming_back.rule_2.reported_again import fresh_row

HERE: Final = Path(__file__).parent
ROUND: Final = 21  # seed of the diffs
RUNS: Final = range(41, 61)


def main() -> int:
    return carry_out(ROUND, RUNS, HERE, Path(".truth-cache/coming-back-3"))


def carry_out(seed: int, runs: Sequence[int], here: Path, cache: Path) -> int:
    """The pairs at one seed of their diffs, then pairs of trainings on disjoint halves."""
    pieces: dict[str, Piece] = {f"{pair}-{seed}": partial(fresh_row, pair, seed) for pair in PAIRS}
    pieces |= {f"retrained-{number}": partial(retrained_row, number) for number in runs}
    return carried_out(pieces, partial(summary, seed=seed, runs=runs), here, cache)


def summary(done: dict[str, Any], *, seed: int, runs: Sequence[int]) -> dict[str, Any]:
    """What the rule asks for, of what is done."""
    pairs = {pair: share_of([done[f"{pair}-{seed}"]]) for pair in PAIRS if f"{pair}-{seed}" in done}
    return {
        "pairs": pairs,
        "comes back": [held([one[place] for one in pairs.values()]) for place in (0, 1)],
        "retrained": null(done, "retrained", runs),
    }


if __name__ == "__main__":
    raise SystemExit(main())
