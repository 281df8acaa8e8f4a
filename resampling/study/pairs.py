"""Cliff-DPO: preference pairs at confirmed cliffs (2606.25524).

1. Rejected is the cliff token. Chosen are the alternatives among the ten most probable tokens at that prefix that are
   no cliffs themselves: their potential lies above the cliff's, and not more than `delta0` below that of the prefix.
2. Each pair is one token against one token after the same prefix. Nothing is appended, no end of text either, so the
   loss falls on that position alone.
3. For comparison, pairs of the same size at random positions, and pairs of whole answers.
"""

from collections.abc import Sequence

import numpy as np

from forensics.records import PreferencePair, Provenance, content_hash
from resampling.study.alternatives import Alternative
from resampling.traces import Trace

DELTA0 = 0.05


def cliff_pairs(
    trace: Trace, token: int, alternatives: Sequence[Alternative], *, policy: str, provenance: Provenance,
    delta0: float = DELTA0,
) -> list[PreferencePair]:
    """The pairs of one cliff, one for every alternative that keeps the run's chances.

    `alternatives` must hold the cliff token itself (as `alternatives_at` gives them); its potential and that of the
    others, weighted by their probabilities, make the potential of the prefix. No pair where a potential is missing.
    """
    rejected = trace.tokens[token]
    known = {a.token_id: a for a in alternatives if a.potential is not None}
    if rejected not in known:
        return []
    potential = {i: float(a.potential) for i, a in known.items() if a.potential is not None}
    weights = np.array([known[i].probability for i in potential])
    before = float(weights @ np.array(list(potential.values())) / weights.sum())
    good = [i for i, p in potential.items() if i != rejected and p >= before - delta0 and p > potential[rejected]]
    return [_pair(trace, token, choice, rejected, policy, provenance) for choice in good]


def random_pairs(
    trace: Trace, tokens: Sequence[int], choices: Sequence[Sequence[int]], *, policy: str, provenance: Provenance
) -> list[PreferencePair]:
    """The control: the same number of single-token pairs at positions that are no cliffs.

    `choices[i]` are other tokens that could have been drawn at `tokens[i]`.
    """
    return [
        _pair(trace, token, choice, trace.tokens[token], policy, provenance)
        for token, row in zip(tokens, choices, strict=True) for choice in row if choice != trace.tokens[token]
    ]


def whole_answer_pair(
    prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int], *, task: str, policy: str,
    provenance: Provenance,
) -> PreferencePair:
    """The usual pair: a run that succeeded against one that failed, after the same prompt."""
    key = ["whole", list(prompt), list(chosen), list(rejected), policy]
    return PreferencePair(
        id=content_hash(key, 12), prefix=tuple(prompt), chosen=tuple(chosen), rejected=tuple(rejected), task=task,
        policy=policy, provenance=provenance,
    )


def _pair(
    trace: Trace, token: int, chosen: int, rejected: int, policy: str, provenance: Provenance
) -> PreferencePair:
    prefix = trace.ids[: trace.positions[token]]
    return PreferencePair(
        id=content_hash(["token", list(prefix), chosen, rejected, policy], 12), prefix=prefix, chosen=(chosen,),
        rejected=(rejected,), task=trace.task, policy=policy, provenance=provenance,
    )
