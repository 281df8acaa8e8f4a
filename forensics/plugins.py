"""What other packages add, by entry points: one group for each kind of thing.

A package names an object of its own in its `pyproject.toml`, under one of the
groups of this package (`forensics.instruments`, `forensics.readers`, ...), and
from then on it stands beside ours.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from forensics.errors import UserError


def plugin_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, sorted by name: the order of installation
    does not matter.
    """
    points = {point.name: point for point in entry_points(group=group)}
    return tuple(points[name] for name in sorted(points))


def load_point(group: str, point: EntryPoint) -> Any:
    """The object behind an entry point. Raises `UserError` where its package
    cannot be imported.
    """
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"the {_kind(group)} {point.name} cannot be loaded ({error}); reinstall its package"
        ) from error


def installed(group: str) -> tuple[Any, ...]:
    """Every object of a group, in the order of its names."""
    return tuple(load_point(group, point) for point in plugin_points(group))


def load_plugin(group: str, name: str) -> Any:
    """The object of this name; an unknown name is refused with the known ones."""
    for point in plugin_points(group):
        if point.name == name:
            return load_point(group, point)
    known = ", ".join(point.name for point in plugin_points(group)) or "none installed"
    raise UserError(f"unknown {_kind(group)} '{name}'; known: {known}")


def _kind(group: str) -> str:
    """`forensics.policies` -> `policy`, `forensics.losses` -> `loss`."""
    many = group.removeprefix("forensics.")
    if many.endswith("ies"):
        return f"{many[:-3]}y"
    return many.removesuffix("es" if many.endswith("sses") else "s")
