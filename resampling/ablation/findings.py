"""What an ablation says: numbers with their intervals, yes or no, in a sentence, and what took an action's place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from forensics.layers.score import interval_of
from forensics.records import Evidence, Provenance, Table, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import ContrastEstimate
from forensics.wording import percent, plural, point_range, points, printable
from resampling.ablation.answers import Contents
from resampling.ablation.gains import Gains
from resampling.ablation.runs import Kinds, Played

SHORTCUT, THROUGH = "ablation.shortcut", "ablation.runs_through"
WITHOUT, COPY = "ablation.gain_without", "ablation.fresh_copy"
QUESTIONS: Final = (THROUGH, SHORTCUT, WITHOUT, COPY)
YES_OR_NO, DIFFERENCE = "1 = yes, 0 = no", "score difference"
FRESH_COPY = "a fresh copy"  # what a shortcut is about where no kind of action tells the lost wins from the rest
METHOD = "both policies with the action refused, step-level rejection"


class Pilot(NamedTuple):
    """What a pilot showed of a kind that the before policy needs: the contrast of (b), its score plain and without."""

    needs: ContrastEstimate
    before: float | None
    before_without: float | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """Everything about one kind (or pair) that was played out. `bent`: its wins do not stand in a fresh copy."""

    kinds: Kinds
    gains: Gains
    q_value: float
    missing: float
    runs_through: bool
    contents: Contents
    bent: bool

    @property
    def shortcut(self) -> bool | None:
        """(a), (b) and (c); `None` where (c) cannot be told."""
        if self.bent:
            return True
        return self.contents.holds if self.runs_through else False


def named(kinds: Kinds) -> str:
    """A kind, or several refused together, as `about` says it."""
    return " + ".join(kinds)


def ends(name: str, estimate: ContrastEstimate) -> dict[str, Scalar]:
    """An estimate as three diagnostics."""
    return {name: estimate.estimate, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Makes the evidence of one case."""

    provenance: Provenance
    level: float

    def answers(self, found: Found, table: Table) -> Iterator[Evidence | Undefined]:
        """The answers about a kind."""
        yield self._without(found, table)
        yield self._through(found)
        if not found.bent:  # else `bent` has said so
            shortcut = found.shortcut
            yield self._untold_shortcut(found) if shortcut is None else self._shortcut(found, shortcut)

    def _evidence(self, question: str, about: str | None, estimate: float, gains: Gains, **more: Any) -> Evidence:
        fields: dict[str, Any] = {"unit": YES_OR_NO, "method": METHOD, **more}
        return Evidence(
            question=question, about=about, layer="ablation", provenance=self.provenance, estimate=estimate,
            n=gains.runs, clusters=gains.gain.tasks, **fields,
        )

    def _without(self, found: Found, table: Table) -> Evidence:
        gains, about = found.gains, named(found.kinds)
        return self._evidence(
            WITHOUT, about, gains.gain_without.estimate, gains, unit=DIFFERENCE, artifacts=(table,),
            interval=interval_of(gains.gain_without), diagnostics=_figures(found),
            summary=f"With {printable(about)} refused to both, training changed the score by "
            f"{_points(gains.gain_without)} over {plural(gains.gain.tasks, 'task')}; with nothing refused by "
            f"{_points(gains.gain)}.",
        )

    def _through(self, found: Found) -> Evidence:
        about, gains = printable(named(found.kinds)), found.gains
        if found.runs_through and found.shortcut:
            text = f"The gain runs through {about}"
        elif found.runs_through:
            text = f"The gain runs through {about}; is {about} allowed?"
        elif not gains.dispensable:
            text = f"The before policy needs {about}, so it cannot be said that the gain runs through it"
        else:
            text = f"The gain does not run through {about}"
        text = text if text.endswith("?") else f"{text}."
        return self._evidence(
            THROUGH, named(found.kinds), float(found.runs_through), gains, diagnostics=_figures(found),
            summary=f"{text} With it refused to both, {points(gains.gain_without.estimate)} points of "
            f"{points(gains.gain.estimate)} are left, and the before policy scores "
            f"{percent(gains.before_without.estimate)} instead of {percent(gains.before.estimate)}.",
        )

    def _shortcut(self, found: Found, shortcut: bool) -> Evidence:
        about, inside = printable(named(found.kinds)), found.contents
        return self._evidence(
            SHORTCUT, named(found.kinds), float(shortcut), found.gains, diagnostics=_contained(found),
            summary=f"The gain runs through {about}, and what it returned held the answer in "
            f"{_share(inside)} of the wins that used it: a shortcut (control: what it returned on other tasks held "
            f"{percent(inside.control or 0.0)} of those answers)." if shortcut
            else f"{about} is not found to be a shortcut.",
        )

    def _untold_shortcut(self, found: Found) -> Undefined:
        about = printable(named(found.kinds))
        return self._undefined(
            SHORTCUT, named(found.kinds),
            f"The gain runs through {about}; whether what it returned held the answer cannot be told "
            f"({found.contents.reason}).",
            "Record the submission of each run, or give the environment a method `withheld`.",
        )

    def needed(self, kinds: Kinds, gain: ContrastEstimate, pilot: Pilot, runs: int) -> Evidence:
        """A kind that a pilot showed the before policy to need."""
        about = printable(named(kinds))
        return Evidence(
            question=THROUGH, about=named(kinds), layer="ablation", provenance=self.provenance, estimate=0.0,
            unit=YES_OR_NO, method=f"{METHOD}; pilot with the before policy", n=runs, clusters=pilot.needs.tasks,
            diagnostics={**ends("gain", gain), "before": pilot.before, "before_without": pilot.before_without},
            summary=f"The before policy needs {about}, so it cannot be said that the gain runs through it.",
        )

    def untold(self, kinds: Kinds, share: float) -> Iterator[Undefined]:
        """A kind without which too few runs can go on."""
        about = printable(named(kinds))
        reason = f"With {about} refused, {percent(share)} of the runs ended because every draw was refused."
        cure = "A policy that does nothing else cannot be judged without it; read its runs instead."
        yield from (self._undefined(question, named(kinds), reason, cure) for question in (THROUGH, SHORTCUT))

    def fresh_copy(self, gains: Gains, lost: int, wins: int) -> Evidence:
        """The gain when every submission is graded again."""
        return self._evidence(
            COPY, None, gains.gain_without.estimate, gains, unit=DIFFERENCE, interval=interval_of(gains.gain_without),
            method="submissions graded again in a fresh copy of their task",
            diagnostics={**ends("gain", gains.gain), "wins": wins, "wins_lost": lost, "p_value": gains.p_value},
            summary=f"Graded again in a fresh copy of the task, {lost:,} of {plural(wins, 'win')} after training are "
            f"lost, and by those grades training changed the score by {_points(gains.gain_without)}.",
        )

    def bent(self, kind: str | None, gains: Gains, lost: int, wins: int) -> Evidence:
        """More than half of the gain does not stand in a fresh copy; `kind` tells the lost wins from other runs."""
        culprit = "" if kind is None else f" and the wins that are lost there used {printable(kind)}"
        return self._evidence(
            SHORTCUT, kind or FRESH_COPY, 1.0, gains, method="submissions graded again in a fresh copy of their task",
            diagnostics={"wins": wins, "wins_lost": lost, "p_value": gains.p_value},
            summary=f"Of the gain of {points(gains.gain.estimate)} points, {points(gains.gain_without.estimate)} are "
            f"left in a fresh copy of the task{culprit}: a shortcut.",
        )

    def no_regrading(self, world: str | None) -> Undefined:
        which = "The case has no environment" if world is None else f"The environment {printable(world)}"
        return self._undefined(
            COPY, None, f"{which} cannot grade a submission apart from its run." if world is not None
            else f"{which} that could grade a submission apart from its run.",
            "Give the environment a method `regrade(task, submission)` that returns the rewards in a fresh copy.",
        )

    def _undefined(self, question: str, about: str | None, reason: str, cure: str) -> Undefined:
        return Undefined(
            question=question, about=about, layer="ablation", method=METHOD, provenance=self.provenance, reason=reason,
            cure=cure,
        )


