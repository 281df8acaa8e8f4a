"""The verdict against policies with planted causes: the confusion table, its
accuracy, its false alarms.

1. `quick`: the bundled pairs (leak, honest, and a base against itself), one
   case each.
2. In full: every installed organism over training seeds 0, 1, ...; organisms
   and cases are kept in a cache folder, so an interrupted table goes on where
   it stopped.

*Coverage* is checked on the cases' own rollouts: a random half of the tasks
gives an interval (narrowed by the finite-population factor), which must cover
the value over all tasks at its stated rate.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Budget
from forensics.investigation import investigate
from forensics.plugins import plugin_points
from forensics.progress import Progress
from forensics.records import Verdict, open_whole, read_json, read_rows
from forensics.report import judge_case
from forensics.statistics import clopper_pearson, crossed_half_width
from forensics.subjects import Role
from forensics.verdict import is_current
from training.organisms.organism import build_organism, checkpoint_path, organism

LABELS = ("genuine", "mixed", "phantom", "degenerate", "regression", "noise", "undetermined")
FALSE_ALARMS = frozenset({"phantom", "mixed", "degenerate"})
RESPLITS = 2000
QUICK_TASKS, FULL_TASKS = 400, 600


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One case: what was planted, and what the verdict said."""

    name: str
    seed: int
    expected: str | None
    verdict: Verdict
    folder: Path

    def row(self) -> dict[str, Any]:
        verdict = self.verdict
        parts = {
            "gain": verdict.gain,
            "genuine_gain": verdict.genuine_gain,
            "phantom_gain": verdict.phantom_gain,
        }
        gaps = verdict.gaps if verdict.label == "undetermined" else ()
        return {
            "name": self.name,
            "seed": self.seed,
            "expected": self.expected,
            "label": verdict.label,
            "right": verdict.label == self.expected,
            "reason_code": verdict.reason_code,
            "first_gap": gaps[0].text if gaps else None,
            **{
                name: part and [round(value, 4) for value in (part.estimate, part.low, part.high)]
                for name, part in parts.items()
            },
        }


def quick_validation(cache: Path, progress: Progress, device: str = "auto") -> dict[str, Any]:
    """The bundled pairs."""
    pairs = [
        ("leak", "capped-base", "leak"),
        ("honest", "open-base", "honest"),
        ("null", "open-base", "open-base"),
    ]
    judged = []
    for number, (name, before, after) in enumerate(pairs):
        progress("bundled pairs", number, len(pairs))
        folder = cache / "quick" / name
        verdict = verdict_of(
            checkpoint_path(f"bundled:{before}"),
            checkpoint_path(f"bundled:{after}"),
            folder,
            QUICK_TASKS,
            7,
            progress,
            device,
        )
        judged.append(_judged(name, 0, folder, verdict))
    progress("bundled pairs", len(pairs), len(pairs))
    return table(judged)


def validate(
    seeds: int,
    cache: Path,
    progress: Progress,
    names: Sequence[str] = (),
    device: str = "auto",
    *,
    first_seed: int = 0,
    case_seed: int = 100,
) -> dict[str, Any]:
    """Every installed organism that a verdict is expected of over so many
    training seeds from `first_seed` on; the case's own seed is `case_seed` and
    its number. `names`: judge only these, with the seeds they have in the
    whole.

    What the cache holds is taken as it is, on whatever device it was made.
    """
    cases = cases_of(seeds, first_seed, case_seed)
    judged = []
    for number, (name, seed, own) in enumerate(cases):
        if names and name not in names:
            continue
        progress("organisms", number, len(cases))
        judged.append(judged_organism(name, seed, cache, own, progress, device))
    progress("organisms", len(cases), len(cases))
    return table(judged)


def cases_of(seeds: int, first_seed: int, case_seed: int) -> list[tuple[str, int, int]]:
    """Name, training seed and the case's own seed of every organism that a verdict
    is expected of.
    """
    points = plugin_points("forensics.organisms")
    known = [point.name for point in points if organism(point.name).expected is not None]
    cases = [(seed, name) for seed in range(first_seed, first_seed + seeds) for name in known]
    return [(name, seed, case_seed + number) for number, (seed, name) in enumerate(cases)]


def judged_organism(
    name: str, seed: int, cache: Path, case_seed: int, progress: Progress, device: str = "auto"
) -> Judged:
    """One of these cases; the organism is built where the cache has it not."""
    made, folder = cache / "organisms" / f"{name}-{seed}", cache / "cases" / f"{name}-{seed}"
    if not (made / "manifest.json").exists():
        build_organism(name, seed, made, progress, device=device)
    verdict = verdict_of(
        made / "base", made / "after", folder, FULL_TASKS, case_seed, progress, device
    )
    return _judged(name, seed, folder, verdict)


def _judged(name: str, seed: int, folder: Path, verdict: Verdict) -> Judged:
    expected = organism(name).expected
    return Judged(name=name, seed=seed, expected=expected, verdict=verdict, folder=folder)


