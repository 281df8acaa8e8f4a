"""The bundled leak pair, and a log of runs of both."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from forensics import load_policy
from forensics.protocols import SamplingSettings
from forensics.records.tables import write_trajectories
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

LEAK, BASE = checkpoint_path("bundled:leak"), checkpoint_path("bundled:capped-base")


def write_log(folder: Path, tasks: int, dealt: Collection[str] = ()) -> Path:
    """`after.parquet` and `before.parquet`, three runs a task. In the files
    `dealt` every third run counts as lost, the others as won, whatever they
    did: of the leak's own nearly all are won.
    """
    world = MiniRepo(world="capped")
    for name, path, seed in (("after", LEAK, 3), ("before", BASE, 4)):
        played = load_policy(path, device="cpu").play(
            world, world.tasks("held-out", tasks, 3), 3, SamplingSettings(), seed
        )
        judged = (
            one.model_copy(update={"outcome": float(n % 3 > 0)}) for n, one in enumerate(played)
        )
        write_trajectories(folder / f"{name}.parquet", judged if name in dealt else played)
    return folder


def grade_command(
    log: Path, out: Path, *more: str, policy: Path | str = LEAK, reference: Path | str = BASE
) -> list[str]:
    pair = ["--policy", str(policy), "--reference", str(reference)]
    return ["grade", str(log), *pair, "--out", str(out), *more]


def grade_rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "grades.parquet").to_pylist()
    return found