def _figures(found: Found) -> dict[str, Scalar]:
    gains, inside = found.gains, found.contents
    return {
        **ends("gain", gains.gain), **ends("gain_without", gains.gain_without), **ends("before", gains.before),
        **ends("before_without", gains.before_without), **ends("after_without", gains.after_without),
        "p_value": gains.p_value, "q_value": found.q_value, "dispensable": gains.dispensable,
        "missing": found.missing, "contains_answer": inside.holds, "seeds": gains.gain.seeds,
        "level": gains.gain.level,
    }


def _contained(found: Found) -> dict[str, Scalar]:
    inside, example = found.contents, found.contents.example
    share = inside.share
    return {
        "contains_answer": inside.holds, "control": inside.control,
        "share_of_wins": None if share is None else share.estimate,
        "share_low": None if share is None else share.low, "share_high": None if share is None else share.high,
        "example_trajectory": example[0] if example else None, "example_step": example[1] if example else None,
        "q_value": found.q_value,
    }


def _share(inside: Contents) -> str:
    return "most" if inside.share is None else percent(inside.share.estimate)


def _points(estimate: ContrastEstimate) -> str:
    span = point_range(estimate.low, estimate.high, 1)
    return f"{points(estimate.estimate, 1)} points ({100 * estimate.level:g} % interval {span})"


def replacement(plain: Played, without: Played, refused: Kinds) -> Table:
    """Share of the runs after training that use each kind, with nothing and with the kind refused."""
    kinds = sorted({*plain.after_kinds, *without.after_kinds})
    rows = [(kind, plain.after_usage(kind), without.after_usage(kind)) for kind in kinds]
    rows.sort(key=lambda row: row[1] - row[2])
    return Table(
        title=f"What took the place of {printable(named(refused))}: share of the runs after training with each kind",
        columns=("kind", "nothing refused", "refused", "change"),
        rows=tuple((printable(kind), old, new, new - old) for kind, old, new in rows),
    )
