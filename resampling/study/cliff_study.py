"""A study of the cliffs in a log: search, confirm, alternatives, delete and keep,
and preference pairs.

1. Search and confirmation (`cliffs`), with the taxonomy of each token.
2. What else could have been drawn at a cliff, and how the run would have gone.
3. Delete and keep (`delete_keep`).
4. Cliff-DPO: preference pairs at confirmed cliffs (2606.25524). Rejected is the
   cliff token. Chosen are the alternatives among the ten most probable tokens
   at that prefix that are no cliffs themselves: their potential lies above the
   cliff's, and not more than `delta0` below that of the prefix. Each pair is
   one token against one token after the same prefix. Nothing is appended, no
   end of text either, so the loss falls on that position alone.

Everything samples through one store in the study's folder, so a study that was
killed goes on where it stopped and says the same in the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forensics.policies import TopTokens, top_tokens
from forensics.progress import Progress, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.records import PreferencePair, Provenance, Trajectory, content_hash
from forensics.statistics import Estimate
from forensics.version import code_version
from forensics.world import environment_key
from resampling.cliffs.cliff_search import CliffConfig
from resampling.cliffs.cliffs import TOP, CliffReport, TestedToken, find_cliffs
from resampling.samplers.rollout_store import StoredSampler
from resampling.study.delete_keep import (
    DeleteKeep,
    DeleteKeepConfig,
    Restored,
    delete_and_keep,
    restored_by_kind,
)
from resampling.trace_rollouts import (
    ALTERNATIVES,
    Request,
    Sampler,
    Trace,
    draw_branches,
)

LIKELIEST = 10  # tokens at a place whose potential is measured
EACH = 32  # rollouts of each


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One token at the place of another: its probability under the sampler and
    its potential; `None` where no rollout came back. The interval is exact at
    95 % for outcomes of 0 or 1.
    """

    token_id: int
    probability: float
    potential: Estimate | None


def alternatives_at(
    places: Sequence[tuple[Trace, int]],
    tops: Sequence[TopTokens],
    sampler: Sampler,
    *,
    rollouts: int = EACH,
) -> list[list[Alternative]]:
    """The `LIKELIEST` tokens at each place `(trace, position among its
    sampled tokens)`, with potentials.

    `tops[i]` belongs to the trace of `places[i]`. The trace's own token is
    among them, drawn like the others.
    """
    rows: list[list[tuple[float, Request]]] = []  # each token that can be drawn
    for (trace, token), top in zip(places, tops, strict=True):
        ids, logprobs = top.at(trace.positions[token])
        chances = {trace.tokens[token]: float(trace.probabilities[token])}
        for token_id, logprob in zip(ids[:LIKELIEST], logprobs[:LIKELIEST], strict=True):
            if (probability := float(np.exp(logprob))) > 0:
                chances[int(token_id)] = probability
        place: dict[str, Any] = {"trace": trace.id, "kept": token, "first": ALTERNATIVES}
        rows.append([(p, Request(**place, n=rollouts, append=(i,))) for i, p in chances.items()])
    branches = draw_branches(sampler, (request for row in rows for _, request in row))

    def alternative(probability: float, request: Request) -> Alternative:
        branch = branches[request.branch]
        share = branch.share and replace(branch.share, estimate=float(branch.scores.mean()))
        return Alternative(token_id=request.append[0], probability=probability, potential=share)

    return [[alternative(*choice) for choice in row] for row in rows]


def cliff_pairs(
    trace: Trace,
    token: int,
    alternatives: Sequence[Alternative],
    *,
    policy: str,
    provenance: Provenance,
    delta0: float = 0.05,
) -> list[PreferencePair]:
    """The pairs of one cliff, one for every alternative that keeps the run's
    chances.

    `alternatives` must hold the cliff token itself (as `alternatives_at` gives
    them); its potential and that of the others, weighted by their
    probabilities, make the potential of the prefix. No pair where a potential
    is missing.
    """
    rejected = trace.tokens[token]
    potential = {a.token_id: a.potential.estimate for a in alternatives if a.potential}
    if rejected not in potential:
        return []
    weights = np.array([a.probability for a in alternatives if a.potential])
    before = float(weights @ np.array(list(potential.values())) / weights.sum())
    return [
        token_pair(trace, token, chosen, rejected, policy, provenance)
        for chosen, p in potential.items()
        if p >= before - delta0 and p > potential[rejected]
    ]


def token_pair(
    trace: Trace, token: int, chosen: int, rejected: int, policy: str, provenance: Provenance
) -> PreferencePair:
    """One token against another at the place of the trace's sampled token
    number `token`.
    """
    prefix = trace.ids[: trace.positions[token]]
    return PreferencePair(
        id=content_hash(["token", list(prefix), chosen, rejected, policy], 12),
        prefix=prefix,
        chosen=(chosen,),
        rejected=(rejected,),
        task=trace.task,
        policy=policy,
        provenance=provenance,
    )


