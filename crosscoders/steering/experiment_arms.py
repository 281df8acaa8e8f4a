"""What an experiment runs: for each position and each set of features a curve over the
strengths, and beside it what moves every row exactly as far.

- features: the set itself, latents of a dictionary or components of the difference
- principal-component, mean-direction: one direction in its place (`along`), the latter
  that of the mean of the models' difference
- random-direction: the set turned at random, as often as `controls` says, at the strength
  of the prediction (`random_everywhere`: at all); random-feature: there, `feature_controls`
  sets of other latents that are as often active
- projected-out: the first k principal components of the difference taken out whole
- refusal: the action itself refused and drawn again, nothing changed inside
- unsteered: both policies
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.steering.activation_edits import SIDES, Change, along, feature_change, projection
from crosscoders.steering.evaluation import Bench, Condition
from crosscoders.steering.experiment_file import ExperimentTable
from crosscoders.steering.readings import (
    FedDictionary,
    Readings,
    equally_active,
    mean_difference,
    median_values,
)
from forensics.protocols import Channel, Constraint
from forensics.records import content_hash

DRAWN: Final = ("random-direction", "random-feature")  # controls with several draws


@dataclass(frozen=True, kw_only=True)
class Run:
    """A condition on the bench of its position. `set` and `at`: which curve it is on or
    stands beside (`None`: every one). `told`: whether it belongs to the curve, or the point
    on it, that the prediction is of.
    """

    condition: Condition
    bench: Bench
    set: str | None = None
    at: str | None = None
    told: bool = True


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A set of features at the position of `bench`: latents (`features`, of the dictionary with
    this `key` that `reader` feeds), or the first `number` of the `components` of the models'
    difference there `[components, width]`.
    """

    name: str
    bench: Bench
    readings: Readings
    table: ExperimentTable
    components: Tensor
    number: int = 0
    reader: FedDictionary | None = None
    key: str | None = None
    features: tuple[int, ...] = ()

    @property
    def at(self) -> str:
        return self.bench.position.name

    def steered(self, strength: float) -> Condition:
        """The set changed at a strength."""
        if self.reader is None:
            return self.projected(self.number, strength, "features")
        return self._latents(self.reader, self.features, strength, "features")

    def _latents(
        self, reader: FedDictionary, features: tuple[int, ...], strength: float, role: str
    ) -> Condition:
        mode, acting, encoding = self.table.mode, self.table.acting, self.table.encode_from
        values = None if mode != "add" else median_values(reader, features, self.readings.here)
        change = feature_change(
            reader.dictionary,
            features,
            mode=mode,
            acting=acting,
            strength=strength,
            encoding=encoding,
            values=values,
        )
        stated: dict[str, Any] = {"mode": mode, "strength": strength, "dictionary": self.key}
        return Condition(role=role, acting=acting, change=change, features=features, **stated)

    def random_features(self, strength: float, missing: dict[str, str]) -> list[Condition]:
        """Other latents of equal activity; fewer sets than asked for where there are too few that
        are ever active, of which `missing` hears.
        """
        number = self.table.feature_controls
        if self.reader is None or not number:
            return []
        rng = np.random.default_rng([self.table.seed, number])
        sets = equally_active(self.reader, self.features, self.readings.here, number, rng)
        if len(sets) < number:
            missing["random-feature"] = (
                f"only {len(sets)} other sets of latents are active where this one is"
            )
        found = (self._latents(self.reader, one, strength, "random-feature") for one in sets)
        return [replace(one, draw=n, of=self.name) for n, one in enumerate(found)]

    def projected(self, number: int, strength: float, role: str) -> Condition:
        """The first components of the difference projected out."""
        mode, acting = self.table.mode, self.table.acting
        change = projection(
            self.components[:number],
            self.readings.here,
            mode=mode,
            acting=acting,
            strength=strength,
        )
        stated: dict[str, Any] = {"mode": mode, "strength": strength, "directions": number}
        return Condition(role=role, acting=acting, change=change, **stated)

    def instead(self, strength: float, role: str, direction: Tensor) -> Condition:
        """One direction in the place of the set, every row moved as far."""
        change = along(self._change(strength), direction)
        return replace(self.steered(strength), role=role, change=change, directions=1, of=self.name)

    def random(self, strength: float) -> list[Condition]:
        """The set turned at random, in the same ways at every strength and position."""
        turned, plain, change = [], self.steered(strength), self._change(strength)
        for draw in range(self.table.controls):
            seed = int(content_hash([self.table.seed, self.name, draw], 15), 16)
            drawn = change.turned(torch.Generator().manual_seed(seed))
            stated: dict[str, Any] = {"role": "random-direction", "draw": draw, "of": self.name}
            turned.append(replace(plain, change=drawn, **stated))
        return turned

    def _change(self, strength: float) -> Change:
        change = self.steered(strength).change
        assert change is not None, "a set changes something"
        return change


