"""What other packages add, by entry points: one group for each kind of thing.

A package names an object of its own in its `pyproject.toml`, under one of the
groups of this package (`forensics.instruments`, `forensics.readers`, ...), and
from then on it stands beside ours.
"""

from functools import cache
from importlib.metadata import EntryPoint, distributions, entry_points
from traceback import walk_tb
from typing import Any

from forensics.errors import UserError, models_missing
from forensics.version import PACKAGE, code_version


def plugin_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, sorted by name: the order of installation
    does not matter. Raises `UserError` where two packages bring different things
    under one name.
    """
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        first = points.setdefault(point.name, point)
        if first.value != point.value:
            raise two_of_a_name(group, point.name, package_of(first), package_of(point))
    return tuple(points[name] for name in sorted(points))


def package_of(point: EntryPoint) -> str:
    """The package that brings an entry point, as it was installed."""
    return point.dist.name if point.dist else point.module


def two_of_a_name(group: str, name: str, *packages: str) -> UserError:
    """What is wrong where two packages bring a thing of one name."""
    first, second = sorted(packages)
    return UserError(
        f"{first} and {second} both bring a {_kind(group)} named '{name}'; uninstall one of"
        " them, or have the name of its entry point changed"
    )


def load_point(group: str, point: EntryPoint) -> Any:
    """The object behind an entry point. Raises `UserError` where its package
    cannot be imported, `ModelsMissing` where that is for want of torch and the like.
    """
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise models_missing(error) or UserError(
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


@cache
def points_beside(module: str) -> tuple[EntryPoint, ...]:
    """The entry points that lie in the same top-level package as a module, ours
    and those of strangers.
    """
    package = module.partition(".")[0]
    points = [point for found in distributions() for point in found.entry_points]
    return tuple(
        point
        for point in points
        if point.group.startswith("forensics.") and point.module.partition(".")[0] == package
    )


@cache  # it is asked for with each answer, and reading a package's metadata takes milliseconds
def code_of(module: str) -> str:
    """The distribution that a plug-in's module is in, and its version; where it is
    in none (a script), it says so.
    """
    if module.startswith("forensics."):
        return code_version()
    points = points_beside(module)
    return _code(points[0]) if points else f"{module}, which is in no installed package"


def failed_plugin(error: BaseException) -> str | None:
    """The stranger's plug-in in which an error arose: `the loss NAME of PACKAGE
    VERSION`; `None` where it arose in none.
    """
    frames = [
        (str(frame.f_globals.get("__name__")), frame.f_code.co_qualname.partition(".")[0])
        for frame, _ in walk_tb(error.__traceback__)
    ]
    points = [point for module, _ in reversed(frames) for point in points_beside(module)]
    strange = [point for point in points if not _code(point).startswith(f"{PACKAGE} ")]
    if not strange:
        return None
    point = next((one for one in strange if (one.module, one.attr) in frames), strange[0])
    return f"the {_kind(point.group)} {point.name} of {_code(point)}"


def _code(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def _kind(group: str) -> str:
    """`forensics.policies` -> `policy`, `forensics.losses` -> `loss`."""
    many = group.removeprefix("forensics.")
    if many.endswith("ies"):
        return f"{many[:-3]}y"
    return many.removesuffix("es" if many.endswith("sses") else "s")
