"""See rule.md."""

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
    return carried_out(pieces(), summary, HERE, Path(".truth-cache/coming-back-3"))


def pieces() -> dict[str, Piece]:
    """In the order in which they are run."""
    pairs = {f"{pair}-{ROUND}": partial(fresh_row, pair, ROUND) for pair in PAIRS}
    return {**pairs, **{f"retrained-{number}": partial(retrained_row, number) for number in RUNS}}


def summary(done: dict[str, Any]) -> dict[str, Any]:
    """What the rule asks for, of what is done."""
    pairs = {
        pair: share_of([done[f"{pair}-{ROUND}"]]) for pair in PAIRS if f"{pair}-{ROUND}" in done
    }
    return {
        "pairs": pairs,
        "comes back": [held([one[place] for one in pairs.values()]) for place in (0, 1)],
        "retrained": null(done, "retrained", RUNS),
    }


if __name__ == "__main__":
    raise SystemExit(main())