def planned(
    arms: Sequence[Arm], table: ExperimentTable, measure: str, missing: dict[str, str]
) -> list[Run]:
    """All that is run, in its order: what the prediction is of comes first. `missing` hears
    what cannot be run, and why.
    """
    name, strength, at = table.told_of
    first = arms[0].bench
    runs = [Run(condition=Condition(role="unsteered", acting=side), bench=first) for side in SIDES]
    if constraint := refusal_of(table.refuse, measure, first.environment.channels):
        refused = Condition(role="refusal", acting=table.acting, constraint=constraint)
        runs.append(Run(condition=refused, bench=first))
    else:
        missing["refusal"] = "no kind of action is what is measured; name kinds with refuse"
    for arm in sorted(arms, key=lambda arm: (arm.name, arm.at) != (name, at)):
        for dose in sorted(table.tried, key=lambda dose: dose != strength):
            told = (arm.name, arm.at, dose) == (name, at, strength)
            runs += [
                Run(condition=one, bench=arm.bench, set=arm.name, at=arm.at, told=told)
                for one in _dose(arm, dose, table, missing)
            ]
    return runs + _projected(arms, table, missing)


def _dose(
    arm: Arm, dose: float, table: ExperimentTable, missing: dict[str, str]
) -> list[Condition]:
    mean, conditions = mean_difference(arm.readings.here), [arm.steered(dose)]
    if len(arm.components):
        conditions.append(arm.instead(dose, "principal-component", arm.components[0]))
        conditions.append(arm.instead(dose, "mean-direction", mean))
    else:
        missing["principal-component, mean-direction"] = f"the models do not differ at {arm.at}"
    whole = dose == table.told_of[1] or table.random_everywhere
    conditions += arm.random(dose) if whole else []
    return conditions + (arm.random_features(dose, missing) if dose == table.told_of[1] else [])


def _projected(arms: Sequence[Arm], table: ExperimentTable, missing: dict[str, str]) -> list[Run]:
    """Components taken out whole, once at each position."""
    whole, runs = 0.0 if table.mode == "scale" else 1.0, []
    for at, arm in {arm.at: arm for arm in reversed(arms)}.items():
        for number in table.projected:
            if f"pca:{number}" in table.features and whole in table.tried:
                continue  # tested itself
            if number > len(arm.components):
                missing[f"projected-out {number}"] = (
                    f"the models' difference has {len(arm.components)} components at {at}"
                )
                continue
            condition = arm.projected(number, whole, "projected-out")
            told = at == table.told_of[2]
            runs.append(Run(condition=condition, bench=arm.bench, at=at, told=told))
    return runs


def refusal_of(
    kinds: Sequence[str] | None, measure: str, channels: Sequence[Channel]
) -> Constraint | None:
    """The constraint that refuses these kinds (`None`: those that the measure counts)."""
    if kinds is None:
        what, _, name = measure.partition(":")
        attempts = {channel.name: channel.attempts for channel in channels}
        kinds = {"kind": (name,), "channel": attempts.get(name, ())}.get(what, ())
    if not kinds:
        return None
    refused = frozenset(kinds)
    return Constraint(
        name=f"refuse:{'+'.join(sorted(refused))}",
        allows=lambda text, named: refused.isdisjoint(named),
    )
