"""Objects of kinds of action: to which did the policy after training turn?

An object that a share of the runs more act on recurs by that; a file that one
task alone has does not. A kind with one object is not split.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from forensics.case import Case, Rollouts
from forensics.layers.decomposition import World
from resampling.ablation.refused_runs import (
    STEP,
    acting_text,
    action_kinds,
    kinds_and_objects,
)

READ = (f"{STEP}role", f"{STEP}text", f"{STEP}kinds")


class Use(NamedTuple):
    """Shares of the runs that act on an object of a kind, before and after training."""

    kind: str
    before: float
    after: float


def object_use(case: Case, world: World, kinds: Collection[str]) -> dict[str, Use]:
    """By `KIND OBJECT`, for those of these kinds that serve several objects."""
    if not kinds:
        return {}
    before, *afters = (
        _shares(case.rollouts(side, without=world), kinds) for side in ("before", *case.afters)
    )
    seen = sorted(set(before).union(*afters))
    several = Counter(kind for kind, _ in seen)
    return {
        " ".join(one): Use(
            one[0],
            before.get(one, 0.0),
            sum(side.get(one, 0.0) for side in afters) / len(afters),
        )
        for one in seen
        if several[one[0]] > 1
    }


def recurring(use: Mapping[str, Use], more: float, most: int = 8) -> list[str]:
    """At most so many objects on which so many more of the runs after training
    act, those first whose use rose most.
    """
    rise = {name: one.after - one.before for name, one in use.items()}
    found = [name for name in use if rise[name] >= more]
    return sorted(found, key=lambda name: (-rise[name], name))[:most]


def _shares(log: Rollouts, kinds: Collection[str]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    runs = 0
    for row in log.rows(*READ):
        runs += 1
        found: set[tuple[str, str]] = set()
        for step in row["steps"]:
            if step["role"] == "assistant":
                named = action_kinds(step["text"], step["kinds"] or ())
                found |= {
                    (kind, about)
                    for kind, about in kinds_and_objects(acting_text(step["text"]), named)
                    if about is not None and kind in kinds
                }
        for one in found:
            counts[one] += 1
    return {one: count / runs for one, count in counts.items()}
