"""The demo's wall time, split by stage as its own progress tells them. Limit:
three minutes on two cores.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from forensics.case import Budget
from forensics.investigation import investigate
from training import checkpoint_path

LIMIT = 180.0


def run(device: str = "cpu") -> dict[str, Any]:
    """Seconds by stage. A stage lasts from its first word to the next one's."""
    marks: list[tuple[str, float]] = []

    def progress(what: str, done: int, of: int) -> None:
        if what != "measuring" and (not marks or marks[-1][0] != what):
            marks.append((what, time.perf_counter()))

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        verdict = investigate(
            checkpoint_path("bundled:capped-base"),
            checkpoint_path("bundled:leak"),
            out=Path(folder) / "demo",
            budget=Budget(),
            seed=7,
            device=device,
            progress=progress,
        )
    end = time.perf_counter()
    stages: dict[str, float] = {}
    for (what, begun), (_, ended) in zip(marks, [*marks[1:], ("end", end)], strict=True):
        stages[what] = round(stages.get(what, 0.0) + ended - begun, 1)
    return {
        "benchmark": "demo wall time (s)",
        "limit": LIMIT,
        "ratio": round((end - start) / LIMIT, 3),
        "seconds": round(end - start, 1),
        "stages": stages,
        "label": verdict.label,
        "device": device,
    }
