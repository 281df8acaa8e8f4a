"""Our own trajectories: Parquet, JSON lines, and case folders.

Of a case folder, the plain rollouts of all sides are read (`before-open-*`,
`after-0-open-*`: the side is in the name, the checkpoint in `policy`); the rest
of it, scrubbed worlds and refused actions too, goes with them and is not a log.
`case_sides` says which file belongs to which side.
"""

import re
from pathlib import Path

from forensics.readers.content import UnreadableContent
from forensics.readers.json_rows import Row, first_row, parquet_schema
from forensics.readers.log_reader import Reader
from forensics.records import Trajectory
from forensics.records.given_files import require_inside

CASE = "case.json"
PLAIN = re.compile(r"(?P<side>before|after-\d+)-open-[0-9a-f]+-\d+\.parquet")


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    schema = (parquet_schema(path, head).metadata or {}).get(b"forensics.schema", b"")
    fields = {"schema_version", "id", "task", "policy"}
    return schema.startswith(b"trajectory/") or first_row(head).keys() >= fields


def accompanies(path: Path) -> bool:
    """Whether the file lies in a case folder and is not one of its plain rollouts."""
    folder = next((folder for folder in path.parents[:3] if (folder / CASE).is_file()), None)
    if folder is None or path.is_relative_to(folder / "atif"):  # files of another format
        return False
    return not (path.parent == folder / "trajectories" and PLAIN.fullmatch(path.name))


def run(row: Row) -> Trajectory:
    """A trajectory as it was written."""
    found = Trajectory.model_validate(
        {**row.value, "rewards": dict(row.value.get("rewards") or {})}
    )
    if found.outcome is not None and not 0 <= found.outcome <= 1:
        raise UnreadableContent(
            f"its outcome {found.outcome:g} is outside [0, 1]; scale it, or keep it among the"
            " rewards"
        )
    return found


reader = Reader(
    name="policy-forensics",
    version="1 (schema trajectory/1)",
    rank=10,  # its marks are certain
    recognises=recognises,
    accompanies=accompanies,
    run=run,
)


def case_sides(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The plain rollouts of a case folder by side (`before`, `after-0`, ...),
    in order; empty where it is none. Raises `UserError` for a link out of the folder.
    """
    sides: dict[str, list[Path]] = {}
    if (folder / CASE).is_file():
        for path in sorted((folder / "trajectories").glob("*.parquet")):
            if found := PLAIN.fullmatch(path.name):
                require_inside(path, folder)
                sides.setdefault(found["side"], []).append(path)
    return {side: tuple(paths) for side, paths in sorted(sides.items())}