@dataclass(frozen=True, kw_only=True)
class RunsToContinue:
    """Runs, as trajectories and as traces under the policy's own sampling
    settings, and who continues them.
    """

    runs: tuple[Trajectory, ...]
    traces: tuple[Trace, ...]
    policy: Any
    environment: Environment
    settings: SamplingSettings
    sampler: Sampler

    def run(self, trace: str) -> Trajectory:
        return next(run for run in self.runs if run.id == trace)

    def token_text(self, token_id: int) -> str:
        """What a token says."""
        text: str = self.policy.tokenizer.decode([token_id])
        return text

    def shortcut_kinds(self) -> frozenset[str]:
        """Kinds of steps that try a shortcut which the environment declares."""
        return frozenset(kind for channel in self.environment.channels for kind in channel.attempts)

    def top_tokens(self, progress: Progress) -> dict[str, TopTokens]:
        """The likeliest tokens at each place of each trace."""
        tops = {}
        for number, trace in enumerate(self.traces):
            progress("scoring runs", number, len(self.traces))
            tops[trace.id] = top_tokens(self.policy, trace.ids, TOP, self.settings, trace.starts)
        progress("scoring runs", len(self.traces), len(self.traces))
        return tops

    def provenance(self, config: "StudyConfig", seed: int) -> Provenance:
        """What replays a study of these runs."""
        return Provenance(
            instrument="cliffs",
            config={
                "rises": config.rises,
                "delta": config.cliffs.delta,
                "delta0": config.cliffs.delta0,
                "fdr": config.cliffs.fdr,
                "budget": config.cliffs.rollouts,
                "alternatives": EACH,
                "delete_keep": config.delete_keep,
                **asdict(self.settings),
            },
            seed=seed,
            code=code_version(),
            inputs={
                "policy": self.policy.identity,
                "environment": environment_key(self.environment),
            },
        )


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """`rises`: look for tokens that win a run instead. `delete_keep`: rollouts
    of each arm; 0 leaves that out.
    """

    cliffs: CliffConfig
    rises: bool = False
    delete_keep: int = 64


@dataclass(frozen=True, kw_only=True)
class CliffStudy:
    """What was found. `alternatives[i]` belongs to `report.cliffs[i]`, as does `causation[i]`."""

    report: CliffReport
    alternatives: tuple[tuple[Alternative, ...], ...]
    causation: tuple[DeleteKeep, ...]
    pairs: tuple[PreferencePair, ...]
    provenance: Provenance

    @property
    def restored(self) -> list[Restored]:
        """What deletion restores, by type of cliff."""
        return restored_by_kind(self.causation)

    def with_delete_keep(self) -> Iterator[tuple[TestedToken, DeleteKeep | None]]:
        """Every cliff with its cuts, where they were made."""
        for place, cliff in enumerate(self.report.cliffs):
            yield cliff, self.causation[place] if self.causation else None


def study_cliffs(
    opened: RunsToContinue,
    folder: Path,
    config: StudyConfig,
    seed: int,
    progress: Progress = silent,
) -> CliffStudy:
    """Look through the opened runs; rollouts are kept in `folder/rollouts`."""
    sampler = StoredSampler(folder / "rollouts", opened.sampler, retry=True)
    traces = {trace.id: trace for trace in opened.traces}
    tops = opened.top_tokens(progress)

    def search_progress(phase: str, working: int, spent: int) -> None:
        limit, name = config.cliffs.rollouts, f"{phase}, {working} at work, {spent} rollouts"
        progress(name, min(spent, limit or 0), limit or spent + 1)

    report = find_cliffs(
        opened.traces,
        sampler,
        config.cliffs,
        None if config.rises else tops,  # a rise is of no kind
        search_progress,
        rises=config.rises,
    )
    places = [(traces[cliff.trace], cliff.token) for cliff in report.cliffs]
    progress("alternatives", 0, 1)
    alternatives = alternatives_at(places, [tops[trace.id] for trace, _ in places], sampler)
    progress("alternatives", 1, 1)
    causation: list[DeleteKeep] = []
    if config.delete_keep:
        progress("delete and keep", 0, 1)
        causation = delete_and_keep(
            report.cliffs,
            {trace.trace: trace.potentials for trace in report.traces},
            {trace.id: trace.task for trace in opened.traces},
            sampler,
            DeleteKeepConfig(rollouts=config.delete_keep, ks=(1, config.delete_keep), seed=seed),
        )
        progress("delete and keep", 1, 1)
    provenance = opened.provenance(config, seed)
    pairs = [
        pair
        for (trace, token), row in zip(places, alternatives, strict=True)
        for pair in cliff_pairs(
            trace, token, row, policy=opened.policy.identity, provenance=provenance
        )
    ]
    return CliffStudy(
        report=report,
        alternatives=tuple(map(tuple, alternatives)),
        causation=tuple(causation),
        provenance=provenance,
        pairs=() if config.rises else tuple(pairs),
    )


def cliff_row(cliff: TestedToken, text: str, causation: DeleteKeep | None) -> dict[str, Any]:
    """A row of `cliffs.jsonl`."""
    drop, contrast = cliff.drop, cliff.contrast
    assert drop is not None and contrast is not None, "a confirmed token has outcomes in both arms"
    row = {
        "trajectory": cliff.trace,
        "token": cliff.token,
        "text": text,
        "step": cliff.step,
        "drop": drop.estimate,
        "contrast": contrast.estimate,
        "low": drop.low,
        "high": drop.high,
        "level": drop.level,
        "e_value": cliff.e_value,
        "kind": cliff.kind,
        "probability": cliff.probability,
        "pairs": cliff.pairs,
        "missing": cliff.missing,
    }
    if causation is not None:
        row |= {
            "restored": causation.cliff.restored,
            "control": None if causation.control is None else causation.control.restored,
        }
    return row
