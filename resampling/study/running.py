"""A study of the cliffs in a log: search, confirm, alternatives, delete and keep, and what is written of it.

Everything samples through one store in the study's folder, so a study that was killed goes on where it stopped and
says the same in the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import environment_key
from forensics.policies.top_tokens import TopTokens, top_tokens
from forensics.records import PreferencePair, Provenance
from forensics.version import code_version
from resampling.cliffs import TOP, Choices, CliffConfig, CliffReport, TestedToken, find_cliffs
from resampling.engine.store import StoredSampler
from resampling.rises import find_rises
from resampling.study.alternatives import MOST, Alternative, alternatives_at
from resampling.study.causation import DeleteKeep, DeleteKeepConfig, Restored, delete_and_keep, restored_by_kind
from resampling.study.opening import Opened
from resampling.study.pairs import cliff_pairs
from resampling.traces import Trace

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """`rises`: look for tokens that win a run instead. `alternatives`: rollouts of each of the ten likeliest tokens.

    `delete_keep`: rollouts of each arm; 0 leaves that out.
    """

    cliffs: CliffConfig
    rises: bool = False
    alternatives: int = 32
    delete_keep: int = 64


@dataclass(frozen=True, kw_only=True)
class Study:
    """What was found. `alternatives[i]` belongs to `report.cliffs[i]`, as does `causation[i]`."""

    report: CliffReport
    alternatives: tuple[tuple[Alternative, ...], ...]
    causation: tuple[DeleteKeep, ...]
    restored: tuple[Restored, ...]
    pairs: tuple[PreferencePair, ...]
    provenance: Provenance


def study_cliffs(
    opened: Opened, folder: Path, config: StudyConfig, seed: int, progress: Progress = lambda what, done, of: None
) -> Study:
    """Look through the opened runs; rollouts are kept in `folder/rollouts`."""
    sampler = StoredSampler(folder / "rollouts", opened.sampler, retry=True)
    traces = {trace.id: trace for trace in opened.traces}
    tops = {trace.id: _top(opened, trace, number, progress) for number, trace in enumerate(opened.traces)}
    progress("scoring runs", len(traces), len(traces))
    report = _find(opened, sampler, config, tops, progress)
    places = [(traces[found.trace], found.token) for found in report.cliffs]
    progress("alternatives", 0, 1)
    alternatives = alternatives_at(
        places, [tops[trace.id] for trace, _ in places], sampler, rollouts=config.alternatives, most=MOST
    ) if config.alternatives else [[] for _ in places]
    progress("alternatives", 1, 1)
    causation = _causation(opened, report, sampler, config, seed, progress)
    provenance = _provenance(opened, config, seed)
    return Study(
        report=report, alternatives=tuple(map(tuple, alternatives)), causation=tuple(causation),
        restored=tuple(restored_by_kind(causation)), provenance=provenance,
        pairs=() if config.rises else tuple(_pairs(opened, places, alternatives, provenance)),
    )


def _top(opened: Opened, trace: Trace, number: int, progress: Progress) -> TopTokens:
    progress("scoring runs", number, len(opened.traces))
    return top_tokens(opened.policy, trace.ids, TOP, opened.settings, trace.starts)


def _find(
    opened: Opened, sampler: StoredSampler, config: StudyConfig, tops: dict[str, TopTokens], progress: Progress
) -> CliffReport:
    def hear(phase: str, working: int, spent: int) -> None:
        limit = config.cliffs.budget.rollouts
        progress(f"{phase}, {working} at work, {spent} rollouts", min(spent, limit or 0), limit or spent + 1)

    if config.rises:
        return find_rises(opened.traces, sampler, config.cliffs, hear)
    choices = {trace.id: _choices(trace, tops[trace.id]) for trace in opened.traces}
    return find_cliffs(opened.traces, sampler, config.cliffs, choices, hear)


def _choices(trace: Trace, top: TopTokens) -> Choices:
    """The taxonomy's input at every sampled token."""
    rows = np.array([position - 1 for position in trace.positions], int)
    return Choices(top=np.exp(top.logprobs[rows]), greedy=top.ids[rows, 0] == np.array(trace.tokens))


def _causation(
    opened: Opened, report: CliffReport, sampler: StoredSampler, config: StudyConfig, seed: int, progress: Progress
) -> list[DeleteKeep]:
    if not config.delete_keep:
        return []
    progress("delete and keep", 0, 1)
    arms = DeleteKeepConfig(rollouts=config.delete_keep, ks=(1, config.delete_keep), seed=seed)
    found = delete_and_keep(
        report.cliffs, {trace.trace: trace.potentials for trace in report.traces},
        {trace.id: trace.task for trace in opened.traces}, sampler, arms,
    )
    progress("delete and keep", 1, 1)
    return found


def _pairs(
    opened: Opened, places: list[tuple[Trace, int]], alternatives: list[list[Alternative]], provenance: Provenance
) -> Iterator[PreferencePair]:
    for (trace, token), row in zip(places, alternatives, strict=True):
        yield from cliff_pairs(trace, token, row, policy=opened.policy.identity, provenance=provenance)


def _provenance(opened: Opened, config: StudyConfig, seed: int) -> Provenance:
    settings = {
        "rises": config.rises, "delta": config.cliffs.delta, "delta0": config.cliffs.confirm.delta0,
        "fdr": config.cliffs.confirm.fdr, "budget": config.cliffs.budget.rollouts,
        "alternatives": config.alternatives, "delete_keep": config.delete_keep, **asdict(opened.settings),
    }
    return Provenance(
        instrument="cliffs", config=settings, seed=seed, code=code_version(),
        inputs={"policy": opened.policy.identity, "environment": environment_key(opened.environment)},
    )


def cliff_row(found: TestedToken, text: str, causation: DeleteKeep | None) -> dict[str, Any]:
    """A row of `cliffs.jsonl`."""
    drop, contrast = found.drop, found.contrast
    assert drop is not None and contrast is not None, "a confirmed token has outcomes in both arms"
    row = {
        "trajectory": found.trace, "token": found.token, "text": text, "step": found.step, "drop": drop.estimate,
        "contrast": contrast.estimate, "low": drop.low, "high": drop.high, "level": drop.level,
        "e_value": found.e_value, "kind": found.kind, "probability": found.probability, "pairs": found.pairs,
        "missing": found.missing,
    }
    if causation is not None:
        row |= {"restored": causation.cliff.restored,
                "control": None if causation.control is None else causation.control.restored}
    return row

