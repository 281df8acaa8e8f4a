"""The study: every kind over seeds, in pieces. `python -m experiments.real_model --minutes 40`.

1. A case is a kind and a seed: the policy is trained as in `leak`, and judged on the tasks that
   training did not see. What is done is kept in `--cache`, and a killed step goes on.
2. A finished case is a row of `cases.jsonl` here: label, parts, the sources that were named,
   processor time and memory; and twenty transcripts after training, the first of twenty tasks.
3. `table.md` and `table.json` are written after every case, with what is still to come.

`rule.md` was committed before the first case.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.real_model.kinds import KINDS, Kind
from experiments.real_model.leak import investigation, step, write_recipe, write_rows
from experiments.real_model.model import prepare
from forensics.errors import UserError
from forensics.records.files import read_json, write_atomically, write_json
from forensics.records.tables import read_trajectories

FOLDER = Path(__file__).parent
ROWS = FOLDER / "cases.jsonl"
TRANSCRIPTS = 20
PARTS = ("learned", "unlocked", "sampling", "phantom", "open")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=40.0, help="no case is begun after these")
    parser.add_argument("--kind", action="append", help="only this kind; may be given again")
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/real-model"))
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    base = prepare(given.cache)
    rows = kept()
    for seed, kind in itertools.product(range(given.seeds), KINDS):
        if (kind.name, seed) in rows or (given.kind and kind.name not in given.kind):
            continue
        if time.monotonic() > until:
            break
        rows[kind.name, seed] = judged(kind, seed, base, given.cache)
        write_atomically(ROWS, "".join(json.dumps(row) + "\n" for row in in_order(rows)))
        write_tables(in_order(rows), given.seeds)
    write_tables(in_order(rows), given.seeds)
    print((FOLDER / "table.md").read_text(encoding="utf-8"))


def kept() -> dict[tuple[str, int], dict[str, Any]]:
    """The rows that are done."""
    lines = ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["kind"], row["seed"]): row for row in rows}


def in_order(rows: Mapping[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
    names = [kind.name for kind in KINDS]
    return sorted(rows.values(), key=lambda row: (names.index(row["kind"]), row["seed"]))


def judged(kind: Kind, seed: int, base: Path, cache: Path) -> dict[str, Any]:
    """Train, where no kind before it did, and judge; the row."""
    policy, place = cache / f"{kind.trained}-{seed}", cache / f"{kind.name}-{seed}"
    policy.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    write_rows(policy / "tasks.jsonl", kind.rows(seed))
    write_rows(place / "judged.jsonl", (kind.judged or kind.rows)(seed))
    recipe = write_recipe(policy, base, rewards=kind.rewards)
    train = ["train", str(recipe), "--seed", str(seed), "--out", str(policy / "run")]
    step(policy, "train", train, policy / "run/checkpoint/config.json")
    words = investigation(place / "judged.jsonl", base, policy / "run/checkpoint")
    words += ["--seed", str(seed), "--out", str(place / "case")]
    step(place, "verdict", words, place / "case/report.html")
    write_transcripts(kind, seed, place / "case")
    return row_of(kind, seed, place / "case", read_json(policy / "costs.json"), place)


def row_of(
    kind: Kind, seed: int, case: Path, training: Mapping[str, Any], place: Path
) -> dict[str, Any]:
    """What the table says of a case."""
    verdict = read_json(case / "case.json")["verdict"]
    bars = [one for one in verdict["sources"] if one["status"] == "tested"]
    named = [*verdict["share_of_wins_via_channel"], *named_sources(bars, verdict)]
    return {
        "kind": kind.name,
        "seed": seed,
        "label": verdict["label"],
        "reason": verdict["reason_code"],
        "right": verdict["label"] in kind.right,
        "named": named,
        "named_right": not kind.named or any(one.startswith(kind.named) for one in named),
        "gain": verdict["gain"],
        "parts": verdict["parts"],
        "sentence": verdict["sentence"],
        "rule": verdict["rule"],
        "costs": {
            "train": training["train"],
            "verdict": read_json(place / "costs.json")["verdict"],
        },
    }


def named_sources(bars: list[dict[str, Any]], verdict: Mapping[str, Any]) -> list[str]:
    """The sources that surely carry more than a fifth of the gain: by their own name, else by
    that of their family.
    """
    gain = verdict["gain"]["estimate"] if verdict["gain"] else 0.0
    return [
        one["source"] or one["family"]
        for one in bars
        if one["carried"] and gain > 0 and one["carried"]["low"] > 0.2 * gain
    ]


def write_transcripts(kind: Kind, seed: int, case: Path) -> None:
    """The first answer after training to each of twenty tasks, beside the table."""
    files = sorted((case / "trajectories").glob("after-0-open-*.parquet"))
    runs = [run for file in files for run in read_trajectories(file) if run.outcome is not None]
    first = {run.task: run for run in reversed(runs)}
    lines = [f"# {kind.name}, seed {seed}: twenty answers after training", ""]
    for run in itertools.islice((first[task] for task in sorted(first)), TRANSCRIPTS):
        asked, said = (
            next(step.text for step in run.steps if step.role == role)
            for role in ("user", "assistant")
        )
        lines.append(f"- {run.outcome:g} · {json.dumps(asked)} → {json.dumps(said)}")
    folder = FOLDER / "transcripts"
    folder.mkdir(exist_ok=True)
    write_atomically(folder / f"{kind.name}-{seed}.md", "\n".join(lines) + "\n")


def write_tables(rows: list[dict[str, Any]], seeds: int) -> None:
    write_json(FOLDER / "table.json", {"planned": seeds * len(KINDS), "cases": rows})
    write_atomically(FOLDER / "table.md", "\n".join(markdown(rows, seeds)) + "\n")


def markdown(rows: list[dict[str, Any]], seeds: int) -> Iterator[str]:
    """The table, and what is right by the rule."""
    yield f"{len(rows)} of {seeds * len(KINDS)} cases are done."
    yield ""
    heads = ("kind", "seed", "label", "right", "named", "gain", *PARTS, "training", "verdict")
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        parts = row["parts"] or {}
        told = [_points(parts.get(name)) for name in PARTS]
        costs = (
            f"{one['processor_seconds']} s, {one['peak_gb']} GB" for one in row["costs"].values()
        )
        label = row["label"] + (f" ({row['reason']})" if row["reason"] else "")
        right = "yes" if row["right"] and row["named_right"] else "**no**"
        cells = [row["kind"], str(row["seed"]), label, right, ", ".join(row["named"])]
        yield "| " + " | ".join([*cells, _points(row["gain"]), *told, *costs]) + " |"


def _points(part: Mapping[str, float] | None) -> str:
    return "" if part is None else f"{100 * part['estimate']:+.0f}"


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"Error: {error}") from None
