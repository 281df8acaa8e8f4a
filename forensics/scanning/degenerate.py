"""Which runs are degenerate: the measures of `layers.degeneracy` against limits.

What was done decides first: idle repeats, alternation, monologue (changing line numbers in an error are the same
answer, polling whose answer changes is no repeat). Of what was written only a loop at the very end and a text that is
nearly all repeats count, since longer healthy runs repeat more words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.layers.degeneracy import degeneracy
from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class DegeneracyLimits:
    """Shares of a run (0 to 1) above which a measure counts; `compression` in bytes per compressed byte."""

    action_repetition: float = 0.5
    alternation: float = 0.5
    monologue: float = 0.5
    repeated_suffix: float = 0.5
    repeated_ngrams: float = 0.9
    echoed_observation: float = 0.8
    compression: float = 25.0
    fewest_turns: int = 4


@dataclass(frozen=True, kw_only=True)
class Degenerate:
    """The measures of one run (`None`: too short to say) and the names of those above their limit."""

    trajectory: str
    measures: dict[str, float | None]
    above: tuple[str, ...]


def degenerate(trajectory: Trajectory, limits: DegeneracyLimits | None = None) -> Degenerate:
    """Measure one run. The measures of action need `fewest_turns` turns."""
    measures = degeneracy(trajectory)
    return Degenerate(trajectory=trajectory.id, measures=measures, above=above(measures, trajectory.turns, limits))


def above(
    measures: Mapping[str, float | None], turns: float, limits: DegeneracyLimits | None = None
) -> tuple[str, ...]:
    """The names of those measures of a run with so many turns that are above their limit."""
    limits = DegeneracyLimits() if limits is None else limits
    acting = {"action repetition": limits.action_repetition, "alternation": limits.alternation,
              "monologue": limits.monologue} if turns >= limits.fewest_turns else {}
    writing = {"longest repeated suffix": limits.repeated_suffix, "repeated n-grams": limits.repeated_ngrams,
               "echoed observation": limits.echoed_observation, "compression ratio": limits.compression}
    return tuple(
        name for name, limit in {**acting, **writing}.items()
        if (measured := measures[name]) is not None and measured > limit
    )
