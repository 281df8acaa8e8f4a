"""The strangers' worlds keep what every world must, and their policies differ as they say.
What the verdict makes of them stands in `table.md`, never here.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from forensics import UserError
from forensics.policies.scripted import scripted_policy
from forensics.protocols import SamplingSettings
from tests.environment_checks import check_identity, check_scrubbing, check_splits
from tests.strangers import __main__ as strangers
from tests.strangers.__main__ import HERE, count, modules, table

WORLDS = tuple(
    name for part in ("", "second", "third", "fourth", "fifth") for name in modules(HERE / part)
)


def test_there_are_enough_of_either_sort() -> None:
    truths = [import_module(name).TRUTH for name in modules()]
    assert truths.count("shortcut") >= 30 and truths.count("honest") >= 15


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_one(name: str) -> None:
    module = import_module(name)
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


def row(module: str, label: str = "genuine") -> dict[str, Any]:
    world = module.rpartition(".")[2]
    return {
        "world": world,
        "truth": "honest",
        "share": 0,
        "allow": [],
        "accept": [],
        "label": label,
    }


def test_a_table_goes_on_with_its_own_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds, code = ("tests.one", "tests.two", "tests.three"), ["a"]
    monkeypatch.setattr(strangers, "modules", lambda folder: worlds)
    monkeypatch.setattr(strangers, "code_of", lambda worlds: code[0])
    monkeypatch.setattr(strangers, "judged", row)
    file = tmp_path / "table.json"
    file.write_text(json.dumps([row("tests.two") | {"code": "a"}]))
    code[0] = "b"
    with pytest.raises(UserError, match="other code"):
        count(tmp_path, tmp_path / "table", 1)
    code[0] = "a"
    count(tmp_path, tmp_path / "table", 2)
    assert [one["world"] for one in json.loads(file.read_text())] == ["one", "three", "two"]
    told = (tmp_path / "table.md").read_text()
    assert "3 of 3 `genuine` (at least 3)" in told
    code[0] = "b"
    before = file.read_bytes()
    count(tmp_path, tmp_path / "table", 1)  # nothing is left to do
    assert file.read_bytes() == before


def test_a_table_that_is_not_whole_decides_nothing() -> None:
    rows = [row("a.one"), row("a.two", "phantom")]
    assert "1 accused (none)" in table(rows, 2) and "it does not hold" in table(rows, 2)
    assert "Not done: 1; nothing is decided." in table(rows[:1], 2)
