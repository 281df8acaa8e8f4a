"""Our own trajectories: Parquet, JSON lines, and case folders.

Of a case folder, the plain rollouts of all sides are read (`before-open-*`,
`after-0-open-*`: the side is in the name, the checkpoint in `policy`); the rest
of it, scrubbed worlds and refused actions too, goes with them and is not a log.
`case_sides` says which file belongs to which side.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from forensics.readers.content import Unreadable
from forensics.readers.json_rows import (
    Row,
    first_row,
    metadata_of,
    read_parquet,
    read_rows,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.records import Trajectory

CASE = "case.json"
PLAIN = re.compile(r"(?P<side>before|after-\d+)-open-[0-9a-f]+-\d+\.parquet")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    schema = metadata_of(path, head).get(b"forensics.schema", b"")
    return (
        schema.startswith(b"trajectory/")
        or {"schema_version", "id", "task", "policy"} <= first_row(head).keys()
    )


def accompanies(path: Path) -> bool:
    """Whether the file lies in a case folder and is not one of its plain rollouts."""
    folder = next((folder for folder in path.parents[:3] if (folder / CASE).is_file()), None)
    return folder is not None and not (
        path.parent == folder / "trajectories" and PLAIN.fullmatch(path.name)
    )


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every trajectory of the file."""
    with path.open("rb") as file:
        head = file.read(4)
    rows = read_parquet(path) if metadata_of(path, head) else read_rows(path)
    return trajectories_from(path, rows, _run)


reader = Reader(
    name="policy-forensics",
    version="1 (schema trajectory/1)",
    rank=10,  # its marks are certain
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def case_sides(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The plain rollouts of a case folder by side (`before`, `after-0`, ...),
    in order; empty where it is none.
    """
    sides: dict[str, list[Path]] = {}
    if (folder / CASE).is_file():
        for path in sorted((folder / "trajectories").glob("*.parquet")):
            if found := PLAIN.fullmatch(path.name):
                sides.setdefault(found["side"], []).append(path)
    return {side: tuple(paths) for side, paths in sorted(sides.items())}


def _run(row: Row) -> Trajectory:
    value = dict(row.value)
    value["rewards"] = dict(value.get("rewards") or {})
    return Trajectory.model_validate(value)
