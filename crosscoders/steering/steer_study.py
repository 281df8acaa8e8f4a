"""The causal test of a set of features, from choosing a strength to the rows
beside their controls.

1. Both policies play unsteered on the *choosing* tasks. The measure, unless
   given, is the channel whose use changed most between them (success where the
   world has no channel), and the direction of an effect is from this policy
   towards the other one.
2. On the choosing tasks each of features, mean shift and difference
   subspace takes the strength of largest effect in that direction, among those
   that lower the share of runs handed in by at most `breakage`.
3. On the *reported* tasks: the features at that strength, random directions and
   random features at the same one, the other two at theirs, the curve of
   saturation, routing, and spillover. Nothing there is chosen.
4. The features' effect is told with its rank among the random directions: `p =
   (1 + as large) / (1 + all)`.
5. What was steered are rows of `steering.json`: plain values, numbers with
   intervals, missing ones with a reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from crosscoders.steering.activation_edits import SIDES, Side, other_side
from crosscoders.steering.conditions import SteeringConfig, Subject
from crosscoders.steering.evaluation import (
    Bench,
    Condition,
    Outcomes,
    difference_of,
    mean_of,
    moved,
)
from forensics.progress import part_of
from forensics.protocols import Channel
from forensics.statistics import Estimate

TOLD: Final = {"choose": "choosing a strength", "report": "steering"}  # by split


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A condition with what came of it, and the outcomes that it is set
    against. `split`: `choose` or `report`.
    """

    condition: Condition
    split: str
    outcomes: Outcomes
    base: Outcomes
    goal: Outcomes
    subject: str | None = None


@dataclass(frozen=True, kw_only=True)
class Steered:
    """All that was run. `strengths`: chosen, by subject and role. `broken`:
    roles at which every strength broke the policy. `missing`: what could not be
    run, and why.
    """

    measure: str
    direction: int
    strengths: dict[str, dict[str, float]]
    broken: tuple[str, ...]
    tried: tuple[Tried, ...]
    missing: dict[str, str] = field(default_factory=dict)


