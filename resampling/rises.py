"""Tokens that win a run: the same search with success and failure exchanged.

A drop of the chance to fail is a rise of the chance to succeed, so everything that holds for cliffs (pruning by the
identity, confirmation on fresh samples, the false discovery rate) holds for rises.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from resampling.cliffs import CliffConfig, CliffReport, Estimate, Progress, TestedToken, TraceReport, find_cliffs
from resampling.rollouts import Request, Rollout, Sampler
from resampling.traces import Trace


@dataclass(frozen=True)
class Flipped:
    """A sampler whose outcomes are exchanged: `1 - outcome`. Missing ones stay missing."""

    sampler: Sampler

    @property
    def identity(self) -> str:
        return f"flipped-{self.sampler.identity}"

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for rollout in self.sampler.draw(requests):
            yield rollout if rollout.outcome is None else replace(rollout, outcome=1 - rollout.outcome)


def find_rises(
    traces: Sequence[Trace], sampler: Sampler, config: CliffConfig | None = None, progress: Progress | None = None
) -> CliffReport:
    """Tokens that raise the chance of success. Drops and contrasts of the report are negative."""
    report = find_cliffs(traces, Flipped(sampler), config, progress=progress)
    return replace(
        report, cliffs=tuple(map(_turned, report.cliffs)), rejected=tuple(map(_turned, report.rejected)),
        traces=tuple(map(_upright, report.traces)), sampler=sampler.identity,
    )


def _turned(token: TestedToken) -> TestedToken:
    return replace(token, drop=_negative(token.drop), contrast=_negative(token.contrast))


def _negative(estimate: Estimate | None) -> Estimate | None:
    if estimate is None:
        return None
    return replace(estimate, estimate=-estimate.estimate, low=-estimate.high, high=-estimate.low)


def _upright(trace: TraceReport) -> TraceReport:
    return replace(trace, potentials=1 - trace.potentials, low=1 - trace.high, high=1 - trace.low)
