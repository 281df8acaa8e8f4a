"""Entry points: in the order of their names, unknown ones and broken packages refused."""

from importlib.metadata import EntryPoint

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


def test_a_package_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(UserError, match=r"the family gone cannot be loaded .* reinstall its"):
        plugins.installed(GROUP)
