"""Long runs of many cases, side by side in several processes: what is done is
kept and not done again.

1. `code_key` is one hash of the files that a row depends on; the version of the
   package is the same at many commits. A cache says with which code it was
   begun (`started.json`), and refuses to go on with other code.
2. `run` hands out cases in their order, `AHEAD` a process, and appends each row
   to `cases.jsonl` as it comes, from one process. A last line that a killed run
   cut off is dropped and its case done again. One run at a time has a cache.
3. When the time is over no further case is handed out. A process whose parent
   was killed ends too.
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.records import canonical_json, content_hash
from forensics.records.files import read_json, write_atomically, write_json

ROOT = Path(__file__).parents[1]
PRODUCT = ("forensics", "resampling", "training", "probes", "crosscoders")
AHEAD = 2
Row = dict[str, Any]
Item = TypeVar("Item")


def code_key(*beside: str) -> str:
    """One hash of the product's files, and of these files or folders beside it
    (from the root of the repository).
    """
    files = {
        file
        for name in (*PRODUCT, "experiments/resumable.py", *beside)
        for place in [ROOT / name]
        for file in ([place] if place.is_file() else place.rglob("*"))
        if file.suffix in (".py", ".toml")
    }
    named = sorted((file.relative_to(ROOT).as_posix(), file) for file in files)
    return content_hash([[name, file.read_text(encoding="utf-8")] for name, file in named])


def run(
    todo: Mapping[str, Item],
    judge: Callable[[Item], Row],
    cache: Path,
    *,
    code: str,
    minutes: float = float("inf"),
    processes: int = 1,
    progress: Progress = silent,
) -> dict[str, Row]:
    """The rows of all cases (by their names, in order) that are done when the
    time is over. Raises `UserError` where the cache is of other code, or in use.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache):
        require_same_code(cache, code)
        done = kept(cache / "cases.jsonl")
        left = [(name, item) for name, item in todo.items() if name not in done]
        with open(cache / "cases.jsonl", "a", encoding="utf-8") as out:
            for name, row in side_by_side(left, judge, minutes, processes):
                out.write(canonical_json([name, row]) + "\n")
                out.flush()
                done[name] = row
                progress("cases", len(done), len(todo))
    return {name: done[name] for name in todo if name in done}


def kept(file: Path) -> dict[str, Row]:
    """What is done already; a line that was cut off is taken away."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_atomically(file, whole)
    return dict(json.loads(line) for line in whole.splitlines())


def require_same_code(cache: Path, code: str) -> None:
    """Raises `UserError` where the cache is of other code."""
    stated, now = cache / "started.json", {"code": code}
    if not stated.exists():
        write_json(stated, now)
    elif read_json(stated) != now:
        raise UserError(f"{cache} was started with other code; give another --cache")


def side_by_side(
    left: Iterable[tuple[str, Item]],
    judge: Callable[[Item], Row],
    minutes: float,
    processes: int,
) -> Iterator[tuple[str, Row]]:
    """Each case's name and row, as they end."""
    until, waiting = time.monotonic() + 60 * minutes, iter(left)
    running: dict[Future[Row], str] = {}
    with ProcessPoolExecutor(processes, initializer=_ends_with, initargs=(os.getpid(),)) as pool:
        while True:
            while len(running) < AHEAD * processes and time.monotonic() < until:
                if (one := next(waiting, None)) is None:
                    break
                running[pool.submit(judge, one[1])] = one[0]
            if not running:
                return
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(ended), ended.result()


def _ends_with(parent: int) -> None:
    """End this process when its parent is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """The lock ends with the process."""
    with open(cache / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another run is writing {cache}; wait for it") from None
        yield
