"""All cells, side by side in several processes, for so many minutes; what is
done is kept and not done again.

1. `started.json` in the cache says with which code: a cache is of one commit.
2. Cells are handed out in their order, `AHEAD` a process; each finished row is
   appended to `cases.jsonl` by the one process that hands out.
3. When the time is over no further cell is handed out.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from experiments.dose_grid.cells import Cell
from experiments.dose_grid.clerk import trained
from experiments.dose_grid.judged import judged
from forensics.errors import UserError
from forensics.progress import Progress
from forensics.records import canonical_json, content_hash
from forensics.records.files import read_json, write_json

ROOT = Path(__file__).parents[2]
CODE = ("forensics", "resampling", "training", "probes", "experiments/dose_grid")
AHEAD = 2


def code_key() -> str:
    """One hash of every file that a row depends on."""
    files = sorted(
        file for room in CODE for end in ("*.py", "*.toml") for file in (ROOT / room).rglob(end)
    )
    return content_hash([[str(file.relative_to(ROOT)), file.read_text()] for file in files])


def run(
    todo: Sequence[Cell], cache: Path, minutes: float, workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """The rows of all of these cells that are done when the time is over."""
    cache.mkdir(parents=True, exist_ok=True)
    require_same_code(cache)
    file = cache / "cases.jsonl"
    done = {canonical_json(row["cell"]): row for row in rows(file)}
    left = [cell for cell in todo if canonical_json(cell.key) not in done]
    trained()  # once, before the processes part
    with open(file, "a", encoding="utf-8") as out:
        for row in _finished(left, minutes, workers):
            out.write(canonical_json(row) + "\n")
            out.flush()
            done[canonical_json(row["cell"])] = row
            progress("cases", len(done), len(todo))
    return [done[key] for cell in todo if (key := canonical_json(cell.key)) in done]


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """What is done already; a last line that a killed run cut off is not."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
    text = file.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        file.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def require_same_code(cache: Path) -> None:
    """Raises `UserError` where the cache is of other code."""
    stated, now = cache / "started.json", {"code": code_key()}
    if stated.exists() and read_json(stated) != now:
        raise UserError(f"{cache} was started with other code; give another --cache")
    write_json(stated, now)


def _finished(left: Sequence[Cell], minutes: float, workers: int) -> Iterator[dict[str, Any]]:
    until, waiting = time.monotonic() + 60 * minutes, iter(left)
    running: set[Future[dict[str, Any]]] = set()
    with ProcessPoolExecutor(workers) as pool:
        while True:
            while len(running) < AHEAD * workers and time.monotonic() < until:
                if (cell := next(waiting, None)) is None:
                    break
                running.add(pool.submit(judged, cell))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in ended)


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
