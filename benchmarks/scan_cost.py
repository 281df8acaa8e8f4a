"""What `forensics scan` costs against an earlier commit, by the clock.

1. The commit gets a work tree of its own in a temporary folder, with its own entry points,
   and is run by the same Python from there.
2. Two loads: the labelled runs of coding agents, and `ROWS` answers: those of `REPEATED`
   over and over, each time under other ids and tasks, as chat rows.
3. In pairs that take turns in who goes first; whole commands, start to exit. The ratio is
   told pair by pair, and of the least of each side: on a busy machine that one says most.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_forms import RUNS, Log, answers, as_chat, write_chat
from benchmarks.spread import spread
from benchmarks.whole_commands import Took, timed

ROWS: Final = 10_000
REPEATED: Final = ("olmo_exit", "codeforces")
MOST: Final = 1.1  # times the time of the commit


def against(root: Path, commit: str, data: Path, repeats: int) -> dict[str, Any]:
    """One row a load; no rows where the logs are not there."""
    title = f"`forensics scan` against commit {commit}"
    files = [data / "answers" / f"{name}.jsonl" for name in REPEATED]
    if not all(path.exists() for path in (*files, *(data / name for name in RUNS))):
        return {
            "benchmark": title,
            "missing": [f"No labelled logs: give their folder, not {data}."],
        }
    with tempfile.TemporaryDirectory() as folder, tree_of(root, commit) as tree:
        loads = {
            "the labelled runs": Path(folder) / "runs",
            f"{ROWS} answers": Path(folder) / "answers.jsonl",
        }
        for name in RUNS:
            shutil.copytree(data / name, Path(folder) / "runs" / name)
        logs = [log for path in files for log in answers(path)]
        write_chat(Path(folder) / "answers.jsonl", list(map(as_chat, many(logs, ROWS))))
        rows = [
            _row(name, load, {"now": root, "then": tree}, repeats) for name, load in loads.items()
        ]
    return {"benchmark": title, "limit": MOST, "rows": rows}


def many(logs: Sequence[Log], count: int) -> Iterator[Log]:
    """The logs over and over, no two with one id."""
    for number, log in enumerate(islice(cycle(logs), count)):
        turn = number // len(logs)
        yield replace(log, id=f"{log.id}-{turn}", task=f"{log.task}-{turn}")


@contextmanager
def tree_of(root: Path, commit: str) -> Iterator[Path]:
    """A work tree of a commit, with entry points of its own; removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(root), "worktree"]
        added = subprocess.run(
            [*git, "add", "-q", "--detach", str(tree), commit],
            capture_output=True,
            text=True,
            check=False,
        )
        if added.returncode:
            raise SystemExit(f"error: no work tree of {commit}: {added.stderr.strip()}")
        try:
            # a tree finds its own plug-ins, not those of the installed one
            entries = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q"]
            subprocess.run([*entries, "egg_info"], cwd=tree, check=True, capture_output=True)
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=False)


def _row(name: str, load: Path, trees: dict[str, Path], repeats: int) -> dict[str, Any]:
    took: dict[str, list[Took]] = {side: [] for side in trees}
    for number in range(repeats):
        for side in list(trees)[:: 1 if number % 2 else -1]:
            print(f"{name}: {side} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as case:
                command = [sys.executable, "-m", "forensics", "scan", str(load), "--json"]
                took[side].append(timed([[*command, "--out", f"{case}/case"]], trees[side]))
    row: dict[str, Any] = {"load": name}
    for clock, told in (("wall", "seconds"), ("processor", "processor_seconds")):
        now, then = ([getattr(one, clock) for one in took[side]] for side in ("now", "then"))
        row[told] = {"now": spread(now), "then": spread(then)}
        row[f"ratio of {told}"] = {
            **spread([a / b for a, b in zip(now, then, strict=True)]),
            "of_the_least": round(min(now) / min(then), 3),
        }
    return row
