"""A prediction held against what was found.

1. Size: `held` where the whole interval of the effect lies beyond the least size in the
   predicted direction, `did not hold` where none of it does, else `not decided`. For
   `none`: within the largest size, outside it, or across its border.
2. Beyond random (unless the file says otherwise): the share of directions, the tested one
   among them, that do as much the predicted way, `p = (1 + as large) / (1 + all)`, is at
   most 1 in 20. Where it is more, a prediction of size that held, or could have, did not.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crosscoders.steering.experiment_file import Predicted

SURE: Final = 0.05
HELD, FAILED, OPEN = "held", "did not hold", "not decided"


def rank_of(effect: float, random: Sequence[float]) -> float | None:
    """`p` of step 2 for an effect of either sign; `None` without random directions."""
    if not random:
        return None
    sign = 1 if effect >= 0 else -1
    return (1 + sum(sign * one >= sign * effect for one in random)) / (1 + len(random))


def judged(
    predicted: Predicted, effect: Mapping[str, float] | None, random: Sequence[float]
) -> dict[str, Any]:
    """`verdict`, `why` in words, and `p_value`, where it was asked for."""
    if effect is None:
        return {"verdict": OPEN, "why": "fewer than two tasks have the measure", "p_value": None}
    if predicted.effect == "none":
        return {"p_value": None, **_nothing(effect, predicted.at_most or 0.0)}
    sign, least = 1 if predicted.effect == "up" else -1, predicted.at_least or 0.0
    low, high = sorted(sign * effect[end] for end in ("low", "high"))
    size = HELD if low >= least else FAILED if high < least else OPEN
    why = {
        HELD: "the whole interval lies beyond the predicted size",
        FAILED: "the whole interval falls short of the predicted size",
        OPEN: "the interval holds the predicted size and less",
    }[size]
    if not predicted.beyond_random:
        return {"verdict": size, "why": why, "p_value": None}
    own, others = sign * effect["estimate"], [sign * one for one in random]
    p_value = (1 + sum(one >= own for one in others)) / (1 + len(others))
    if p_value > SURE and size != FAILED:
        size, why = FAILED, "random directions of equal length do as much"
    return {"verdict": size, "why": why, "p_value": p_value}


def _nothing(effect: Mapping[str, float], most: float) -> dict[str, str]:
    low, high = effect["low"], effect["high"]
    if -most <= low and high <= most:
        return {"verdict": HELD, "why": "the whole interval lies within the predicted size"}
    if low > most or high < -most:
        return {"verdict": FAILED, "why": "the whole interval lies beyond the predicted size"}
    return {"verdict": OPEN, "why": "the interval reaches across the predicted size"}
