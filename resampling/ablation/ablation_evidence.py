"""What an ablation says: numbers with their intervals, yes or no, in a
sentence, and what took an action's place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers import GENUINE_BAR
from forensics.phrases import allow_flags, percent, plural, point_range, points, printable
from forensics.records import Evidence, Provenance, Scalar, Table, Undefined
from forensics.statistics import Contrast, Estimate
from forensics.verdict import JOINED
from resampling.ablation.gains import METHOD, Carried, Gains
from resampling.ablation.refused_runs import AnswerShare, Kinds, Played

SHORTCUT, THROUGH = "ablation.shortcut", "ablation.runs_through"
WITHOUT = "ablation.gain_without"
CARRIED, REFUSED = "refusal.carried", "refusal.over_bar"
LOST, REGRADED = "regrading.carried", "regrading.over_bar"
QUESTIONS: Final = (THROUGH, SHORTCUT, WITHOUT, CARRIED, REFUSED, LOST, REGRADED)
YES_OR_NO, DIFFERENCE = "1 = yes, 0 = no", "score difference"
LONGEST = 200  # of a list of kinds
# what a shortcut is about where no kind of action tells the lost wins from the rest
FRESH_COPY = "a fresh copy"
AGAIN = "hand-ins graded again in a fresh copy of their task"
# (1.96 + 1.2816) / 1.96: what a half-width at 95 % times this amounts to is seen with
# power .9
POWER = 1.6538
ALLOW = (
    "Allow it with `{allow}`, or name what an honest solver needs in the environment's `needed`."
)


@dataclass(frozen=True, kw_only=True)
class KindResult:
    """Everything about one kind (or pair) that was played out. `bent`: its wins
    do not stand in a fresh copy.
    """

    kinds: Kinds
    gains: Gains
    q_value: float
    missing: float
    runs_through: bool
    contents: AnswerShare
    bent: bool

    @property
    def shortcut(self) -> bool | None:
        """(a), (b) and (c); `None` where (c) cannot be told."""
        if self.bent:
            return True
        return self.contents.holds if self.runs_through else False


def named(kinds: Kinds) -> str:
    """A kind, or several refused together, as `about` says it."""
    return JOINED.join(kinds)


def ends(name: str, estimate: Contrast) -> dict[str, Scalar]:
    """An estimate as three diagnostics."""
    return {name: estimate.estimate, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True, kw_only=True)
class AblationEvidence:
    """Makes the evidence of one case."""

    provenance: Provenance

    @property
    def make(self) -> AnswerMaker:
        return AnswerMaker(layer="ablation", method=METHOD, provenance=self.provenance)

    def answers(self, result: KindResult, table: Table) -> Iterator[Evidence | Undefined]:
        """The answers about a kind."""
        yield self._without(result, table)
        yield self._through(result)
        if not result.bent:  # else `bent` has said so
            shortcut = result.shortcut
            yield (
                self._untold_shortcut(result)
                if shortcut is None
                else self._shortcut(result, shortcut)
            )

    def _evidence(
        self,
        question: str,
        about: str | None,
        answer: Estimate | float,
        of: Carried,
        **more: Any,
    ) -> Evidence:
        """A difference of scores with its interval, or yes or no. `of`: the runs behind it."""
        fields: dict[str, Any] = {"unit": DIFFERENCE, "n": of.runs, "clusters": of.clusters}
        if not isinstance(answer, Estimate):
            answer, fields["unit"] = float(answer), YES_OR_NO
        return self.make.evidence(question, answer, about=about, **fields | more)

    def _without(self, result: KindResult, table: Table) -> Evidence:
        gains, about = result.gains, named(result.kinds)
        return self._evidence(
            WITHOUT,
            about,
            gains.gain_without,
            gains.carried,
            artifacts=(table,),
            diagnostics=_figures(result),
            summary=(
                f"With {printable(about)} refused to both, training changed the score by"
                f" {_points(gains.gain_without)} over {plural(gains.gain.clusters, 'task')}; with"
                f" nothing refused by {_points(gains.gain)}."
            ),
        )

    def _through(self, result: KindResult) -> Evidence:
        about, gains = printable(named(result.kinds)), result.gains
        text = f"The gain does not run through {about}."
        if result.runs_through:
            text = f"The gain runs through {about}"
            text += "." if result.shortcut else f"; is {about} allowed?"
        elif not gains.dispensable:
            text = (
                f"The before policy needs {about}, so it cannot be said that the gain runs"
                " through it."
            )
        return self._evidence(
            THROUGH,
            named(result.kinds),
            result.runs_through,
            gains.carried,
            diagnostics=_figures(result),
            summary=(
                f"{text} With it refused to both, {points(gains.gain_without.estimate)} points of"
                f" {points(gains.gain.estimate)} are left, and the before policy scores"
                f" {percent(gains.before_without.estimate)} instead of"
                f" {percent(gains.before.estimate)}."
            ),
        )

    def _shortcut(self, result: KindResult, shortcut: bool) -> Evidence:
        about, inside = printable(named(result.kinds)), result.contents
        estimate, low, high = inside.share.ends if inside.share else (None,) * 3
        share = "most" if estimate is None else percent(estimate)
        example, step = inside.example or (None, None)
        return self._evidence(
            SHORTCUT,
            named(result.kinds),
            shortcut,
            result.gains.carried,
            diagnostics={
                "contains_answer": inside.holds,
                "control": inside.control,
                "share_of_wins": estimate,
                "share_low": low,
                "share_high": high,
                "example_trajectory": example,
                "example_step": step,
                "q_value": result.q_value,
            },
            summary=(
                f"The gain runs through {about}, and what it returned held the answer in"
                f" {share} of the wins that used it: a shortcut, unless it is part of the job"
                f" (control: what it returned on other tasks held"
                f" {percent(inside.control or 0.0)} of them)."
                if shortcut
                else f"{about} is not found to be a shortcut."
            ),
        )

    def _untold_shortcut(self, result: KindResult) -> Undefined:
        about = printable(named(result.kinds))
        return self._undefined(
            SHORTCUT,
            named(result.kinds),
            f"The gain runs through {about}; whether what it returned held the answer cannot be"
            f" told ({result.contents.reason}).",
            "Record the submission of each run, or give the environment a method `withheld`.",
        )

    def carried(self, kinds: Kinds, amount: Carried) -> Evidence:
        """What one kind, or several together, carry of the gain."""
        about = printable(named(kinds), LONGEST)
        span = point_range(amount.carried.low, amount.carried.high, 1)
        told = (
            f"With {about} refused to both, {points(amount.carried.estimate, 1)} points of the gain"
            f" are lost ({span})"
            if amount.played
            else (
                f"By the runs that try it, {about} carries at most {points(amount.carried.high, 1)}"
                " points of the gain"
            )
        )
        return self._evidence(
            CARRIED,
            named(kinds),
            amount.carried,
            amount,
            method=amount.method,
            diagnostics={"carries": amount.found, "detects": _detects(amount)},
            summary=(
                f"{told}; a fifth of the gain is {points(GENUINE_BAR * amount.whole.estimate, 1)}."
            ),
        )

    def jointly(
        self,
        key: str | None,
        amount: Carried,
        tried: Sequence[str],
        needed: Sequence[str],
        turned_to: Sequence[str] = (),
    ) -> Evidence:
        """The most that kinds of action carry which are neither needed nor
        allowed, against a fifth of the gain.

        `key`: the kinds that are allowed. `turned_to`: objects of needed kinds on
        which training made runs act.
        """
        turned = {"needed_objects": ", ".join(turned_to)} if turned_to else {}
        return self._evidence(
            REFUSED,
            key,
            amount.over_bar,
            amount,
            method=amount.method,
            diagnostics={
                "tried": ", ".join(tried),
                "needed": ", ".join(kind for kind in needed if kind in tried),
                **turned,
                "carried": amount.carried.estimate,
                "carried_low": amount.carried.low,
                "carried_high": amount.carried.high,
                "detects": _detects(amount),
                "seeds": amount.whole.seeds,
                "seed_deviation": amount.whole.seed_deviation,
            },
            summary=(
                "What kinds of action carry that are neither needed nor allowed, minus a fifth of"
                f" the gain, is {points(amount.over_bar.estimate, 1)} points"
                f" ({point_range(amount.over_bar.low, amount.over_bar.high, 1)})."
            ),
        )

    def not_judged(self, kinds: Kinds, why: str) -> Undefined:
        """A kind that cannot be refused, or whose refusal says nothing."""
        return self._undefined(CARRIED, named(kinds), why, ALLOW.format(allow=allow_flags(kinds)))

    def not_jointly(
        self, key: str | None, reasons: Sequence[str], kinds: Sequence[str]
    ) -> Undefined:
        """The test as a whole, where some of it could not be judged."""
        allow = allow_flags(kinds)
        cure = (
            f"Say whether these are part of the job: `{allow or '--allow KIND'}`, or the"
            " environment's `needed`."
        )
        return self._undefined(REFUSED, key, " ".join(reasons), cure)

    def regraded(self, gains: Gains, lost: int, wins: int) -> Iterator[Evidence | Undefined]:
        """What is lost when every hand-in is graded again, and that against a
        fifth of the gain, if there is one.
        """
        amount = gains.carried
        yield self._evidence(
            LOST,
            None,
            amount.carried,
            amount,
            method=AGAIN,
            diagnostics={
                **ends("gain", gains.gain),
                "wins": wins,
                "wins_lost": lost,
                "p_value": gains.p_value,
                "detects": _detects(amount),
            },
            summary=(
                f"Graded again in a fresh copy of the task, {lost:,} of {plural(wins, 'win')} after"
                " training are lost, and by those grades training changed the score by"
                f" {_points(gains.gain_without)}."
            ),
        )
        if gains.gain.low <= 0:
            yield self._undefined(
                REGRADED, None, "No gain survives scrubbing, so none could be lost.", "None needed."
            )
            return
        yield self._evidence(
            REGRADED,
            None,
            amount.over_bar,
            amount,
            method=AGAIN,
            diagnostics={"seeds": gains.gain.seeds, "seed_deviation": gains.gain.seed_deviation},
            summary=(
                "What is lost there, minus a fifth of the gain, is"
                f" {points(amount.over_bar.estimate, 1)} points"
                f" ({point_range(amount.over_bar.low, amount.over_bar.high, 1)})."
            ),
        )

    def bent(self, kind: str | None, gains: Gains, lost: int, wins: int) -> Evidence:
        """More than half of the gain does not stand in a fresh copy; `kind`
        tells the lost wins from other runs.
        """
        culprit = (
            "" if kind is None else f" and the wins that are lost there used {printable(kind)}"
        )
        return self._evidence(
            SHORTCUT,
            kind or FRESH_COPY,
            True,
            gains.carried,
            method=AGAIN,
            diagnostics={"wins": wins, "wins_lost": lost, "p_value": gains.p_value},
            summary=(
                f"Of the gain of {points(gains.gain.estimate)} points,"
                f" {points(gains.gain_without.estimate)} are left in a fresh copy of the"
                f" task{culprit}: a shortcut."
            ),
        )

    def not_regraded(self, reason: str, cure: str) -> Iterator[Undefined]:
        """Nothing was graded again."""
        yield from (self._undefined(question, None, reason, cure) for question in (LOST, REGRADED))

    def _undefined(self, question: str, about: str | None, reason: str, cure: str) -> Undefined:
        return self.make.undefined(question, MissingInput(reason, cure), about)


def _figures(result: KindResult) -> dict[str, Scalar]:
    gains = result.gains
    names = ("gain", "gain_without", "before", "before_without", "after_without")
    measured = [ends(name, getattr(gains, name)) for name in names]
    return {
        **{name: end for known in measured for name, end in known.items()},
        "p_value": gains.p_value,
        "q_value": result.q_value,
        "dispensable": gains.dispensable,
        "missing": result.missing,
        "contains_answer": result.contents.holds,
        "seeds": gains.gain.seeds,
        "level": gains.gain.level,
    }


def _detects(amount: Carried) -> float | None:
    """The share of the gain that would have been seen with power .9; a bound
    sees all that is above it.
    """
    if amount.whole.estimate <= 0:
        return None
    reach = amount.carried.high
    if amount.played:
        reach = POWER * (amount.carried.high - amount.carried.low) / 2
    return min(reach / amount.whole.estimate, 1.0)


def _points(estimate: Contrast) -> str:
    span = point_range(estimate.low, estimate.high, 1)
    return f"{points(estimate.estimate, 1)} points ({100 * estimate.level:g} % interval {span})"


def replacement(plain: Played, without: Played, refused: Kinds) -> Table:
    """Share of the runs after training that use each kind, with nothing and
    with the kind refused.
    """
    kinds = sorted({*plain.after_kinds, *without.after_kinds})
    rows = [(kind, plain.after_usage(kind), without.after_usage(kind)) for kind in kinds]
    rows.sort(key=lambda row: row[1] - row[2])
    return Table(
        title=(
            f"What took the place of {printable(named(refused))}: share of the runs after training"
            " with each kind"
        ),
        columns=("kind", "nothing refused", "refused", "change"),
        rows=tuple((printable(kind), old, new, new - old) for kind, old, new in rows),
    )
