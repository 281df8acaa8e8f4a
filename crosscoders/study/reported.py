"""Which latents a diff reports: the one place where that is decided.

A latent that another seed does not find is not a finding, and neither is one that the before model
has as well. So each candidate (specific to the after model, or separating steps) is held to the
conditions in their order; what fails one is counted under it and not listed.

What latents cause together: a change that is spread over many shows in none of them alone.

1. Two sets: all latents that are specific to the after model, and those of them that come back
   from every other seed. Each is taken out at once and tested beside its directions turned at
   random as a single latent is (`causes`), but whole and not by a dose, as by the rule of
   `experiments/readers_of_the_difference`: an answer that stands firm gives way to no quarter of a
   set (decided after a dose had found nothing on the real pair). A set that holds is a finding,
   its members are none.
2. It is no finding of one seed's axes: the specific latents of every other seed are tested in the
   same way, and the set comes back where all of them hold.

What is told of the latents that are the after model's own by latent scaling, and how strongly
the before model writes them after all: `specific_latents` lets nu be up to a fifth by one target,
and up to a half by the other.

From the latents that come back to those that are reported: what each moves on stored texts of
other tasks (`causes`), and what they move together (`latent_sets`), is tested, written to
`causes.json`, and asked for (`reported`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from crosscoders.activations.streams import Stream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.table import LatentTable, specific_to_after
from crosscoders.study.causes import (
    FEW_TEXTS,
    RANDOM,
    TEXTS,
    Cause,
    Probe,
    ablated,
    caused,
    causes,
    causes_where_they_act,
)
from crosscoders.study.diff_files import CAUSES, shown
from crosscoders.study.material import Inquiry
from forensics.errors import UserError
from forensics.phrases import percent, plural, share_of_change
from forensics.progress import Progress, silent
from forensics.records import write_json
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
    others = [
        share_of_change(one.undone.estimate) if one.undone else plain(one.cause.effect.estimate, 3)
        for one in sets
        if one.which == "specific" and one.seed
    ]
    if others:
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
    if one.undone is None:
        return f"move the {one.cause.measure} by {plain(one.cause.effect.estimate, 3)}"
    share = share_of_change(*one.undone.ends)
    verb = "go" if share.startswith("the other way") else "undo"
    return f"{verb} {share} of what training changed in the {one.cause.measure}"


SPECIFIC: Final = "not specific to the after model"
COMES_BACK: Final = "specific, but not found from every other seed"
CAUSELESS: Final = "specific and found again, but not shown to move more than random directions do"
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
            why if seeds else why.replace(AGAIN, "") for why in (CAUSELESS, UNTESTED)
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


HARDLY: Final = 0.1  # nu of a latent that is told as missing in the other model
TARGETS: Final = ("nu_after", "nu_after_difference")  # that decide what is specific


def specific_sentence(table: LatentTable, models: int) -> str:
    """`models`: of the dictionary."""
    latents = table.specific("after").tolist()
    if models == 1:
        return (
            "The dictionary has one decoder for both models, so no latent of it can belong to one"
            " of them; nu says how much of it the other model has."
        )
    if not latents:
        return (
            "No latent is specific to the after model by its block and by latent scaling: nothing"
            " new was found."
        )
    dedicated = (table.column("partition") == "after-only").any()
    which = f"{plural(len(latents), 'latent')}{' of the after-only block' if dedicated else ''}"
    there = written_before(table, latents)
    what = "the after model's own" if there else "missing in the before model"
    return f"{which} {_be(len(latents))} {what} by latent scaling{there and f': {there}'}."


def written_before(table: LatentTable, latents: Sequence[int]) -> str:
    """How strongly the before model writes each kind of these latents, by the target whose nu is
    further from 0; empty where it hardly writes any.
    """
    nus = np.stack([table.column(name)[latents] for name in TARGETS])
    told = np.take_along_axis(nus, np.abs(nus).argmax(0)[None], 0)[0]
    parts = []
    for way, amounts in (("", told), ("the opposite way, ", -told)):
        if number := int((amounts > HARDLY).sum()):
            most = int(amounts.argmax())
            strongly = f"up to {percent(float(amounts[most]))} as strongly ({latents[most]})"
            parts.append(f"{number} {_be(number)} written in the before model {way}{strongly}")
    missing = len(latents) - int((np.abs(told) > HARDLY).sum())
    first = [f"{missing} {_be(missing)} missing in the before model"] if missing else []
    return ", ".join([*first, *parts]) if parts else ""


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


MOST_TESTED, FEW_TESTED = 24, 6  # latents, the most active first; of a deep network few


def tested(
    inquiry: Inquiry,
    dictionaries: Sequence[Dictionary],
    table: LatentTable,
    separating: Sequence[int],
) -> Reported:
    """What is reported, once what comes back was tested. `dictionaries`: of every seed, the
    pair's own first.
    """
    policies, streams, behaviours = inquiry.policies, inquiry.streams, inquiry.behaviours
    folder, progress = inquiry.folder, inquiry.progress
    own, seeds = dictionaries[0], len(dictionaries) - 1
    back = reported(table, separating, seeds).latents
    if own.config.models < 2:
        return reported(table, separating, seeds)
    texts = TEXTS if streams.small else FEW_TEXTS
    try:
        first = behaviours[0] if behaviours else None
        probe = Probe.of(policies[-1], streams.reported, first, most=texts)
    except UserError as error:
        write_json(folder / CAUSES, {"missing": str(error), "latents": {}})
        return reported(table, separating, seeds)
    most = MOST_TESTED if streams.small or probe.of_answers else FEW_TESTED
    rise, specific = probe.rise(policies[0]), table.specific("after").tolist()
    if behaviours:
        found = causes_where_they_act(inquiry, own, back[:most], texts)
    else:
        shares = rise if probe.of_answers else None
        found = causes(probe, own, back[:most], rise=shares, progress=progress)
    sets = latent_sets(
        probe, rise, dictionaries, streams.reported, specific, back, progress=progress
    )
    told = {str(latent): one.plain() for latent, one in found.items()}
    together = [one.plain() for one in sets]
    write_json(folder / CAUSES, {"measure": probe.measure, "latents": told, "together": together})
    holds = {latent: one.holds for latent, one in found.items()}
    return reported(table, separating, seeds, holds, _moved_told(probe, found), sets)


def _moved_told(probe: Probe, found: Mapping[int, Cause]) -> str:
    """Of those that move something; of all where none does."""
    measures = {one.measure for one in found.values() if one.holds}
    measures = measures or {one.measure for one in found.values()} or {probe.measure}
    if len(measures) > 1:
        return "the chance of an action whose use training changed, where it acts,"
    return f"the {measures.pop()}"