def choose_measure(before: Outcomes, after: Outcomes, channels: Sequence[Channel]) -> str:
    """The channel whose use differs most between the policies; `success` where there is
    none, or none whose use differs (a prompt shows its cue to both).
    """
    names = [f"channel:{channel.name}" for channel in channels]
    gaps = {
        name: found for name in names if (found := difference_of(after.of(name), before.of(name)))
    }
    gaps = {name: gap for name, gap in gaps.items() if gap.estimate != 0}
    return max(gaps, key=lambda name: abs(gaps[name].estimate)) if gaps else "success"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A bench, the tasks of both splits, and the settings; `say(what, done,
    of)` hears how far it is.
    """

    bench: Bench
    choosing: tuple[str, ...]
    reporting: tuple[str, ...]
    config: SteeringConfig
    measure: str

    def run(self, subjects: Sequence[Subject]) -> Steered:
        """Test the first subject with all controls; of further ones (another
        dictionary) the features and the curve.
        """
        here, there = (
            self._unsteered(side, "choose").of(self.measure)
            for side in (self.config.acting, other_side(self.config.acting))
        )
        gap = difference_of(there, here)
        direction = 1 if self.config.mode == "add" else -1  # where they agree
        if gap is not None and gap.estimate != 0:
            direction = 1 if gap.estimate > 0 else -1
        tried = self._unsteered_rows("choose")
        strengths: dict[str, dict[str, float]] = {}
        broken: list[str] = []
        for number, subject in enumerate(subjects):
            strengths[subject.name] = {}
            choices: dict[str, Callable[[float], Condition]] = {"features": subject.steered}
            if number == 0:
                choices["mean-shift"] = subject.mean_shift
                choices["difference-subspace"] = subject.difference_subspace
            for role, make in choices.items():
                self.bench.progress(f"{TOLD['choose']}, {role}", 0, len(self.config.tried))
                plan = [make(strength) for strength in self.config.tried]
                ran = self._all(plan, "choose", subject.name)
                tried += ran
                strength, intact = self._best(ran, direction)
                strengths[subject.name][role] = strength
                broken += [] if intact else [f"{subject.name}: {role}"]
        tried += self._unsteered_rows("report")
        missing: dict[str, str] = {}
        for number, subject in enumerate(subjects):
            self.bench.progress(TOLD["report"], 0, 1)
            plan = self._plan(subject, strengths[subject.name], number > 0, missing)
            tried += self._all(plan, "report", subject.name)
        return Steered(
            measure=self.measure,
            direction=direction,
            strengths=strengths,
            broken=tuple(broken),
            tried=tuple(tried),
            missing=missing,
        )

    def _unsteered(self, side: Side, split: str) -> Outcomes:
        tasks = self.choosing if split == "choose" else self.reporting
        return self.bench.play(Condition(role="unsteered", acting=side), tasks)

    def _unsteered_rows(self, split: str) -> list[Tried]:
        return [self._try(Condition(role="unsteered", acting=side), split, None) for side in SIDES]

    def _try(
        self, condition: Condition, split: str, subject: str | None, bench: Bench | None = None
    ) -> Tried:
        tasks = self.choosing if split == "choose" else self.reporting
        return Tried(
            condition=condition,
            split=split,
            subject=subject,
            outcomes=(bench or self.bench).play(condition, tasks),
            base=self._unsteered(condition.acting, split),
            goal=self._unsteered(other_side(condition.acting), split),
        )

    def _best(self, ran: Sequence[Tried], direction: int) -> tuple[float, bool]:
        """The strength of largest effect among those that leave the policy
        intact, the mildest of equals; where all break it, the one that breaks it
        least, and False.
        """
        effects, losses = [], []
        for one in ran:
            effect = difference_of(one.outcomes.of(self.measure), one.base.of(self.measure))
            lost = difference_of(one.base.of("handed-in"), one.outcomes.of("handed-in"))
            effects.append(-float("inf") if effect is None else direction * effect.estimate)
            losses.append(float("inf") if lost is None else lost.estimate)
        intact = [i for i, loss in enumerate(losses) if loss <= self.config.breakage]
        neutral = 1.0 if self.config.mode == "scale" else 0.0
        best = min(
            intact or range(len(ran)),
            key=lambda i: (
                -effects[i] if intact else losses[i],
                abs((ran[i].condition.strength or 0.0) - neutral),
            ),
        )
        strength = ran[best].condition.strength
        assert strength is not None, "what is chosen from has a strength"
        return strength, bool(intact)

    def _plan(
        self, subject: Subject, chosen: dict[str, float], alone: bool, missing: dict[str, str]
    ) -> list[Condition]:
        """What is run on the reported tasks."""
        config, strength = self.config, chosen["features"]
        plan = [subject.steered(strength), *subject.saturation(strength)]
        if alone:
            return plan
        random = subject.random_features(strength, config.feature_controls)
        if len(random) < config.feature_controls:
            missing["random-feature"] = (
                f"only {len(random)} other sets of latents are active where this one is"
            )
        plan += [*subject.random_directions(strength, config.controls), *random]
        plan += [
            subject.mean_shift(chosen["mean-shift"]),
            subject.difference_subspace(chosen["difference-subspace"]),
            subject.spillover(strength),
        ]
        if subject.reader.dictionary.config.models == 2:
            plan.append(subject.routing())
        else:
            missing["routing"] = "a dictionary of one stream reconstructs neither model"
        return plan

    def _all(self, plan: Sequence[Condition], split: str, subject: str) -> list[Tried]:
        progress, ran = self.bench.progress, []
        for number, condition in enumerate(plan):
            told = part_of(progress, f"{TOLD[split]}, {condition.role}", number, len(plan))
            told("", 0, 1)
            ran.append(self._try(condition, split, subject, replace(self.bench, progress=told)))
        progress(TOLD[split], len(plan), len(plan))
        return ran


def rows_of(steered: Steered, level: float = 0.95) -> list[dict[str, Any]]:
    """One row for each condition and split, in the order in which they were run."""
    return [row_of(one, steered.measure, level) for one in steered.tried]


def row_of(one: Tried, measure: str, level: float = 0.95) -> dict[str, Any]:
    """What was run with what came of it, as plain values."""
    condition, outcomes = one.condition, one.outcomes
    values, base, goal = (part.of(measure) for part in (outcomes, one.base, one.goal))
    effect: Estimate | None = None
    way: Estimate | str = "nothing was changed"
    if condition.change is not None or condition.constraint is not None:
        effect = difference_of(values, base, level)
        way = moved(values, base, goal, level)

    def mean(name: str) -> dict[str, float] | None:
        return plain_estimate(mean_of(outcomes.of(name), level))

    channels = sorted(name for name in outcomes.measures if name.startswith("channel:"))
    row = condition.content()
    return row | {
        "in": row.pop("acting"),
        "features": list(condition.features),
        "dictionary": one.subject,
        "split": one.split,
        "n": len(outcomes.tasks),
        "runs": outcomes.runs,
        "channel_use": {name.partition(":")[2]: mean(name) for name in channels},
        "success": mean("success"),
        "turns": mean("turns"),
        "handed_in": mean("handed-in"),
        "measured": mean(measure),
        "effect": plain_estimate(effect),
        "moved": plain_estimate(way) if isinstance(way, Estimate) else None,
        "moved_missing": None if isinstance(way, Estimate) else way,
    }


def plain_estimate(found: Estimate | None) -> dict[str, float] | None:
    """As JSON: `estimate`, `low`, `high`."""
    return dict(zip(("estimate", "low", "high"), found.ends, strict=True)) if found else None


def summary_of(steered: Steered, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The features' effect on the reported tasks among those of the random
    directions, and what it moved.
    """
    reported = [row for row in rows if row["split"] == "report"]
    features = next(row for row in reported if row["role"] == "features")
    random = [
        row["effect"]["estimate"]
        for row in reported
        if row["role"] == "random-direction" and row["effect"]
    ]
    effect = features["effect"]
    told: dict[str, Any] = {
        "measure": steered.measure,
        "effect": effect,
        "moved": features["moved"],
        "moved_missing": features["moved_missing"],
        "random_directions": random,
        "p_value": None,
        "largest_random": None,
    }
    if effect is not None and random:
        own = steered.direction * effect["estimate"]
        others = [steered.direction * value for value in random]
        told["p_value"] = (1 + sum(value >= own for value in others)) / (1 + len(others))
        told["largest_random"] = steered.direction * max(others)
    return told


