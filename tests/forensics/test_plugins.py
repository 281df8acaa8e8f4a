"""Entry points: in the order of their names, unknown ones and broken packages refused."""

from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

import pytest

from forensics import plugins
from forensics.errors import UserError

GROUP = "forensics.families"


@pytest.fixture(autouse=True)
def _points(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [("second", "math:tau"), ("first", "math:pi"), ("gone", "no.such.package:thing")]
    points = [EntryPoint(name=name, value=value, group=GROUP) for name, value in made]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == GROUP else [])


def test_points_come_in_the_order_of_their_names() -> None:
    assert [point.name for point in plugins.plugin_points(GROUP)] == ["first", "gone", "second"]


def test_an_object_is_loaded_by_its_name() -> None:
    assert plugins.load_plugin(GROUP, "first") == pytest.approx(3.14159, abs=1e-5)


@pytest.mark.parametrize(
    "group,says",
    [
        (GROUP, "unknown family 'third'; known: first, gone, second"),
        ("forensics.policies", "unknown policy 'third'; known: none installed"),
        ("forensics.rewards", "unknown reward 'third'; known: none installed"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(group: str, says: str) -> None:
    with pytest.raises(UserError) as told:
        plugins.load_plugin(group, "third")
    assert says in str(told.value)


def test_two_packages_under_one_name_are_refused_by_their_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    points = []
    for package, value in [("zeal", "math:tau"), ("acme", "math:pi"), ("acme-again", "math:pi")]:
        info = tmp_path / f"{package}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\nmine = {value}\n")
        points += Distribution.at(info).entry_points
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    with pytest.raises(UserError, match="acme and zeal both bring a family named 'mine'; uninst"):
        plugins.plugin_points(GROUP)
    points = points[1:]  # one thing under two packages is one thing
    assert [point.value for point in plugins.plugin_points(GROUP)] == ["math:pi"]


def test_a_package_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(UserError, match=r"the family gone cannot be loaded .* reinstall its"):
        plugins.installed(GROUP)


@pytest.mark.parametrize("kind,group", [("loss", "losses"), ("activation", "activations")])
def test_a_failure_is_that_of_the_plugin_in_whose_code_it_arose(
    kind: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"__name__": "theirs.code"}
    exec("class Own:\n    def __call__(self): return [][0]\ndef other(): pass", names)
    points = [
        EntryPoint(name=name, value=f"theirs.code:{attribute}", group=f"forensics.{group}")
        for name, attribute in (("one", "other"), ("two", "Own"))
    ]
    monkeypatch.setattr(
        plugins, "points_beside", lambda module: points if module == "theirs.code" else []
    )
    with pytest.raises(IndexError) as failed:
        names["Own"]()()
    assert plugins.failed_plugin(failed.value) == f"the {kind} two of theirs.code"
    with pytest.raises(IndexError) as ours:
        raise IndexError
    assert plugins.failed_plugin(ours.value) is None
