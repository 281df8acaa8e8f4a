"""From contributions to effects: ablated in after, added to before at a
strength chosen on other tasks; controls.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from experiments.one_feature.first_decision import RANDOM, Decisions, turned
from forensics.statistics import crossed_half_width

STRENGTHS = (0.5, 1.0, 1.5, 2.0, 3.0)
Contribution = torch.Tensor  # [tasks, width]


def effects(
    choosing: Decisions,
    reporting: Decisions,
    claimed: Mapping[str, tuple[Contribution, Contribution]],
    ruled: str,
    seed: int,
    strengths: Sequence[float] = STRENGTHS,
    directions: int = RANDOM,
) -> dict[str, Any]:
    """By carrier: removed and installed shares with intervals. `claimed`:
    contributions on both halves. `ruled`: the carrier that the random
    `directions` are matched to.
    """
    found = {name: _both(choosing, reporting, *parts, strengths) for name, parts in claimed.items()}
    generator = torch.Generator().manual_seed(seed)
    random = []
    for _ in range(directions):
        state = generator.get_state()
        here = turned(claimed[ruled][0], generator)
        generator.set_state(state)  # the same direction on both halves
        there = turned(claimed[ruled][1], generator)
        strength = found[ruled]["strength"]
        random.append(_measured(choosing, reporting, here, there, strength))
    return {"carriers": found, "random": random}


def _both(
    choosing: Decisions,
    reporting: Decisions,
    here: Contribution,
    there: Contribution,
    strengths: Sequence[float],
) -> dict[str, Any]:
    gains = {
        s: _added(choosing, _mean_active(choosing, here) * s)[choosing.cued].mean()
        for s in strengths
    }
    best = max(strengths, key=lambda s: gains[s])
    return _measured(choosing, reporting, here, there, best)


def _measured(
    choosing: Decisions,
    reporting: Decisions,
    here: Contribution,
    there: Contribution,
    strength: float,
) -> dict[str, Any]:
    """The vector that is added comes from the choosing half; everything else is
    the reporting half's.
    """
    added = _added(reporting, _mean_active(choosing, here) * strength)
    return {"strength": strength, **_shares(reporting, reporting.chance(1, -there), added)}


def exchanged(reporting: Decisions) -> dict[str, Any]:
    """The other model's whole residual in the place of a model's own, row by
    row: the most that the site can tell.
    """
    gap = reporting.residuals[:, 1] - reporting.residuals[:, 0]
    return _shares(reporting, reporting.chance(1, -gap), reporting.chance(0, gap))


def _shares(reporting: Decisions, ablated: np.ndarray, added: np.ndarray) -> dict[str, Any]:
    """Removed and installed shares on cued tasks, from the chances `[tasks]` of
    the changed models.
    """
    cued, none = reporting.cued, torch.zeros_like(reporting.residuals[:, 0])
    before, after = (reporting.chance(model, none)[cued] for model in (0, 1))
    gap = float((after - before).mean())
    named = {"before": before, "after": after, "ablated": ablated[cued], "added": added[cued]}
    return {
        "removed": _share(after - named["ablated"], gap),
        "installed": _share(named["added"] - before, gap),
        "chances": {name: float(values.mean()) for name, values in named.items()},
    }


def _added(decisions: Decisions, vector: torch.Tensor) -> np.ndarray:
    return decisions.chance(0, vector.expand(len(decisions.prompts), -1))


def _mean_active(decisions: Decisions, contribution: Contribution) -> torch.Tensor:
    """Mean contribution over the cued tasks where there is one, `[width]`."""
    rows = contribution[torch.from_numpy(decisions.cued)]
    active = rows.norm(dim=1) > 0
    return rows[active].mean(0) if bool(active.any()) else torch.zeros(rows.shape[1])


def _share(values: np.ndarray, gap: float) -> dict[str, float] | None:
    """Mean over tasks as a share of the gap, 95 %; `None` where the models do not differ."""
    if gap <= 0.01:
        return None
    half = float(crossed_half_width(values[None], 1.0, 0.95).total) / gap
    mean = float(values.mean()) / gap
    return {"estimate": mean, "low": mean - half, "high": mean + half}


def carries(found: Mapping[str, Any], ruled: str) -> bool:
    """The decision rule of one seed, without the cosine."""
    mine = found["carriers"][ruled]
    if mine["removed"] is None:
        return False
    enough = mine["removed"]["estimate"] >= 0.8 and mine["installed"]["estimate"] >= 0.5
    beaten = all(
        mine[what]["estimate"] > one[what]["estimate"]
        for one in found["random"]
        for what in ("removed", "installed")
    )
    return bool(enough and beaten)