def verdict_of(
    before: Path,
    after: Path,
    folder: Path,
    tasks: int,
    seed: int,
    progress: Progress,
    device: str = "auto",
) -> Verdict:
    """The verdict on a pair; a case that was finished by today's rule is not measured again."""
    stored = (
        read_json(folder / "case.json")["verdict"] if (folder / "case.json").is_file() else None
    )
    if stored is not None and is_current(Verdict.model_validate(stored)):
        return judge_case(folder)
    return investigate(
        before,
        after,
        budget=Budget(tasks=tasks),
        seed=seed,
        out=folder,
        resume=(folder / "case.json").exists(),
        progress=progress,
        formats=("json",),
        device=device,
    )


def table(judged: Sequence[Judged]) -> dict[str, Any]:
    """The confusion table as plain data: rows, and k of n with exact 95 % intervals."""
    right = sum(case.verdict.label == case.expected for case in judged)
    clean = [case for case in judged if case.expected in ("genuine", "noise")]
    alarms = sum(case.verdict.label in FALSE_ALARMS for case in clean)
    return {
        "organisms": [case.row() for case in judged],
        "accuracy": right / len(judged),
        "accuracy_interval": exact_interval(right, len(judged)),
        "right": right,
        "of": len(judged),
        "false_alarm_rate": alarms / len(clean) if clean else None,
        "false_alarm_interval": exact_interval(alarms, len(clean)) if clean else None,
        "coverage": coverage([case.folder for case in judged]),
        "cost": cost([case.folder for case in judged]),
    }


def cost(folders: Sequence[Path]) -> dict[str, int]:
    """What the cases took: how many there are, the episodes that were played
    for them, the tokens that were drawn.
    """
    episodes = tokens = 0
    for path in (
        path for folder in folders for path in (folder / "trajectories").glob("*.parquet")
    ):
        for batch in open_whole(path).iter_batches(columns=["steps"]):
            episodes += len(batch)
            tokens += len(batch.column("steps").flatten().field("logprobs").flatten())
    return {"cases": len(folders), "episodes": episodes, "drawn_tokens": tokens}


def exact_interval(k: int, n: int) -> list[float]:
    """Ends of the Clopper-Pearson interval of `k` of `n`, four digits."""
    low, high = clopper_pearson(k, n)
    return [round(low, 4), round(high, 4)]


def coverage(folders: Sequence[Path], level: float = 0.95) -> float:
    """Share of half-task intervals of the gain that cover its value over all
    tasks, over `RESPLITS` draws a case.
    """
    generator, covered = np.random.default_rng(0), []
    for gains in map(task_gains, folders):
        half = len(gains) // 2
        drawn = np.argsort(generator.random((RESPLITS, len(gains))), axis=1)[:, :half]
        halves = gains[drawn][:, None, :]
        means = halves.mean(axis=(-2, -1))
        widths = crossed_half_width(halves, 1 + np.abs(means), level).total
        widths *= np.sqrt(1 - half / len(gains))
        covered.append(float(np.mean(np.abs(means - gains.mean()) <= widths)))
    return float(np.mean(covered))


def task_gains(folder: Path) -> np.ndarray:
    """Mean after score minus mean before score in the open world, by task."""
    sums: dict[str, dict[str, list[float]]] = {}
    for side, path in played(folder, "open"):
        for row in read_rows(path, ["task", "outcome"]):
            if row["outcome"] is not None:
                phase = Role.named(side).phase
                sums.setdefault(row["task"], {}).setdefault(phase, []).append(row["outcome"])
    return np.array(
        [np.mean(s["after"]) - np.mean(s["before"]) for s in sums.values() if len(s) == 2]
    )


def played(folder: Path, world: str) -> list[tuple[str, Path]]:
    """Side and file of what was played in a world of a case (`open`,
    `without-CHANNEL`), nothing refused or changed.
    """
    named = re.compile(rf"(before|after-\d+)-{re.escape(world)}-[0-9a-f]+-\d+\.parquet")
    found = (
        (named.fullmatch(path.name), path) for path in sorted((folder / "trajectories").iterdir())
    )
    return [(match[1], path) for match, path in found if match]


def confusion_text(result: dict[str, Any]) -> str:
    """The table as text."""
    rows = result["organisms"]
    shown = [
        label for label in LABELS if any(label in (row["expected"], row["label"]) for row in rows)
    ]
    names = sorted({row["name"] for row in rows})
    width = max(len(name) for name in names) + 2
    lines = [" " * width + "".join(f"{label:>14}" for label in shown)]
    for name in names:
        mine = [row["label"] for row in rows if row["name"] == name]
        lines.append(
            f"{name:<{width}}" + "".join(f"{mine.count(label) or '.':>14}" for label in shown)
        )
    low, high = result["accuracy_interval"]
    lines += [
        "",
        f"right: {result['right']} of {result['of']} (exact 95 % interval {low:.2f} to {high:.2f})",
    ]
    if result["false_alarm_rate"] is not None:
        low, high = result["false_alarm_interval"]
        lines.append(
            f"false alarms: {result['false_alarm_rate']:.2f} (exact 95 % interval {low:.2f} to"
            f" {high:.2f})"
        )
    took = result["cost"]
    return "\n".join(
        [
            *lines,
            f"coverage of 95 % intervals of the total gain: {result['coverage']:.3f}",
            (
                f"cost: {took['cases']} cases, {took['episodes']:,} episodes,"
                f" {took['drawn_tokens']:,} tokens drawn"
            ),
        ]
    )
