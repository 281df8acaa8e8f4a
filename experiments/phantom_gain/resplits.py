"""False alarms on real runs: full runs of a checkpoint against itself, and their
re-splits (`dealing.py`).

1. The score layer measures the dealt case; what the behaviour layer says is
   kept as the case has it. `noise` is decided by these two alone: no family of
   tests is asked anything where no gain is told from zero.
2. Where the label is another, every instrument that the rule reads measures the
   dealt case, the families of tests among them, and the whole decision is made
   again.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.phantom_gain.dealing import dealt
from forensics import Budget, Case
from forensics.instruments import chosen_instruments, installed_instruments, run_instrument
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.progress import silent
from forensics.records import Evidence, Undefined
from forensics.records.files import read_findings, read_json
from forensics.subjects import BEFORE, CheckpointSubject, Role
from forensics.verdict import decide
from training import MiniRepo, checkpoint_path
from training.validation import LABELS, QUICK_TASKS, exact_interval, verdict_of

NAMES = ("capped-base", "leak", "open-base", "honest")
RESPLITS = 100  # of each pair
ACCUSED = ("phantom", "mixed", "degenerate")
BESIDE = ("score", "behaviour", "ablation")  # what the rule reads beside the tests of a gain


def instruments() -> tuple[str, ...]:
    """Every instrument that the rule of the verdict reads and that needs no look inside a model."""
    return (*BESIDE, *(tool.name for tool in installed_instruments() if tool.layer == "sources"))


def identical_run(
    number: int, cache: Path, case_seed: int, tasks: int = QUICK_TASKS, resplits: int = RESPLITS
) -> dict[str, Any]:
    """One bundled checkpoint against itself, and its re-splits."""
    name, seed = NAMES[number % len(NAMES)], case_seed + number
    checkpoint, folder = checkpoint_path(f"bundled:{name}"), cache / "identical" / f"{name}-{seed}"
    verdict = verdict_of(checkpoint, checkpoint, folder, tasks, seed, silent, "cpu")
    case = opened(checkpoint, folder, tasks, seed)
    kept = [one for one in read_findings(folder / "evidence.jsonl") if one.layer == "behaviour"]
    return {
        "name": name,
        "seed": seed,
        "label": verdict.label,
        "resplits": [resplit(case, deal, kept) for deal in range(resplits)],
    }


def opened(checkpoint: Path, folder: Path, tasks: int, seed: int) -> Case:
    """The case that `verdict_of` made there: it finds the same stored runs."""
    own = inspect_checkpoint(checkpoint)
    return Case(
        folder=folder,
        subjects=tuple(
            CheckpointSubject(role=role, stated=own, device="cpu") for role in (BEFORE, Role(0))
        ),
        environment=MiniRepo(**read_json(checkpoint / "environment.json")["options"]),
        budget=Budget(tasks=tasks),
        seed=seed,
    )


def resplit(case: Case, number: int, kept: Sequence[Evidence | Undefined]) -> dict[str, Any]:
    """The label of one re-split, which families found something, what was called a shortcut."""
    mine = dealt(case, number)
    [score] = chosen_instruments(["score"])
    label = decide([*run_instrument(score, mine), *kept]).label
    if label == "noise":
        return {"label": label}
    tools = chosen_instruments(instruments())
    answers = [answer for tool in tools for answer in run_instrument(tool, mine)]
    found = [one for one in answers if isinstance(one, Evidence)]
    over = [one for one in found if one.question.endswith(".over_bar") and not one.about]
    return {
        "label": decide(answers).label,
        "tested": sorted(one.question.split(".")[0] for one in over),
        "found": sorted(
            one.question.split(".")[0] for one in over if one.interval and one.interval.low > 0
        ),
        "shortcuts": sorted(
            one.about or ""
            for one in found
            if one.question == "ablation.shortcut" and one.estimate == 1
        ),
    }


def identical(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all pairs and all re-splits."""
    labels = [row["label"] for row in rows]
    again = [one for row in rows for one in row["resplits"]]
    alarms = sum(label != "noise" for label in labels)
    return {
        "runs": len(rows),
        "alarms": alarms,
        "interval": exact_interval(alarms, len(rows)),
        "labels": _counted(labels),
        "resplits": len(again),
        "resplit_labels": _counted([one["label"] for one in again]),
        "resplits_accused": sum(map(accused, again)),
        "pairs_with_accused": sum(any(map(accused, row["resplits"])) for row in rows),
        "resplits_tested": Counter(name for one in again for name in one.get("tested", ())),
        "resplits_found": Counter(name for one in again for name in one.get("found", ())),
        "resplits_any_found": sum(bool(one.get("found")) for one in again),
    }


def accused(one: dict[str, Any]) -> bool:
    return one["label"] in ACCUSED or bool(one.get("shortcuts"))


def _counted(labels: Sequence[str]) -> dict[str, int]:
    return {label: labels.count(label) for label in LABELS if label in labels}
