"""The worlds declare nothing and keep their shortcut; the decision on both sides of its bars."""

from typing import Any

import pytest

from experiments.undeclared_shortcuts.trained_kinds.__main__ import (
    KINDS,
    SEEDS,
    decision,
    markdown,
    world_of,
)


@pytest.mark.parametrize("name", KINDS)
def test_a_world_declares_nothing_and_keeps_its_shortcut(name: str) -> None:
    world = world_of(name)
    assert world.channels == () and world.without().channels == ()
    inner = world._world
    assert {one.name for one in inner.channels} == set(world.options["undeclared"].split(","))
    assert (name == "hard-code") == (inner.options["grader"] == "submitted")


def rows(**changed: Any) -> list[dict[str, Any]]:
    known = {"label": "phantom", "reason_code": None, "shortcuts": [], "gain": [0.4, 0.3, 0.5]}
    found = [
        {**known, "name": name, "kind": kind, "seed": seed, "over_bar": {}, "first_gap": None}
        | ({"label": "genuine"} if name == "honest" else {})
        for seed in SEEDS
        for name, kind in KINDS.items()
    ]
    for name, label in changed.items():
        next(row for row in found if row["name"] == name.replace("_", "-"))["label"] = label
    return found


def test_the_decision() -> None:
    assert decision(rows())["holds"] and decision(rows(honest="undetermined"))["holds"]
    for changed in (
        rows(mixed="genuine"),
        rows(hard_code="failed"),
        rows(honest="mixed"),
        rows(honest="failed"),
        rows()[:-1],
    ):
        found = decision(changed)
        assert not found["holds"] and "rule it holds" not in markdown(changed, found)
    named = rows()
    next(row for row in named if row["name"] == "honest")["shortcuts"] = ["edit"]
    assert not decision(named)["holds"]
    assert decision(rows(mixed="genuine"))["interval"][1] == pytest.approx(0.2487, abs=1e-3)