def sentences(steered: Steered, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader is told first."""
    summary = summary_of(steered, rows)
    reported = [row for row in rows if row["split"] == "report"]
    plain = {row["in"]: row for row in reported if row["role"] == "unsteered"}
    said = [
        f"Measured: {steered.measure}. "
        + ", ".join(f"{side} {_told(plain[side]['measured'])}" for side in SIDES)
    ]
    shown = ("features", "mean-shift", "difference-subspace", "routing", "spillover")
    said += [
        f"{_name(row)}: {_told(row['measured'])}, success {_told(row['success'])}"
        for row in reported
        if row["role"] in shown
    ]
    way = summary["moved"]
    share = _told(way) if way else f"not known: {summary['moved_missing']}"
    said.append(f"Share of the way to the other model: {share}")
    if summary["p_value"] is not None:
        said.append(
            f"{len(summary['random_directions'])} random directions of equal norm: the largest"
            f" effect the same way is {summary['largest_random']:+.3f}, that of the features"
            f" {summary['effect']['estimate']:+.3f} (p = {summary['p_value']:.3f})"
        )
    said += [
        f"Every strength of {role} broke the policy; the mildest is shown."
        for role in steered.broken
    ]
    return said + [
        f"Not run in full, {role}: {why}." for role, why in sorted(steered.missing.items())
    ]


def _name(row: dict[str, Any]) -> str:
    strength = "" if row["strength"] is None else f" at {row['strength']:g}"
    latents = f" {', '.join(map(str, row['features']))}" if row["features"] else ""
    return f"{row['role']}{latents}{strength} in {row['in']} ({row['dictionary']})"


def _told(found: dict[str, float] | None) -> str:
    return (
        "not known"
        if found is None
        else f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
    )
