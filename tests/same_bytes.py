"""Do two commits write the same bytes? `python -m tests.same_bytes COMMIT`

1. Check COMMIT out beside this tree.
2. Run the same commands in both, one after the other, on this machine, with one
   thread: an investigation of each bundled pair, `ablate`, `grade`, `cliffs`,
   `diff`, `steer`, `scan`, `train` for five steps.
3. Hash what each file holds, without times and places. Parquet tables are
   hashed by their rows; pages and pictures without blanks between tags, the
   version, and the names that a drawing gives to its parts.
4. Say what differs. Exit code 1 if anything does.

Floats of a model differ between machines, so hashes are compared on one machine
and never committed. `--only NAME` runs one command (and those whose files it
reads); `--keep DIR` keeps what was written; `--logs DIR` scans further logs.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = "training/bundled"
TIMED = frozenset(
    {
        "seconds",
        "time",
        "times",
        "wall",
        "started",
        "elapsed",
        "tokens_per_second",
        "created",
        "code",
    }
)
SKIPPED = (".lock", ".log", ".0")  # TensorBoard
DRAWN = (".html", ".svg")
RECIPE = """
[policy]
checkpoint = "bundled:open-base"
[environment]
name = "mini-repo"
options = {world = "open"}
[grpo]
steps = 5
groups = 6
samples = 4
[record]
rollouts = true
"""
PAIRS = {
    "phantom": ("capped-base", "leak"),
    "genuine": ("open-base", "honest"),
    "noise": ("open-base", "open-base"),
}


@dataclass(frozen=True)
class Run:
    """A command line, `{out}` being the folder of all runs, and the runs whose files it reads."""

    name: str
    arguments: str
    reads: tuple[str, ...] = ()


def pair(name: str) -> str:
    before, after = PAIRS[name]
    return f"--before {BUNDLED}/{before} --after {BUNDLED}/{after}"


SIDES = f"--policy {BUNDLED}/leak --reference {BUNDLED}/capped-base"
PHANTOM, LEAK = "{out}/phantom", f"{BUNDLED}/leak"
RUNS = (
    *(
        Run(name, f"investigate {pair(name)} --tasks 60 --seed 7 --out {{out}}/{name}")
        for name in PAIRS
    ),
    Run("ablate", f"ablate {pair('genuine')} --tasks 30 --seed 3 --out {{out}}/ablate"),
    Run("grade", f"grade {PHANTOM} {SIDES} --linear-probes 20 --out {{out}}/grade", ("phantom",)),
    Run(
        "cliffs",
        f"cliffs {PHANTOM} --policy {LEAK} --most 3 --budget 3000 --out {{out}}/cliffs",
        ("phantom",),
    ),
    Run(
        "diff",
        f"diff {pair('phantom')} --runs {PHANTOM} --tokens 12000 --decisions 8 --latents 128 "
        "--out {out}/diff",
        ("phantom",),
    ),
    Run(
        "steer",
        f"steer {pair('phantom')} --dictionary {{out}}/diff/dictionary --features contrast:3"
        " --tasks 10 --choosing 6 --controls 2 --out {out}/steer",
        ("phantom", "diff"),
    ),
    Run("scan", "scan {logs}/after --before {logs}/before --out {out}/scan", ("phantom",)),
    Run("train", "train {out}/recipe.toml --seed 1 --out {out}/train"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commit", help="what this tree is compared with, such as HEAD~1")
    parser.add_argument("--only", action="append", default=[], choices=[run.name for run in RUNS])
    parser.add_argument(
        "--keep", type=Path, help="keep what was written here, in `before` and `after`"
    )
    parser.add_argument("--logs", type=Path, help="scan these logs too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = arguments.keep.resolve() if arguments.keep else Path(scratch)
        tree = Path(scratch) / "tree"
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "-q", arguments.commit], check=True)
        # a tree finds its own plug-ins, not those of the installed one
        entries = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"]
        subprocess.run(entries, cwd=tree, check=True, capture_output=True)
        runs = chosen(arguments.only)
        if arguments.logs:
            runs = (*runs, Run("foreign", f"scan {arguments.logs.resolve()} --out {{out}}/foreign"))
        before = written(tree, place / "before", runs)
        after = written(ROOT, place / "after", runs)
    differing = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    for name in differing:
        print(
            f"{name}:"
            f" {'missing' if name not in after else 'new' if name not in before else 'differs'}"
        )
    print(f"{len(before)} files before, {len(after)} now, {len(differing)} differ")
    sys.exit(1 if differing else 0)


def chosen(names: list[str]) -> tuple[Run, ...]:
    """The named runs and those that they read; all where none is named."""
    wanted = set(names or [run.name for run in RUNS])
    for run in reversed(RUNS):
        if run.name in wanted:
            wanted.update(run.reads)
    return tuple(run for run in RUNS if run.name in wanted)


def written(tree: Path, out: Path, runs: tuple[Run, ...]) -> dict[str, str]:
    """Run all commands with the code of a tree; the hash of each file."""
    out.mkdir(parents=True)
    (out / "recipe.toml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    environment["SOURCE_DATE_EPOCH"] = "0"  # one day for all
    for run in runs:
        if run.name == "scan":
            plain_logs(out / "phantom" / "trajectories", out / "logs")
        words = run.arguments.format(out=out, logs=out / "logs").split()
        print(f"{tree.name}: forensics {run.name}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "forensics", *words],
            cwd=tree,
            env=environment,
            text=True,
            capture_output=True,
        )
        if done.returncode:
            sys.exit(f"{tree.name}: forensics {' '.join(words)}\n{done.stderr[-2000:]}")
    return {str(path.relative_to(out)): digest(path, str(out)) for path in files(out)}


def plain_logs(trajectories: Path, folder: Path) -> None:
    """The open runs of a case as two folders of logs."""
    for side in ("before", "after"):
        (folder / side).mkdir(parents=True)
        for path in trajectories.glob(f"{side}*-open-*.parquet"):
            (folder / side / path.name).write_bytes(path.read_bytes())


def files(out: Path) -> Iterator[Path]:
    return (
        path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix not in SKIPPED
    )


def digest(path: Path, out: str) -> str:
    """The hash of what a file holds."""
    if path.suffix == ".parquet":
        content = json.dumps(
            timeless(pq.read_table(path).to_pylist(), out), sort_keys=True, default=repr
        ).encode()
    elif path.suffix == ".json":
        content = json.dumps(timeless(json.loads(path.read_text()), out), sort_keys=True).encode()
    elif path.suffix == ".jsonl":
        rows = [timeless(json.loads(line), out) for line in path.read_text().splitlines()]
        content = json.dumps(rows, sort_keys=True).encode()
    elif path.suffix in DRAWN:
        content = plainly_drawn(path.read_text(encoding="utf-8").replace(out, "OUT")).encode()
    else:
        content = path.read_bytes().replace(out.encode(), b"OUT")
    return hashlib.sha256(content).hexdigest()[:16]


def plainly_drawn(text: str) -> str:
    """A page or a picture without what differs each time that it is drawn."""
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"policy-forensics [\w.+-]+", "CODE", text)
    names: dict[str, str] = {}  # of parts of a picture: `id="m1f0a..."`, `url(#p...)`
    for name in re.findall(r"\bid=\"([a-z][0-9a-f]{8,})\"", text):
        names.setdefault(name, f"part{len(names)}")
    for name, number in names.items():
        text = text.replace(name, number)
    return re.sub(r"\s+", " ", re.sub(r">\s+<", "><", text))


def timeless(value: Any, out: str) -> Any:
    """A value without times, and without where it was written."""
    if isinstance(value, dict):
        return {key: timeless(item, out) for key, item in value.items() if key not in TIMED}
    if isinstance(value, list):
        return [timeless(item, out) for item in value]
    return value.replace(out, "OUT") if isinstance(value, str) else value


if __name__ == "__main__":
    main()
