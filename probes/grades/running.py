"""`forensics grade` as a function: a log under two checkpoints, graded, compared, split, and written.

1. The log is opened and the two checkpoints are hashed; a folder that holds another grading is refused.
2. Both models go over the log once; what they say is kept in the folder, so that a run that was killed goes on.
3. Grades, the table with its baselines, the KL split, step rewards and the page are made from that.
4. Where they are asked for, linear probes read the activations of some of the runs (`probing`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from forensics.errors import MissingInput
from forensics.protocols import Channel, SamplingSettings
from forensics.records import Trajectory, content_hash
from probes.grades.attribution import Attribution, attribution
from probes.grades.comparing import Comparison, compare
from probes.grades.confidence import TopConfidence
from probes.grades.grading import Graded, grade
from probes.grades.logs import Log, open_log, read_truth
from probes.grades.opening import GradeRun, channels_of, open_sides, require_same
from probes.grades.probing import Probing
from probes.grades.selection import Grades, Selected, grades_by, select
from probes.grades.shortcuts import Contrast, contrast
from probes.kl.book import Book, plan_split
from probes.kl.split import KlSplit, split_of
from probes.linear.logs import Probed
from probes.scoring import Agreement, Side, sampler_agreement, stored_scores

ASKED: Final = "asked.json"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What was found. What could not be told is `None`, with its reason in `missing`.

    `attempts`: of each declared channel the kinds of steps that try it. `agreement`: of the log-probabilities that the
    sampler told with the scorer's, where the policy made the runs.
    """

    log: Log
    runs: tuple[Graded, ...]
    policy: str
    reference: str
    beta: float
    attempts: Mapping[str, tuple[str, ...]]
    comparison: Comparison
    split: KlSplit | None
    shortcuts: Mapping[str, Contrast]
    attribution: tuple[Attribution, ...]
    selected: Selected | None
    missing: tuple[str, ...]
    inputs: Mapping[str, Any]
    agreement: Agreement | None = None
    probes: tuple[Probed, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one pass over the log gives: grades, the KL booked, how far sampler and scorer are apart, and, where they
    are asked for, grades under every aggregation."""

    book: Book
    runs: list[Graded] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    grades: list[Grades] = field(default_factory=list)


def grade_log(asked: GradeRun, out: Path, progress: Progress) -> Grading:
    """Grades a log. Raises `UserError` for what does not fit together, and where `out` holds another grading."""
    sides, identities = open_sides(asked)
    log = open_log(asked.logs.expanduser(), identities[0], asked.without, out / "runs")
    truth = None if asked.truth is None else read_truth(asked.truth)
    missing: list[str] = []
    channels = channels_of(asked, missing)
    probing = None if asked.probes is None else Probing.of(asked.probes, sides, identities, channels, missing)
    inputs = _inputs(asked, log, identities, channels, truth) | {"probes": probing.stated() if probing else None}
    require_same(out / ASKED, inputs)
    read = _read(log, sides, out / "scores", asked.select, progress)
    runs = read.runs
    missing += [] if log.unreadable is None else [log.unreadable]
    split = told(lambda: split_of(read.book, channels), missing, "The KL split")
    shortcuts = _shortcuts(runs, channels, missing)
    attributed = _attribution(runs, truth, missing)
    selected = told(lambda: _select(read, asked.seed), missing, "Another aggregation") if asked.select else None
    return Grading(
        log=log, runs=tuple(runs), policy=identities[0], reference=identities[1], beta=asked.beta,
        attempts={channel.name: channel.attempts for channel in channels},
        comparison=compare(runs, n=asked.n, seed=asked.seed), split=split, shortcuts=shortcuts, attribution=attributed,
        selected=selected, missing=tuple(missing), inputs=inputs,
        agreement=together(read.agreements) if log.own else None,
        probes=probing.probes(asked, log, out, progress) if probing else (),
    )


def _attribution(
    runs: Sequence[Graded], truth: Mapping[str, int] | None, missing: list[str]
) -> tuple[Attribution, ...]:
    if truth is None:
        return ()
    found: Sequence[Attribution] | None = told(lambda: attribution(runs, truth), missing, "Failure attribution")
    return tuple(found or ())


def _inputs(
    asked: GradeRun, log: Log, identities: Sequence[str], channels: Sequence[Channel], truth: Mapping[str, int] | None
) -> dict[str, Any]:
    """What identifies the grading: hashes and settings, no paths."""
    return {
        "log": log.rollouts.key, "runs": log.runs, "policy": identities[0], "reference": identities[1],
        "without": sorted(asked.without), "channels": [channel.name for channel in channels], "n": asked.n,
        "select": asked.select, "beta": asked.beta, "seed": asked.seed,
        "truth": None if truth is None else content_hash(truth),
    }


def _read(
    log: Log, sides: tuple[Side, Side], folder: Path, selecting: bool, progress: Progress
) -> Reading:
    """One pass over the log."""
    plan = plan_split(log.rollouts, sides[0].load())
    found = Reading(book=Book(plan=plan))
    scores = stored_scores(folder, log.rollouts, *sides, settings=SamplingSettings(),
                           readouts=(TopConfidence(), plan.readout),
                           progress=lambda done, of: progress("scoring runs", done, of))
    for scored in scores:
        found.book.add(scored)
        found.runs.append(grade(scored))
        found.agreements.append(sampler_agreement([scored]))
        if selecting:
            found.grades.append(grades_by(scored))
    return found


def told(measure: Callable[[], Any], missing: list[str], what: str) -> Any:
    """The measurement, or `None` with the reason."""
    try:
        return measure()
    except MissingInput as error:
        missing.append(f"{what} cannot be told: {error.reason[0].lower()}{error.reason[1:]}")
        return None


def _shortcuts(runs: Sequence[Graded], channels: Sequence[Channel], missing: list[str]) -> dict[str, Contrast]:
    found = {channel.name: told(partial(contrast, runs, channel.attempts), missing,
                                f"Whether the grade rewards {channel.name}") for channel in channels}
    return {name: one for name, one in found.items() if one is not None}


def together(parts: Sequence[Agreement]) -> Agreement:
    """The agreement over all runs."""
    tokens = sum(part.tokens for part in parts)
    total = sum(part.mean * part.tokens for part in parts if part.mean is not None)
    return Agreement(mean=total / tokens if tokens else None, tokens=tokens,
                     largest=max((part.largest for part in parts if part.largest is not None), default=None))


def _select(read: Reading, seed: int) -> Selected:
    return select(read.grades, [run.outcome for run in read.runs], [run.task for run in read.runs], seed)


def chosen_runs(grading: Grading, names: set[str]) -> Iterator[Trajectory]:
    """These runs of the log, in its order."""
    return (run for run in grading.log.rollouts if run.id in names)
