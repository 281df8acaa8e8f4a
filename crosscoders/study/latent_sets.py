"""What latents cause together: a change that is spread over many shows in none of them alone.

1. Two sets: all latents that are specific to the after model, and those of them that come back
   from every other seed. Each is taken out at once and tested beside its directions turned at
   random as a single latent is (`causes`), but whole and not by a dose, as by the rule of
   `experiments/readers_of_the_difference`: an answer that stands firm gives way to no quarter of a
   set (decided after a dose had found nothing on the real pair). A set that holds is a finding,
   its members are none.
2. It is no finding of one seed's axes: the specific latents of every other seed are tested in the
   same way, and the set comes back where all of them hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.table import specific_to_after
from crosscoders.study.causal_probe import Probe
from crosscoders.study.cause_words import shown
from crosscoders.study.causes import RANDOM, Cause, ablated, caused
from forensics.phrases import plural, share_of_change
from forensics.progress import Progress, silent
from forensics.report import plain
from forensics.statistics import Estimate

Which = Literal["specific", "comes back"]
FEWEST: Final = 2  # latents


@dataclass(frozen=True, kw_only=True)
class LatentSet:
    """Latents of the dictionary from one `seed` (0: the pair's own) that are taken out at once.
    `before`: what the before model has of what is read.
    """

    which: Which
    seed: int
    latents: tuple[int, ...]
    cause: Cause
    before: float

    @property
    def undone(self) -> Estimate | None:
        """The share of what training changed that goes with it."""
        return self.cause.undone

    @property
    def random_undone(self) -> tuple[float, ...]:
        """The same with the directions turned at random; empty where it is not known."""
        rise = self.cause.unchanged - self.before
        return tuple(-one / rise for one in self.cause.turned or ()) if self.undone else ()

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "cause": self.cause.plain()}


def latent_sets(
    probe: Probe,
    rise: Float[np.ndarray, " tasks"],
    dictionaries: Sequence[Dictionary],
    stream: Stream,
    specific: Sequence[int],
    back: Sequence[int],
    *,
    progress: Progress = silent,
) -> list[LatentSet]:
    """The sets of two latents and more. `rise`: see `caused`. `dictionaries`: of every seed, the
    pair's first, whose latents `specific` and of these `back` are. `stream`: on which the others'
    are told.
    """
    asked: list[tuple[Which, int, Sequence[int]]] = [("specific", 0, specific)]
    asked += [
        ("specific", seed, specific_to_after(one, stream))
        for seed, one in enumerate(dictionaries)
        if seed and len(specific) >= FEWEST
    ]
    asked += [("comes back", 0, back)] if set(back) != set(specific) else []
    wanted = [one for one in asked if len(one[2]) >= FEWEST]
    clean, found = probe.values(), []
    for number, (which, seed, latents) in enumerate(wanted):
        progress("what latents cause together", number, len(wanted))
        change = ablated(dictionaries[seed], latents)
        found.append(
            LatentSet(
                which=which,
                seed=seed,
                latents=tuple(latents),
                cause=caused(probe, change, unchanged=clean, rise=rise, dose=1.0),
                before=float((clean - rise).mean()),
            )
        )
    progress("what latents cause together", len(wanted), len(wanted))
    return found


def causing_together(sets: Sequence[LatentSet], seeds: int) -> tuple[int, ...]:
    """The set that is a finding: the specific latents, where those of every seed cause something
    together; else none. `seeds`: how many others there are.
    """
    specific = [one for one in sets if one.which == "specific"]
    everyone = bool(seeds) and len(specific) == 1 + seeds
    return specific[0].latents if everyone and all(one.cause.holds for one in specific) else ()


def sentence(sets: Sequence[LatentSet], seeds: int) -> str:
    """What they do together; empty where there is no set."""
    found = {(one.which, one.seed): one for one in sets}
    own, back = found.get(("specific", 0)), found.get(("comes back", 0))
    if own is None:
        return ""
    said = f"Taken out together, the {len(own.latents)} latents that are the after model's own"
    said += f" {_moves(own)} (it is {plain(own.before)} before, {plain(own.cause.unchanged)} after"
    said += f"{_turned(own.random_undone)})"
    if others := [_amount(one) for one in sets if one.which == "specific" and one.seed]:
        said += f", those of {plural(len(others), 'other seed')} {' and '.join(others)}"
    said += f": {_verdict(sets, seeds, own)}."
    if back:
        said += f" The {len(back.latents)} of them that come back one by one {_moves(back)},"
        said += f" {beside(back)}."
    return said


def _turned(undone: Sequence[float]) -> str:
    """What random directions did; the test stops at the first that does as much."""
    if not undone:
        return ""
    middle, most = map(share_of_change, (median(undone), max(undone, key=abs)))
    number = len(undone)
    some = f"{middle} in the median of {number}, {most} at most"
    stopped = ", where the test stopped" if number < RANDOM else ""
    return f"; turned at random {some if number > 1 else f'once, {most}'}{stopped}"


def _verdict(sets: Sequence[LatentSet], seeds: int, own: LatentSet) -> str:
    if causing_together(sets, seeds):
        return "as a set they cause it, which makes none of them a finding of its own"
    if own.cause.holds:
        lack = "but not with every seed" if seeds else "with one seed, and no other was trained"
        return f"more than random directions do, {lack}"
    return beside(own)


def beside(one: LatentSet) -> str:
    """What it moves beside random directions."""
    return shown(one.cause.plain(), "random direction", "activation size")


def _moves(one: LatentSet) -> str:
    """A share, else what is moved."""
    if one.undone is None:
        return f"move the {one.cause.measure} by {plain(one.cause.effect.estimate, 3)}"
    share = share_of_change(*one.undone.ends)
    verb = "go" if share.startswith("the other way") else "undo"
    return f"{verb} {share} of what training changed in the {one.cause.measure}"


def _amount(one: LatentSet) -> str:
    if one.undone is None:
        return plain(one.cause.effect.estimate, 3)
    return share_of_change(one.undone.estimate)
