"""Read the published tables and write `table.json` and `table.md`."""

import argparse
import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.published_cliffs.bounds import (
    DRAWS,
    dispersion,
    false_rate,
    greedy_mass,
    is_possible,
)
from forensics.errors import UserError
from forensics.records.files import write_atomically, write_json
from forensics.statistics import clopper_pearson

FOLDER = Path(__file__).parent
TYPES = {"DF": "low entropy, greedy", "AG": "high entropy, greedy", "SS": "not greedy"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="the public repository's tables and traces"
    )
    result = study(parser.parse_args().data)
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print((FOLDER / "table.md").read_text())


def study(data: Path) -> dict[str, Any]:
    """Every figure of the table. Raises `UserError` where the data are not there."""
    if not (data / "tables").is_dir():
        raise UserError(f"{data} has no folder `tables`; give the folder with the published tables")
    return {
        "positions": by_type(
            (row["taxonomy_type"], float(row["sum_p_cliff"])) for row in all_positions(data)
        ),
        "tokens": by_type(
            (row["taxonomy_type"], float(row["source_prob"])) for row in known_tokens(data)
        ),
        "cases": worked_cases(data / "cases_from_md.jsonl"),
        "flat": {str(p): 300 * false_rate(p) for p in (0.1, 0.3, 0.5, 0.7, 0.9)},
        "traces": [trace_row(path) for path in sorted((data / "traces").glob("*.json"))],
    }


def all_positions(data: Path) -> Iterator[dict[str, str]]:
    for path in sorted((data / "tables" / "boxplot").glob("*.csv")):
        yield from read_csv(path)


def known_tokens(data: Path) -> Iterator[dict[str, str]]:
    """The rows of the very cliff tokens (the tables list the other tokens at
    the position as well).
    """
    for path in sorted((data / "tables").glob("*/*_per_token.csv")):
        keys = read_csv(path.with_name(path.name.replace("per_token", "selected_cliff_keys")))
        chosen = {
            (key["path_id"], key["cliff_position"], key["candidate_token_id"]) for key in keys
        }
        for row in read_csv(path):
            if (row["data_idx"], row["cliff_position"], row["cliff_token_id"]) in chosen:
                yield row


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by_type(rows: Iterable[tuple[str, float]]) -> dict[str, dict[str, Any]]:
    """Of each type and of all: how many there are and how many the bound makes impossible."""
    masses: dict[str, list[float]] = {name: [] for name in TYPES}
    for kind, mass in rows:
        masses[kind].append(mass)
    masses["all"] = [mass for kind in TYPES for mass in masses[kind]]
    return {kind: _count(values) for kind, values in masses.items()}


def _count(masses: list[float]) -> dict[str, Any]:
    impossible = sum(not is_possible(mass) for mass in masses)
    low, high = clopper_pearson(impossible, len(masses))
    return {
        "n": len(masses),
        "impossible": impossible,
        "share": impossible / len(masses),
        "low": low,
        "high": high,
        "above_0.99": sum(mass > 0.99 for mass in masses),
    }


def worked_cases(path: Path) -> dict[str, dict[str, int]]:
    """Cases with drop and entropy; only a greedy token's probability can be
    bounded by the entropy.
    """
    counts = {kind: {"n": 0, "impossible": 0} for kind in TYPES}
    for line in path.read_text().splitlines():
        for cliff in json.loads(line)["cliffs"]:
            count = counts[cliff["taxonomy"]]
            count["n"] += 1
            greedy = cliff["rank"] == 1
            count["impossible"] += greedy and not is_possible(
                greedy_mass(cliff["entropy"]), cliff["drop"]
            )
    return counts


def trace_row(path: Path) -> dict[str, Any]:
    trace = json.loads(path.read_text())
    # published positions count from 1: position c is the step from potential c - 2 to c - 1
    near = [
        cliff["cliff_position"] - 2 + offset for cliff in trace["cliffs"] for offset in (-1, 0, 1)
    ]
    ratio, steps = dispersion(trace["all_position_scores"], near)
    return {
        "tokens": len(trace["response_tokens"]),
        "cliffs": len(trace["cliffs"]),
        "dispersion": ratio,
        "steps": steps,
    }


def markdown(result: dict[str, Any]) -> str:
    lines = [
        (
            "| published cliffs | by the mass of their tokens | of them impossible | by the token's"
            " own probability | of them impossible |"
        ),
        "|---|---|---|---|---|",
    ]
    for kind in (*TYPES, "all"):
        whole, token = result["positions"][kind], result["tokens"][kind]
        lines.append(
            f"| {kind} {f'({TYPES[kind]})' if kind in TYPES else ''} | {whole['n']} |"
            f" {_share(whole)} | {token['n']} | {_share(token)} |"
        )
    cases = ", ".join(
        f"{kind} {row['impossible']} of {row['n']}" for kind, row in result["cases"].items()
    )
    flat = ", ".join(f"{p}: {rate:.2f}" for p, rate in result["flat"].items())
    lines += [
        "",
        f"Impossible in the worked cases, by the entropy of a greedy token: {cases}.",
        "",
        f"False cliffs of the rule in 300 tokens of a flat potential, exactly: {flat}.",
        "",
        (
            f"| trace: tokens | cliffs | neighbours' differences against {DRAWS} draws (1: noise"
            " alone) | steps |"
        ),
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['tokens']} | {row['cliffs']} | {row['dispersion']:.2f} | {row['steps']} |"
        for row in result["traces"]
    ]
    return "\n".join(lines) + "\n"


def _share(count: dict[str, Any]) -> str:
    return (
        f"{count['impossible']} ({count['share']:.0%}, {count['low']:.0%} to {count['high']:.0%})"
    )


if __name__ == "__main__":
    main()
