"""Build the organisms over seeds, judge them, write `table.json` and `table.md`.

Cases and identical pairs are made in two processes, each kept as it ends, with one
state of the code; the tables are then read from the cache.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from experiments.phantom_gain.resplits import identical, identical_run
from experiments.resumable import code_key, run
from forensics.cli import progress_bars
from forensics.errors import UserError
from forensics.progress import silent
from forensics.records.files import write_atomically, write_json
from training.validation import cases_of, confusion_text, judged_organism, validate

FOLDER = Path(__file__).parent
MAKES_ROWS = tuple(
    f"experiments/{name}.py" for name in ("phantom_gain/dealing", "phantom_gain/resplits")
)
Todo = dict[str, Callable[[], dict[str, Any]]]


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
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    made, code = arguments.cache / "rows", code_key(*MAKES_ROWS)
    if (arguments.cache / "cases").exists() and not made.exists():
        raise UserError(f"{arguments.cache} has cases of unknown code; give another --cache")
    seeds = {"first_seed": arguments.first_seed, "case_seed": arguments.case_seed}
    todo: Todo = {
        f"{name} {seed}": partial(_case, name, seed, arguments.cache, own)
        for name, seed, own in cases_of(arguments.seeds, **seeds)
        if not arguments.only or name in arguments.only
    }
    for number in range(0 if arguments.only else arguments.identical):
        todo[f"identical {number}"] = partial(
            identical_run, number, arguments.cache, arguments.identical_seed
        )
    with progress_bars() as progress:
        rows = run(todo, _made, made, code=code, processes=arguments.processes, progress=progress)
        if arguments.only:
            return
        result = validate(arguments.seeds, arguments.cache, progress, device="cpu", **seeds)
    result["identical"] = identical(
        [row for name, row in rows.items() if name.startswith("identical")]
    )
    result["code"] = code
    write_json(arguments.out / "table.json", result)
    write_atomically(arguments.out / "table.md", markdown(result))
    print(confusion_text(result))


def _case(name: str, seed: int, cache: Path, case_seed: int) -> dict[str, Any]:
    return judged_organism(name, seed, cache, case_seed, silent, "cpu").row()


def _made(one: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return one()


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
        *_resplits(same),
        "",
    ]
    return "\n".join(lines)


def _resplits(same: dict[str, Any]) -> list[str]:
    """What the re-splits say; how often a family had a gain to look into, and found something."""
    tested, found = same["resplits_tested"], same["resplits_found"]
    return [
        (
            f"{same['resplits']} re-splits of their stored episodes, the whole decision made again:"
            f" {_counts(same['resplit_labels'])}. Accused (`phantom`, `mixed`, `degenerate`, or an"
            f" action called a shortcut): {same['resplits_accused']}, in"
            f" {same['pairs_with_accused']} of {same['runs']} pairs. Some family found something in"
            f" {same['resplits_any_found']}."
        ),
        "",
        "| family | re-splits in which it was tested | in which it found something |",
        "|---|---|---|",
        *(f"| {name} | {tested[name]} | {found.get(name, 0)} |" for name in sorted(tested)),
    ]


def _counts(labels: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in labels.items())


def _points(part: list[float] | None) -> str:
    if part is None:
        return "not measured"
    estimate, low, high = (100 * value for value in part)
    return f"{estimate:+.1f} ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    main()
