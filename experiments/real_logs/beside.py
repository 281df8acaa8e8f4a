"""Our scan beside detectors that match patterns, on the same runs.

Each labelled run is flagged or not. Precision and recall have exact intervals.
F1 = 2J / (1 + J) of J = TP / (TP + FP + FN), a share of the runs that are
tampered or flagged, whose exact interval gives that of F1. Two detectors are
compared by the runs on which only one of them is right (exact sign test).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.real_logs.detectors import FORMS, MISSING, PEER, Told, ask_peer, matches, neutral
from experiments.real_logs.labelled import Pair, share
from experiments.real_logs.scanned import USED, Folder, Scanned
from experiments.real_logs.unlabelled import clustered_rate

OURS: Final = "forensics scan"
NUMBERS: Final = {"score": "score", "matches": "number of matches"}  # of `Told`


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A run that every detector sees. `tampers`: its label, `None` where it has none."""

    run: Scanned
    place: str
    tampers: bool | None


@dataclass(frozen=True, kw_only=True)
class Detector:
    """One row of the table: whom it flags, at which threshold; `in_view`:
    chosen with the labels in view.
    """

    name: str
    threshold: str
    flags: Sequence[bool]
    in_view: bool = False


def beside(pairs: Mapping[str, Sequence[Pair]], agents: Sequence[Folder]) -> dict[str, Any]:
    """The table: one row a detector, over the labelled runs and those of agents with tools."""
    runs = [
        Observed(run=run, place=name, tampers=label.tampers)
        for name in pairs
        for label, run in pairs[name]
    ]
    runs += [
        Observed(run=run, place=folder.name, tampers=None)
        for folder in agents
        for run in folder.runs
        if run.tools
    ]
    python = os.environ.get(PEER)
    detectors = list(_detectors(runs, python))
    return {
        "rows": [_row(detector, detectors[0], runs) for detector in detectors],
        "labelled": sum(run.tampers is not None for run in runs),
        "missing": "" if python else MISSING,
    }


def _detectors(runs: Sequence[Observed], python: str | None) -> Iterator[Detector]:
    """Ours first."""
    yield Detector(name=OURS, threshold="used", flags=[seen.run.level >= USED for seen in runs])
    yield Detector(
        name=OURS, threshold="an attempt or more", flags=[seen.run.level > 0 for seen in runs]
    )
    texts = [neutral(seen.run.log, str(at)) for at, seen in enumerate(runs)]
    for form in FORMS if python else ():
        yield from peer_thresholds(
            form, ask_peer(str(python), form, texts), [seen.tampers for seen in runs]
        )
    name = "our attempt patterns alone"
    yield Detector(
        name=f"{name}, the agent's text",
        threshold="a match",
        flags=[matches(text, roles=("assistant",)) for text in texts],
    )
    yield Detector(
        name=f"{name}, every message", threshold="a match", flags=[matches(text) for text in texts]
    )
    yield Detector(name="every run flagged", threshold="none", flags=[True for _ in runs])


def peer_thresholds(
    form: str, told: Sequence[Told], labels: Sequence[bool | None]
) -> Iterator[Detector]:
    """At its own threshold, and at the one of the best F1 where any does better."""
    name = f"RewardHackWatch without its classifier, `{form}`"
    flags = [row.flagged for row in told]
    own = agreement(
        [(flag, label) for flag, label in zip(flags, labels, strict=True) if label is not None]
    )
    found = [(best_threshold([getattr(row, key) for row in told], labels), key) for key in NUMBERS]
    better = sorted(
        (best, key) for best, key in found if best and best[0] > (own["f1"]["share"] or 0)
    )
    yield Detector(
        name=name, threshold="its own" if better else "its own, and none does better", flags=flags
    )
    for (_, at), key in better[-1:]:
        yield Detector(
            name=name,
            threshold=f"{NUMBERS[key]} from {at:.3g}",
            in_view=True,
            flags=[getattr(row, key) >= at for row in told],
        )


def best_threshold(
    scores: Sequence[float], labels: Sequence[bool | None]
) -> tuple[float, float] | None:
    """The best F1 on the labelled runs and the highest threshold above 0 that
    gives it; `None` where all score 0.
    """
    known = [
        (score, label) for score, label in zip(scores, labels, strict=True) if label is not None
    ]
    tampered = sum(label for _, label in known)
    best = None
    for at in sorted({score for score, _ in known if score > 0}):
        flagged = [label for score, label in known if score >= at]
        found = 2 * sum(flagged) / (len(flagged) + tampered), at
        best = found if best is None else max(best, found)
    return best


def _row(detector: Detector, ours: Detector, runs: Sequence[Observed]) -> dict[str, Any]:
    known = [
        (flag, flag_of_ours, seen.tampers)
        for flag, flag_of_ours, seen in zip(detector.flags, ours.flags, runs, strict=True)
        if seen.tampers is not None
    ]
    alone = {
        "ours": sum(mine is label is not flag for flag, mine, label in known),
        "this": sum(flag is label is not mine for flag, mine, label in known),
    }
    return {
        "detector": detector.name,
        "threshold": detector.threshold,
        "in_view": detector.in_view,
        **agreement([(flag, label) for flag, _, label in known]),
        "only_right": {**alone, "p": None if detector is ours else sign_test(**alone)},
        "agents": clustered_rate(
            (f"{seen.place}/{seen.run.task}", flag)
            for flag, seen in zip(detector.flags, runs, strict=True)
            if seen.tampers is None
        ),
    }


def agreement(known: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Precision, recall and F1 of (flagged, tampered) runs."""
    both = sum(flag and label for flag, label in known)
    either = share(both, sum(flag or label for flag, label in known))
    f1 = {
        key: value and 2 * value / (1 + value)
        for key, value in either.items()
        if key in ("share", "low", "high")
    }
    return {
        "precision": share(both, sum(flag for flag, _ in known)),
        "recall": share(both, sum(label for _, label in known)),
        "f1": {**either, **f1},
    }


def sign_test(ours: int, this: int) -> float:
    """Two-sided exact p of so uneven a split, were both as likely to be the one that is right."""
    from scipy.stats import binomtest

    return float(binomtest(ours, ours + this).pvalue) if ours + this else 1.0
