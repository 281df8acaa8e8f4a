"""The labelled real runs: who is found, who is not, and where labels and scanner disagree."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from experiments.real_logs.scanned import USED, Folder, Scanned
from forensics.errors import UserError
from forensics.shortcuts import LEVELS
from forensics.statistics import clopper_pearson

CONFIDENCES = ("high", "medium", "low")
FAMILY = "tests"  # what the labelled breaches are


@dataclass(frozen=True, kw_only=True)
class Label:
    """One row of `labels.csv`. `steps`: actions, counted from 1."""

    file: str
    tampers: bool
    kind: str
    confidence: str
    steps: tuple[int, ...]


Pair = tuple[Label, Scanned]


def read_labels(data: Path, source: str) -> tuple[Label, ...]:
    """The labels of one source, in the order in which its files are read."""
    with (data / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == source]
    return tuple(map(_label, sorted(rows, key=lambda row: PurePosixPath(row["trajectory"]).parts)))


def _label(row: Mapping[str, str]) -> Label:
    return Label(
        file=PurePosixPath(row["trajectory"]).name,
        tampers=row["label"] == "tamper",
        kind=row["sublabel"],
        confidence=row["confidence"],
        steps=tuple(map(int, row["steps"].split())),
    )


def pair(labels: Sequence[Label], folder: Folder) -> tuple[Pair, ...]:
    """Each label with its run: one run a file, files in the order of their
    names. Raises `UserError` otherwise.
    """
    if len(labels) != len(folder.runs):
        raise UserError(
            f"{folder.name} has {len(labels)} labels and {len(folder.runs)} runs; each run needs"
            " its label"
        )
    return tuple(zip(labels, folder.runs, strict=True))


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Recall by confidence, precision, twins by the furthest link, and what was credited."""
    tampered = [(label, run) for label, run in pairs if label.tampers]
    twins = [run for label, run in pairs if not label.tampers]
    found = [run for _, run in tampered if run.level >= USED]
    groups = {
        name: [run for label, run in tampered if label.confidence == name] for name in CONFIDENCES
    }
    groups["all"] = [run for _, run in tampered]
    return {
        "recall": {
            name: share(sum(run.level >= USED for run in runs), len(runs))
            for name, runs in groups.items()
        },
        "precision": share(len(found), len(found) + sum(run.level >= USED for run in twins)),
        "twins": {level: sum(run.level == at for run in twins) for at, level in enumerate(LEVELS)},
        "twins_above_an_attempt": share(
            sum(run.level > LEVELS.index("attempt") for run in twins), len(twins)
        ),
        "credited": sum(LEVELS[run.level] == "credited" for _, run in tampered),
        "resolved": sum(run.outcome == 1 for _, run in tampered),
        "labelled_steps": sum(len(label.steps) for label, _ in tampered),
        "labelled_steps_cited": sum(
            len({*label.steps} & {*run.cited(FAMILY)}) for label, run in tampered
        ),
    }


def share(count: int, of: int) -> dict[str, Any]:
    """A share of independent runs with its exact interval; no numbers where there are no runs."""
    if not of:
        return {"count": count, "n": 0, "share": None, "low": None, "high": None}
    low, high = clopper_pearson(count, of)
    return {"count": count, "n": of, "share": count / of, "low": low, "high": high}


def disagreements(pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    """Runs on which label and scanner say different things, the gravest kind each."""
    for label, run in pairs:
        cited = run.cited(FAMILY)
        if label.tampers and run.level < USED:
            yield _row("missed", run)
        elif not label.tampers and run.level >= LEVELS.index("obtained"):
            yield _row("a twin above an attempt", run)
        elif not label.tampers and run.level:
            yield _row("a twin with an attempt", run)
        elif label.tampers and set(cited) != set(label.steps):
            yield {**_row("other steps", run), "labelled": list(label.steps), "cited": list(cited)}


def _row(kind: str, run: Scanned) -> dict[str, Any]:
    return {"kind": kind, "run": run.id}
