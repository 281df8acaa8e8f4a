"""Where a log stands in a comparison: `before`, `after-1/scrubbed`, `after/without:history`.

Each name after `without:` is a channel; `scrubbed` is the world without any. Where nobody names
one, the channels are those that the scrubbed logs' own runs say, else one called `scrubbed`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.investigation.folder import Location
from forensics.investigation.stored_logs import Source, identity_of_files
from forensics.phrases import printable
from forensics.progress import Progress
from forensics.readers.log_reader import read_logs
from forensics.records import Trajectory

CHANNEL: Final = r"[A-Za-z0-9_.][\w.-]*"
PLACE: Final = re.compile(
    rf"(?P<side>before|after(?:-\d+)?)(?:/(?P<all>scrubbed)|/without:(?P<names>{CHANNEL}(?:\+{CHANNEL})*))?"
)
SCRUBBED: Final = "scrubbed"


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """A log by the name that was given to its place."""

    name: str
    source: Source

    def stated(self) -> dict[str, object]:
        """As `case.json` says it; the path is a hint, the hash identifies."""
        source = self.source
        return {"path": str(source.given), "hash": source.key, "without": list(source.without)}


def find_places(logs: Mapping[str, Location], out: Path, progress: Progress) -> list[LogPlace]:
    """The places in a fixed order, their files hashed. `out`: the case's folder. Raises
    `UserError` with the cure.
    """
    found = {name: _parsed(name) for name in logs}
    paths = {name: _path(name, place) for name, place in logs.items()}
    _require_apart(paths, out)
    for side in ("before", "after-0"):
        if not any(place["side"] == side and not place["world"] for place in found.values()):
            name = side.removesuffix("-0")
            raise UserError(f"there is no log of {name} in the open world; give --logs {name}=PATH")
    everything = _channels(found, paths)
    places: dict[tuple[str, tuple[str, ...]], LogPlace] = {}
    for name, place in found.items():
        without = everything if place["world"] == SCRUBBED else _names(place["world"])
        key = (place["side"], without)
        if key in places:
            raise UserError(
                f"{places[key].name} and {name} are the same world; give one of them, or name"
                " further channels as without:A+B"
            )
        places[key] = LogPlace(
            name=name,
            source=Source(
                side=key[0],
                paths=(paths[name],),
                given=paths[name],
                key=identity_of_files((paths[name],), progress),
                without=without,
            ),
        )
    _require_both_sides(places.values())
    return [places[key] for key in sorted(places, key=lambda key: (key[0] != "before", key))]


def _require_both_sides(places: Iterable[LogPlace]) -> None:
    """A world of one side says nothing about the gain there. Raises `UserError`."""
    sides: dict[tuple[str, ...], dict[str, str]] = {}
    for place in places:
        side = "before" if place.source.side == "before" else "after"
        sides.setdefault(place.source.without, {})[side] = place.name
    for known in sides.values():
        if len(known) == 1:
            ((side, name),) = known.items()
            other = "/".join(["after" if side == "before" else "before", *name.split("/")[1:]])
            raise UserError(
                f"there is a log of {name} and none of {other}, so nothing can be said of the gain"
                f" in that world; give --logs {other}=PATH as well, or leave {name} out"
            )


def _parsed(name: str) -> dict[str, str]:
    if (found := PLACE.fullmatch(name)) is None:
        raise UserError(
            f"'{printable(name)}' is no place of a log; give before, after or after-1 (a further"
            " training seed), alone or followed by /scrubbed or /without:CHANNEL"
        )
    side = "after-0" if found["side"] == "after" else found["side"]
    return {"side": side, "world": found["all"] or found["names"] or ""}


def _path(name: str, given: Location) -> Path:
    if not isinstance(given, str | PathLike) or not str(given):
        raise UserError(f"the log of {name} is {given!r} and must be a file or a folder of logs")
    path = Path(given).expanduser()
    read_logs(path)  # says at once what is missing; nothing is read yet
    return path


def _require_apart(paths: Mapping[str, Path], out: Path) -> None:
    """No log twice, and the case in none of them. Raises `UserError`."""
    seen: dict[Path, str] = {}
    for name, path in paths.items():
        if (twin := seen.setdefault(path.resolve(), name)) != name:
            raise UserError(
                f"{path} was given for {twin} and for {name}; give the runs of each their own log"
            )
        if path.resolve() in (out.resolve(), *out.resolve().parents):
            raise UserError(f"--out {out} lies inside the logs; choose another folder for the case")


def _names(world: str) -> tuple[str, ...]:
    return tuple(sorted(set(filter(None, world.split("+")))))


def _channels(found: Mapping[str, Mapping[str, str]], paths: Mapping[str, Path]) -> tuple[str, ...]:
    """Every channel, sorted: those that are named, those that scrubbed runs say, or `scrubbed`."""
    worlds = [place["world"] for place in found.values()]
    named = {name for world in worlds if world != SCRUBBED for name in _names(world)}
    told = [
        name
        for place, path in paths.items()
        if found[place]["world"] == SCRUBBED
        for name in _told(path)
    ]
    return tuple(sorted({*named, *told})) or (SCRUBBED,)


def _told(path: Path) -> Sequence[str]:
    """The channels that the first run of a log says it was scrubbed of."""
    with suppress(StopIteration):
        run = next(one for one in read_logs(path) if isinstance(one, Trajectory))
        return [name for name in run.without if re.fullmatch(CHANNEL, name)]
    return ()
