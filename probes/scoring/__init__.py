"""Whole logs scored under two checkpoints: one streaming pass, sampled tokens only.

`score_log` is the pass, `scored_log` the same for a case with everything kept, `stored_scores` for any folder and log;
`side_of` names a policy in memory by its weights. `sampler_agreement` holds the scores against what the sampler told.
Adapters: `probes.scoring.adapters`; servers: `probes.scoring.server`. Light at import.
"""

from typing import TYPE_CHECKING, Any

from probes.scoring.agreement import Agreement, sampler_agreement
from probes.scoring.sides import Side, side_of
from probes.scoring.store import scored_log, stored_scores

if TYPE_CHECKING:
    from probes.scoring.log import score_log

__all__ = ["Agreement", "Side", "sampler_agreement", "score_log", "scored_log", "side_of", "stored_scores"]


def __getattr__(name: str) -> Any:
    """`score_log` brings torch, so it is loaded when it is asked for."""
    if name != "score_log":
        raise AttributeError(name)
    from probes.scoring.log import score_log

    return score_log
