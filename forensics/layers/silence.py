"""Runs in which the policy never acted: they tell nothing about it, and must not pass for losses.

A prompt that fills the token budget ends its run before the first action, with the score 0. A few such runs are named
as a gap; where they are more than one in a hundred of a side's runs, scores of that world are not compared at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from forensics.errors import MissingInput
from forensics.layers.decomposition import Runs, World
from forensics.wording import percent, printable

MOST_SILENT: Final = 0.01  # of the runs of one side in one world
CURE: Final = "Raise `--max-tokens` above the longest prompt, or leave the longest tasks out."


def silent_share(sides: Iterable[Runs]) -> float:
    """The largest share of runs without an action among several sides (0 without runs)."""
    return max((runs.silent / total for runs in sides if (total := float(runs.counts.sum()))), default=0.0)


def require_acting(world: World, before: Runs, afters: Sequence[Runs]) -> None:
    """Raises `MissingInput` where too many runs of one side in a world never acted."""
    shares = silent_share([before]), silent_share(afters)
    if max(shares) > MOST_SILENT:
        where = f" with {' and '.join(map(printable, world))} scrubbed" if world else ""
        raise MissingInput(
            f"{percent(shares[0])} of the runs before training and {percent(shares[1])} of those after it{where} "
            "never acted, as where a prompt leaves no room for an action, so their scores say nothing.",
            CURE,
        )


def silent_shares(worlds: Mapping[World, tuple[Runs, tuple[Runs, ...]]]) -> dict[str, float]:
    """What the gain says of it: the largest share over the worlds for each side; nothing where every run acted."""
    before = silent_share(before for before, _ in worlds.values())
    after = silent_share(runs for _, afters in worlds.values() for runs in afters)
    return {"never_acted_before": before, "never_acted_after": after} if before or after else {}
