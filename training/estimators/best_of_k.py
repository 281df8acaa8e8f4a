"""Pass@k (2508.10751): what an attempt adds to the best of k, in closed form.

A set of k of a group's n attempts is worth 1 if any of them succeeds. Its advantage is
its worth minus the mean over all sets, divided by their standard deviation; that of an
attempt is the mean over all sets that hold it. With k = 1 it is the estimator `group`.
Failures of a group with few successes are hardly punished, so the policy keeps trying
other ways.
"""

from collections.abc import Sequence
from math import comb, sqrt
from statistics import pstdev
from typing import Self

from pydantic import Field, model_validator

from forensics.errors import UserError
from training.groups import Estimator, Group, GroupAdvantages
from training.recipe import GrpoSection


class PassAtK(GrpoSection):
    """`pass_k`: of how many attempts the best counts."""

    pass_k: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _fewer_than_samples(self) -> Self:
        if self.pass_k >= self.samples:
            raise ValueError(
                f"pass_k {self.pass_k} must be below samples {self.samples}, or all sets of a group"
                " are worth the same"
            )
        return self


def analytic(groups: Sequence[Group], config: PassAtK) -> list[GroupAdvantages]:
    """Advantages of all groups. Raises `UserError` for a total that is not 0 or 1."""
    return [_of_group(group, config.pass_k) for group in groups]


def _of_group(group: Group, k: int) -> GroupAdvantages:
    known = [total for total in group.totals if total is not None]
    if wrong := [total for total in known if total not in (0, 1)]:
        raise UserError(
            'advantages = "pass-at-k" needs rewards that are 0 or 1 in total, and task'
            f" {group.task} gave {wrong[0]:g}; name one such reward with weight 1, or choose"
            " another estimator"
        )
    number, lost = len(known), known.count(0)
    mean = 1 - comb(lost, k) / comb(number, k) if k < number else float(lost < number)
    if mean in (0, 1):
        dead = f"all sets of {k} of its {number} attempts are worth the same"
        won = failed = 0.0
    else:
        dead, deviation = None, sqrt(mean * (1 - mean))
        won = (1 - mean) / deviation
        failed = (1 - mean - comb(lost - 1, k - 1) / comb(number - 1, k - 1)) / deviation
    return GroupAdvantages(
        values=tuple(t if t is None else won if t else failed for t in group.totals),
        dead=dead,
        spread=pstdev(known) if number > 1 else None,
    )


pass_at_k = Estimator(estimate=analytic, config=PassAtK, idle=("scaling", "dead_tolerance"))
