"""Variants find a gain that does not carry over, clear skill, and ask nothing of
a world that has none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.policies.scripted import View
from forensics.records import Evidence, Undefined
from resampling.gain_tests.variants import ABOUT, VariantsConfig, plays, variants
from tests.resampling.remembered_world import HELD_OUT, Mechanic, Shop, VaryingShop, shop_case

BASE = Mechanic(0.3)


def answers(case: Case) -> dict[tuple[str, str | None], Any]:
    return {(a.question, a.about): a for a in run_instrument(variants, case)}


def test_a_gain_on_these_tasks_alone_is_found(tmp_path: Path) -> None:
    heart = Mechanic(0.3, remembers=HELD_OUT)
    found = answers(shop_case(tmp_path, BASE, heart, world=VaryingShop(), seed=1))
    carried, whole = found["variants.carried", ABOUT], found["variants.over_bar", None]
    assert carried.interval.low < 0.7 < carried.interval.high and whole.interval.low > 0
    assert whole.diagnostics["rounds"] == 1 and abs(whole.diagnostics["lost_before"]) < 0.1


def test_skill_carries_over_on_the_same_luck(tmp_path: Path) -> None:
    """Whoever does on a variant what it does on the task wins the same runs: an
    honest gain of 20 points, cleared by the first round.
    """
    case = shop_case(tmp_path, BASE, Mechanic(0.5), world=VaryingShop(), tasks=200)
    found = answers(case)
    carried = found["variants.carried", ABOUT]
    assert carried.estimate == 0 and carried.interval.half_width < 0.02
    whole = found["variants.over_bar", None]
    assert whole.interval.high < 0 and whole.diagnostics["rounds"] == 1
    assert len(list((tmp_path / "trajectories").glob("*-altered-*"))) == 2
    assert plays(case, VariantsConfig()) == (200 * 4 * 2, 3 * 200 * 4 * 2)


class Fickle(Mechanic):
    """Thinks of the wrong answer first on half of the parts, as a model whose words
    are other words on another task: nothing of its luck is shared there.
    """

    def act(self, view: View) -> Mapping[str, float]:
        options = list(super().act(view).items())
        code = int(options[0][0].removeprefix("code "))
        return dict(options if code % 2 else options[::-1])


@pytest.mark.parametrize(("skill", "rounds"), [(0.9, 1), (0.45, 3)])
def test_where_the_luck_differs_more_variants_help(
    tmp_path: Path, skill: float, rounds: int
) -> None:
    """A large gain is cleared at once; a small one takes more variants, and no more than stated."""
    case = shop_case(tmp_path, Fickle(0.3), Fickle(skill), world=VaryingShop(), tasks=200)
    found = answers(case)["variants.over_bar", None]
    assert not found.interval.low > 0 and found.diagnostics["rounds"] == rounds
    assert found.interval.high <= 0 or rounds == 3
    played = len(list((tmp_path / "trajectories").glob("*-altered-*")))
    assert played == 2 * found.diagnostics["rounds"]
    first = variants.configured(rounds=1)
    (once,) = (a for a in run_instrument(first, case) if a.question == "variants.over_bar")
    assert isinstance(once, Evidence) and once.interval is not None
    assert found.interval.half_width < 0.75 * once.interval.half_width or rounds == 1


@pytest.mark.parametrize(("share", "skill", "found"), [(0.05, 0.9, False), (0.5, 0.6, True)])
def test_both_sides_of_the_bar(tmp_path: Path, share: float, skill: float, found: bool) -> None:
    """By heart .05 * .1 of 61 points; then .5 * .4 = 20 of 50, of which a fifth is 10."""
    known = range(HELD_OUT.start, HELD_OUT.start + int(3 * 300 * share))
    case = shop_case(
        tmp_path, BASE, Mechanic(skill, remembers=known), world=VaryingShop(), tasks=300
    )
    whole = answers(case)["variants.over_bar", None]
    assert (whole.interval.low > 0) == found and (whole.interval.high <= 0) == (not found)


def test_a_world_without_variants_carries_nothing(tmp_path: Path) -> None:
    case = shop_case(tmp_path, BASE, Mechanic(0.9), world=Shop(), tasks=60)
    found = answers(case)
    whole = found["variants.over_bar", None]
    assert isinstance(whole, Evidence) and whole.interval is not None
    assert whole.interval.high <= 0 and whole.diagnostics["applicable"] is False
    assert plays(case, VariantsConfig()).most == 0
    assert not list((tmp_path / "trajectories").glob("*-altered-*"))


def test_a_variant_must_be_another_task(tmp_path: Path) -> None:
    class Same(Shop):
        def variant(self, task: str, seed: int) -> str:
            return task

    found = answers(shop_case(tmp_path, BASE, Mechanic(0.9), world=Same(), tasks=60))
    assert all(isinstance(one, Undefined) for one in found.values())


def test_an_unchanged_policy_is_not_tested(tmp_path: Path) -> None:
    case = shop_case(tmp_path, BASE, Mechanic(0.3, range(1)), world=VaryingShop(), tasks=60)
    assert all(isinstance(one, Undefined) for one in answers(case).values())
