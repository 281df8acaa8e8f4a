"""Which latents a diff reports: the one place where that is decided.

A latent that another seed does not find is not a finding, and neither is one that the before model
has as well. So each candidate (specific to the after model, or separating steps) is held to the
conditions in their order; what fails one is counted under it and not listed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from crosscoders.latents.table import LatentTable
from crosscoders.study.latent_sets import LatentSet, causing_together, sentence
from forensics.phrases import plural

SPECIFIC: Final = "not specific to the after model"
COMES_BACK: Final = "specific, but not found from every other seed"
CAUSES: Final = "specific and found again, but not shown to move more than random directions do"
UNTESTED: Final = "specific and found again, but not tested for what they move"
AGAIN: Final = " and found again"  # which is not known where one seed was trained
MOST_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True)
class Reported:
    """`latents`: that fulfil every condition that was measured, the most active first.
    `left_out`: how many candidates fail, by the first condition that was measured and that they
    fail. `seeds`: from
    how many others each was looked for; 0 where that was not measured. `back`: the after model's
    own that come back, whatever they cause.
    """

    latents: list[int]
    left_out: Mapping[str, int]
    seeds: int
    moved: str = ""  # more than random directions do; empty where nothing was tested
    back: Sequence[int] = ()
    sets: Sequence[LatentSet] = ()  # what was tested of latents together

    @property
    def presented(self) -> list[int]:
        """What the page lists and a person may want named: the findings, else the first few that
        come nearest to one.
        """
        return self.latents or list(self.back[:MOST_NAMED])

    @property
    def sentence(self) -> str:
        """What comes back, and what was left out."""
        number, others = len(self.latents), plural(self.seeds, "other seed")
        ending = "" if number > 1 else "s"
        held = ["are the after model's own" if number > 1 else "is the after model's own"]
        held += [f"come{ending} back from {others}"] if self.seeds else []
        if self.moved:
            held.append(
                f"move{ending} {self.moved} more than random directions of equal activation size do"
            )
        said = f"{plural(number, 'latent') if number else 'No latent'} {listed(held)}"
        said += f": {named(self.latents)}." if number else "."
        if not self.seeds:
            said += " Stability was not measured, so it is not known whether another seed finds it."
        if not self.moved:
            said += " What they cause was not measured."
        left = "; ".join(f"{many:,} {why}" for why, many in self.left_out.items() if many)
        return f"{said} Left out: {left}." if left else said

    @property
    def together(self) -> tuple[int, ...]:
        """The set that is a finding as a whole."""
        return causing_together(self.sets, self.seeds)

    @property
    def sentences(self) -> list[str]:
        """Single latents and sets; a set first where it is all that was found."""
        both = [self.sentence, sentence(self.sets, self.seeds)]
        return list(filter(None, both[::-1] if self.together and not self.latents else both))


def reported(
    table: LatentTable,
    separating: Sequence[int],
    seeds: int,
    causes: Mapping[int, bool] | None = None,
    moved: str = "",
    sets: Sequence[LatentSet] = (),
) -> Reported:
    """`separating`: latents that separate steps. `seeds`: how many others stand behind the
    table's `stability`. `causes`: whether a latent moves anything, for those that were tested;
    `None`: nothing is asked. `moved`: what was measured, in words. `sets`: what they move together.
    """
    specific = table.specific("after").tolist()
    stability = table.column("stability") if seeds else np.ones(len(table.column("latent")))
    back = [one for one in specific if stability[one] == 1]
    kept = [one for one in back if causes is None or causes.get(one, False)]
    left_out = {SPECIFIC: len(set(separating) - set(specific))}
    if seeds:
        left_out[COMES_BACK] = len(specific) - len(back)
    if causes is not None:
        moveless, untested = (
            why if seeds else why.replace(AGAIN, "") for why in (CAUSES, UNTESTED)
        )
        left_out[moveless] = sum(not causes.get(one, True) for one in back)
        left_out[untested] = len(set(back) - set(causes))
    return Reported(
        latents=kept,
        left_out=left_out,
        seeds=seeds,
        moved=moved,
        back=back,
        sets=sets,
    )


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def named(latents: Sequence[int]) -> str:
    """The first few by number."""
    more = ", ..." if len(latents) > MOST_NAMED else ""
    return ", ".join(map(str, latents[:MOST_NAMED])) + more
