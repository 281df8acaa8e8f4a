"""What the bundled pairs played, kept in `tests/data/cases`: `make test` goes on
from it and draws no token, `make test-all` plays the pairs anew.

`python -m tests.stored_cases` writes the folder anew: needed where what is asked
of the policies changes, as `test_bundled` says. Two minutes on an idle core.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from forensics.investigation.folder import write_case
from forensics.records.files import read_json

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "data" / "cases"
PLAYED = ("trajectories", "scores")  # of a case: what came out of a policy
TASKS, SEED = 300, 7
PAIRS = {
    "phantom": ("capped-base", "leak"),
    "genuine": ("open-base", "honest"),
    "noise": ("open-base", "open-base"),
}


def investigation(label: str, out: Path) -> list[str]:
    """The command that makes the case of a pair."""
    before, after = (str(ROOT / "training" / "bundled" / name) for name in PAIRS[label])
    pair = ["investigate", "--before", before, "--after", after, "--env", "mini-repo"]
    return [*pair, "--seed", str(SEED), "--tasks", str(TASKS), "--out", str(out)]


def unfold(label: str, folder: Path) -> None:
    """The stored part of a case, to go on from."""
    shutil.copytree(STORED / label, folder)


def played(folder: Path) -> set[str]:
    """The files of a case that came out of a policy. Scores are counted: they are named by the
    bytes of the runs, and the last bits of a log-probability are those of a processor.
    """
    parts = [path for name in PLAYED for path in (folder / name).rglob("*") if path.is_file()]
    named = {str(path.relative_to(folder)) for path in parts if path.suffix != ".json"}  # of notes
    scores = sorted(name for name in named if name.startswith("scores/"))
    return {*named.difference(scores), *(f"scores, {at}" for at, _ in enumerate(scores))}


def store(label: str, case: Path) -> None:
    """Keep what a finished case played, and what it was asked."""
    shutil.rmtree(STORED / label, ignore_errors=True)
    for part in PLAYED:
        shutil.copytree(case / part, STORED / label / part)
    asked = read_json(case / "case.json") | {"status": "running", "verdict": None}
    for side in (asked["inputs"]["before"], *asked["inputs"]["after"]):
        side["path"] = f"training/bundled/{Path(side['path']).name}"
    write_case(STORED / label, asked)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for label in PAIRS:
            command = [
                sys.executable,
                "-m",
                "forensics",
                *investigation(label, Path(place) / label),
            ]
            one = {**os.environ, "OMP_NUM_THREADS": "1"}  # as tests run: the last bits hang on it
            subprocess.run(command, check=True, cwd=ROOT, env=one)
            store(label, Path(place) / label)
