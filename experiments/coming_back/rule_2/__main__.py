"""See rule.md."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from experiments.coming_back.rule_2.disjoint_halves import retrained_row, unpaired_row
from experiments.coming_back.rule_2.reported_again import NO_CAUSE, REPORTED, fresh_row
from forensics.records import read_json, write_json

HERE: Final = Path(__file__).parent
PAIRS: Final = ("leak", "honest", "planted", "installed")
ROUNDS: Final = (11, 12)  # seeds of the diffs
RUNS: Final = range(1, 21)
LEAST, MOST_RUNS, LEAST_PAIRS = 0.9, 1, 3
Piece = Callable[[Path], dict[str, Any]]


def main() -> int:
    return carried_out(pieces(), summary, HERE, Path(".truth-cache/coming-back-2"))


def carried_out(
    pieces: Mapping[str, Piece],
    summary: Callable[[dict[str, Any]], dict[str, Any]],
    here: Path,
    cache: Path,
) -> int:
    """The pieces that are not done yet, in their order, and `table.json` of all that are."""
    parser = argparse.ArgumentParser(description="See rule.md.")
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--minutes", type=float, default=12, help="no piece is begun later")
    parser.add_argument("--only", default="", help="pieces whose name begins so")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows, until = asked.cache / "rows", time.monotonic() + 60 * asked.minutes
    rows.mkdir(parents=True, exist_ok=True)
    for name, piece in pieces.items():
        wanted = name.startswith(asked.only) and not (rows / f"{name}.json").is_file()
        if wanted and time.monotonic() < until:
            write_json(rows / f"{name}.json", piece(asked.cache))
            print(name, flush=True)
    done = {
        name: read_json(rows / f"{name}.json")
        for name in pieces
        if (rows / f"{name}.json").is_file()
    }
    write_json(here / "table.json", {"summary": summary(done), "rows": done})
    return 0


def pieces() -> dict[str, Piece]:
    """In the order in which they are run."""
    first, second = (
        {f"{pair}-{seed}": partial(fresh_row, pair, seed) for pair in PAIRS} for seed in ROUNDS
    )
    nulls = {
        f"{name}-{number}": partial(row, number)
        for name, row in (("retrained", retrained_row), ("unpaired", unpaired_row))
        for number in RUNS
    }
    beside = {f"leak-open-{ROUNDS[0]}": partial(fresh_row, "leak-open", ROUNDS[0])}
    return {**first, **nulls, **second, **beside}


def summary(done: dict[str, Any]) -> dict[str, Any]:
    """What the rule asks for, of what is done."""
    rounds = [seed for seed in ROUNDS if all(f"{pair}-{seed}" in done for pair in PAIRS)]
    pairs = {pair: share_of([done[f"{pair}-{seed}"] for seed in rounds]) for pair in PAIRS}
    return {
        "rounds": rounds,
        "pairs": pairs,
        "comes back": [held([one[place] for one in pairs.values()]) for place in (0, 1)],
        **{name: null(done, name) for name in ("retrained", "unpaired")},
    }


def share_of(rows: list[dict[str, Any]]) -> list[float | None]:
    """Of all latents that the diffs of a pair report: same tasks, other tasks."""
    both = [shares for row in rows for shares in row[REPORTED].values()]
    return [sum(one) / len(both) for one in zip(*both, strict=True)] if both else [None, None]


def held(shares: list[float | None]) -> str:
    """By the rule's first part."""
    known = [share for share in shares if share is not None]
    if any(share < LEAST for share in known):
        return "missed"
    return "holds" if len(known) >= LEAST_PAIRS else "not shown on three pairs"


def null(done: dict[str, Any], name: str, runs: Sequence[int] = RUNS) -> dict[str, Any]:
    """In how many runs at least one latent is reported: by three conditions, by the first two."""
    rows = [done[f"{name}-{number}"] for number in runs if f"{name}-{number}" in done]
    by_three = sum(row[REPORTED] > 0 for row in rows)
    by_two = sum(row[REPORTED] + row[NO_CAUSE] > 0 for row in rows)
    whole = len(rows) == len(runs)
    return {
        "runs": len(rows),
        "report": by_three,
        "would by two conditions": by_two,
        "holds": by_three <= MOST_RUNS if whole else None,
    }


if __name__ == "__main__":
    raise SystemExit(main())
