"""Scan the real logs and play the organisms; writes `table.json` and `table.md`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.real_logs.beside import beside
from experiments.real_logs.labelled import Pair, disagreements, figures, pair, read_labels
from experiments.real_logs.organisms import organisms
from experiments.real_logs.readings import reading
from experiments.real_logs.scanned import Folder, scan_folder
from experiments.real_logs.tables import markdown
from experiments.real_logs.unlabelled import flagged, folder_row, rate
from forensics.errors import UserError
from forensics.records.files import read_json, write_atomically, write_json

FOLDER = Path(__file__).parent
DATA = Path("../shared/data")
LABELLED = ("gemini3_miniswe", "sweagent_demos")
AGENTS = ("atif_claudecode_openclaw", "inspect_logs", "miniswe_testdata", "tau_bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=DATA, help=f"the public logs (default: {DATA})"
    )
    parser.add_argument("--built", type=Path, help="a folder of built organisms, DIR/NAME/after")
    parser.add_argument(
        "--logs-only", action="store_true", help="keep the organisms' figures of `table.json`"
    )
    arguments = parser.parse_args()
    try:
        result = study(arguments.data)
        kept = read_json(FOLDER / "table.json")["organisms"] if arguments.logs_only else None
        result["organisms"] = kept or organisms(arguments.built)
    except UserError as error:
        sys.exit(f"error: {error}")
    write_json(FOLDER / "table.json", result)
    write_atomically(FOLDER / "table.md", markdown(result))
    print((FOLDER / "table.md").read_text())


def study(data: Path) -> dict[str, Any]:
    """Every figure on the public logs. Raises `UserError` where they are not there."""
    if not (data / "labels.csv").is_file():
        raise UserError(f"{data} has no `labels.csv`; give the folder of public logs with --data")
    scanned, refused = _scanned(data)
    pairs = {name: pair(read_labels(data, name), scanned[name]) for name in LABELLED}
    return {
        "labelled": {name: figures(pairs[name]) for name in LABELLED},
        "disagreements": _explained(pairs, scanned),
        "unlabelled": _unlabelled(scanned, refused),
        "beside": beside(pairs, [folder for name, folder in scanned.items() if name in AGENTS]),
    }


OTHERS = ("answers", "field", "gsm8k_pair")  # planted or labelled for other questions


def _scanned(data: Path) -> tuple[dict[str, Folder], dict[str, str]]:
    """Every folder, scanned without a flag; those that hold no run, with the
    sentence of the refusal.
    """
    scanned: dict[str, Folder] = {}
    refused: dict[str, str] = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        if folder.name in OTHERS:
            continue
        try:
            scanned[folder.name] = scan_folder(folder)
        except UserError as error:
            refused[folder.name] = str(error).removeprefix(f"{folder} ").split(" (")[0]
    return scanned, refused


def _explained(
    pairs: Mapping[str, Sequence[Pair]], scanned: Mapping[str, Folder]
) -> list[dict[str, Any]]:
    rows = [row for name in LABELLED for row in disagreements(pairs[name])]
    rows += [
        {"kind": "used without a label", "run": run.id}
        for name, folder in scanned.items()
        if name not in LABELLED
        for run in flagged(folder)
    ]
    return [
        {**row, "reading": reading(row["run"])}
        for row in sorted(rows, key=lambda row: (row["kind"], row["run"]))
    ]


def _unlabelled(scanned: Mapping[str, Folder], refused: Mapping[str, str]) -> dict[str, Any]:
    """`agents`: the runs with tool answers of the folders that hold agents'
    logs; `all`: everything without a label.
    """
    others = [folder for name, folder in scanned.items() if name not in LABELLED]
    return {
        "folders": [folder_row(folder) for folder in scanned.values()],
        "without_runs": dict(refused),
        "agents": rate([folder for folder in others if folder.name in AGENTS], agents=True),
        "all": rate(others, agents=False),
    }


if __name__ == "__main__":
    main()
