"""Runs that the token budget kept from acting, or cut off: they must not pass
for losses without a word.

1. A prompt that fills the budget ends its run before the first action, with the
   score 0. Where more than one in a hundred of a side's runs never acted,
   scores of that world are not compared at all; fewer are named as a gap.
2. A run cut off later counts as lost, as the settings say, and many of them are
   named as a gap. Where most runs of both sides were cut off, the scores are
   about the budget and not about the policies, and are not compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from forensics.errors import MissingInput
from forensics.layers.decomposition import Runs, World
from forensics.wording import percent, printable

MOST_SILENT = 0.01  # of the runs of one side in one world
MOST_CUT = 0.5  # of the runs of each side in one world


def share(sides: Iterable[Runs], what: Literal["silent", "cut"]) -> float:
    """The largest share of such runs among several sides (0 without runs)."""
    return max(
        (getattr(runs, what) / total for runs in sides if (total := float(runs.counts.sum()))),
        default=0.0,
    )


def require_acting(world: World, before: Runs, afters: Sequence[Runs]) -> None:
    """Raises `MissingInput` where the runs of a world do not tell enough about the policies."""
    where = f" with {' and '.join(map(printable, world))} scrubbed" if world else ""
    silent = share([before], "silent"), share(afters, "silent")
    if max(silent) > MOST_SILENT:
        raise MissingInput(
            f"{_both(silent)}{where} never acted, as where a prompt leaves no room for an action,"
            " so their scores say nothing.",
            "Raise `--max-tokens` above the longest prompt, or leave the longest tasks out.",
        )
    cut = share([before], "cut"), share(afters, "cut")
    if min(cut) > MOST_CUT:
        raise MissingInput(
            f"{_both(cut)}{where} were cut off by the token budget, so their scores are about the"
            " budget.",
            "Raise `--max-tokens`.",
        )


def _both(shares: tuple[float, float]) -> str:
    return (
        f"{percent(shares[0])} of the runs before training and {percent(shares[1])} of those"
        " after it"
    )


def silent_shares(worlds: Mapping[World, tuple[Runs, tuple[Runs, ...]]]) -> dict[str, float]:
    """What the gain says of it: the largest share over the worlds for each
    side; nothing where no run is concerned.
    """
    before = [before for before, _ in worlds.values()]
    after = [runs for _, afters in worlds.values() for runs in afters]
    told = {
        "never_acted_before": share(before, "silent"),
        "never_acted_after": share(after, "silent"),
        "cut_off_before": share(before, "cut"),
        "cut_off_after": share(after, "cut"),
    }
    return {name: value for name, value in told.items() if value}
