"""Build the organisms over seeds, judge them, write `table.json` and `table.md`."""

import argparse
from pathlib import Path
from typing import Any

from experiments.phantom_gain.resplits import identical_runs
from forensics.cli import progress_bars
from forensics.records.files import write_atomically, write_json
from training.organisms import confusion_text, validate

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache"))
    parser.add_argument(
        "--identical", type=int, default=40, help="full runs of a checkpoint against itself"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="the first training seed")
    parser.add_argument("--case-seed", type=int, default=100, help="seed of the first case")
    parser.add_argument(
        "--identical-seed", type=int, default=1000, help="seed of the first identical pair"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="fill the cache with these; write nothing"
    )
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    with progress_bars() as progress:
        result = validate(
            arguments.seeds,
            arguments.cache,
            progress,
            arguments.only,
            first_seed=arguments.first_seed,
            case_seed=arguments.case_seed,
        )
        if arguments.only:
            return
        result["identical"] = identical_runs(
            arguments.identical, arguments.cache, progress, arguments.identical_seed
        )
    write_json(arguments.out / "table.json", result)
    write_atomically(arguments.out / "table.md", markdown(result))
    print(confusion_text(result))


def markdown(result: dict[str, Any]) -> str:
    """The table with every case, the gain and its two parts in points with 95 % intervals."""
    lines = [
        "# Truth table",
        "",
        "Written by `make truth`. Points with 95 % intervals over tasks.",
        "",
        "| organism | seed | expected | label | gain | genuine | phantom |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['seed']} | {row['expected']} | {row['label']} | "
        + " | ".join(_points(row[part]) for part in ("gain", "genuine_gain", "phantom_gain"))
        + " |"
        for row in sorted(result["organisms"], key=lambda row: (row["name"], row["seed"]))
    ]
    lines += [
        f"\n`{row['name']}` {row['seed']} is `{row['label']}` ({row['reason_code'] or 'settled'}):"
        f" {row['first_gap']}"
        for row in result["organisms"]
        if not row["right"]
    ]
    same = result["identical"]
    low, high = same["interval"]
    lines += [
        "",
        "```",
        confusion_text(result),
        "```",
        "",
        "## Identical checkpoints",
        "",
        (
            f"{same['runs']} full runs of a bundled checkpoint against itself, 400 tasks each,"
            f" independent random streams: {same['alarms']} called anything but `noise` (exact 95 %"
            f" interval {low:.2f} to {high:.2f}): {_counts(same['labels'])}."
        ),
        "",
        (
            f"{same['resplits']} re-splits of their stored episodes, the whole decision made again:"
            f" {_counts(same['resplit_labels'])}."
        ),
        "",
    ]
    return "\n".join(lines)


def _counts(labels: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in labels.items())


def _points(part: list[float] | None) -> str:
    if part is None:
        return "not measured"
    estimate, low, high = (100 * value for value in part)
    return f"{estimate:+.1f} ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    main()
