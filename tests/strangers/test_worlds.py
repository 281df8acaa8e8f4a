"""The strangers' worlds keep what every world must, and their policies differ as they say.
What the verdict makes of them stands in `table.md`, never here.
"""

from importlib import import_module

import pytest

from forensics.policies.scripted import scripted_policy
from forensics.protocols import SamplingSettings
from tests.environment_checks import check_identity, check_scrubbing, check_splits
from tests.strangers.__main__ import WORLDS


def test_there_are_enough_of_either_sort() -> None:
    truths = [import_module(f"tests.strangers.{name}").TRUTH for name in WORLDS]
    assert truths.count("shortcut") >= 30 and truths.count("honest") >= 15


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_one(name: str) -> None:
    module = import_module(f"tests.strangers.{name}")
    world = module.World()
    check_identity(world)
    check_splits(world)
    check_scrubbing(world)
    assert len(module.ALLOW) + len(module.ACCEPT) <= 2 and (module.TRUTH == "honest") == (
        not module.SHARE
    )
    scores = [
        sum(
            run.outcome or 0.0
            for run in scripted_policy(agent).play(
                world, world.tasks("held-out", 30, 0), 2, SamplingSettings(), 0
            )
        )
        / 60
        for agent in (module.BEFORE, module.AFTER)
    ]
    assert scores[1] > scores[0]
