"""An altered world is the inner one but for what its family changes, and its
runs are coupled with the plain ones.
"""

from pathlib import Path
from typing import Any

import pytest

from forensics.case import Case
from forensics.protocols import Channel, Environment
from forensics.runs import Condition
from resampling.ablation.refused_runs import refusal
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.gain_study import study_of
from tests.environment_checks import check_environment
from tests.resampling.ablation_world import GradingWorld, Script, ablation_case
from training import MiniRepo


class Shouting(AlteredWorld):
    """Says everything in capitals from the second step on."""

    def begin(self, task: str, seed: int) -> None:
        self.said = 0

    def shown(self, text: str) -> str:
        self.said += 1
        return text if self.said < 2 else text.upper()


SAME = alteration("as it is", AlteredWorld)
LOUD = alteration("loud", Shouting)


@pytest.mark.parametrize("altered", [SAME, LOUD], ids=lambda one: one.name)
def test_it_is_an_environment(altered: object) -> None:
    world: Environment = altered.of(MiniRepo())  # type: ignore[attr-defined]
    check_environment(world, ["list", "open 1 ; history", "nonsense", "submit"])
    assert world.options["altered"] == altered.name  # type: ignore[attr-defined]
    assert world.needed == MiniRepo.needed  # type: ignore[attr-defined]


def texts(
    case: Case, side: str, tasks: tuple[str, ...] | None = None, **how: Any
) -> list[tuple[object, ...]]:
    found = case.rollouts(side, Condition(**how), tasks=tasks)
    return [(run.task, run.sample, run.outcome, *(s.text for s in run.steps)) for run in found]


def test_the_same_world_gives_the_same_runs(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, Script(), Script(), tasks=300)
    some = case.tasks[3::7]
    plain = texts(case, "after-0")
    assert texts(case, "after-0", altered=SAME) == plain
    assert texts(case, "after-0", altered=SAME, tasks=some) == [
        one for one in plain if one[0] in some
    ]
    assert texts(case, "after-0", refused=refusal(("no such kind",), 3)) == plain
    assert texts(case, "after-0", altered=LOUD) != plain


def test_scrubbed_runs_are_the_open_ones_but_where_a_channel_showed_something(
    tmp_path: Path,
) -> None:
    notes = Channel(
        name="notes", family="disclosure", attempts=("cat notes",), description="the fix"
    )
    script = Script(looks={"cat notes": 0.3, "ls": 0.3})
    case = ablation_case(tmp_path, script, script, world=GradingWorld(channels=(notes,)), tasks=300)
    for side in ("before", "after-0"):
        pairs = list(zip(texts(case, side), texts(case, side, scrubbed=("notes",)), strict=True))
        differ = [plain for plain, scrubbed in pairs if plain != scrubbed]
        assert 0.2 < len(differ) / len(pairs) < 0.4
        assert all("cat notes" in plain for plain in differ)
    assert texts(case, "before") != texts(case, "after-0")  # two policies share no numbers


def test_an_alteration_that_changes_nothing_carries_nothing(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, Script(), Script(skill=0.9), tasks=300)
    study = study_of(case)
    found = study.compare(study.altered(SAME).pair)
    assert found.carried.estimate == 0 and found.cleared and not found.found
    assert found.over_bar.estimate == pytest.approx(-0.2 * study.gain.estimate)
    assert study.amount(study.altered(SAME).pair).carried.ends == study.gain.ends
