"""The peer of `experiments.real_logs`, run by the Python of an environment of
its own: imports nothing of ours.

`peer.py FORM < runs.jsonl`: what `rewardhackwatch scan`, started as its README
says, finds in each run. A line in is `{"id", "steps": [{"role", "content",
"commands"}]}`, a line out `{"id", "flagged", "score", "matches"}`. `FORM`:
`text`, as in its README's quick start, or `steps`, as in its example files,
which also has what came back.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Row = dict[str, Any]
HIGH_RISK = ("high", "critical")  # what its `scan` counts as high-risk


def as_text(steps: list[Row]) -> Row:
    """What the agent wrote, and the commands that it gave."""
    said = [step for step in steps if step["role"] == "assistant"]
    return {
        "cot_traces": [step["content"] for step in said],
        "code_outputs": [command for step in said for command in step["commands"]],
    }


def as_steps(steps: list[Row]) -> Row:
    """Thoughts, actions and what came back, in their order; the prompt is not
    part of a trajectory.
    """
    listed: list[Row] = []
    for step in steps:
        if step["role"] == "assistant":
            listed += [
                {"thought": step["content"]},
                *({"action": command} for command in step["commands"]),
            ]
        elif step["role"] == "tool":
            listed.append({"output": step["content"]})
    return {"steps": listed}


FORMS = {"text": as_text, "steps": as_steps}


def scan(trajectories: list[Row]) -> list[Row]:
    """One row a trajectory, in their order."""
    with TemporaryDirectory() as place:
        folder, results = Path(place) / "trajectories", Path(place) / "results.json"
        folder.mkdir()
        for number, trajectory in enumerate(trajectories):
            (folder / f"{number:06d}.json").write_text(json.dumps(trajectory), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "rewardhackwatch",
            "scan",
            str(folder),
            "--output",
            str(results),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(results.read_text(encoding="utf-8"))
    return sorted(rows, key=lambda row: Path(row["file"]).name)


def main() -> None:
    runs = [json.loads(line) for line in sys.stdin]
    rows = scan([FORMS[sys.argv[1]](run["steps"]) for run in runs])
    for run, row in zip(runs, rows, strict=True):
        if "error" in row:
            raise SystemExit(f"the peer could not read {run['id']}: {row['error']}")
        told = {
            "flagged": row["risk"] in HIGH_RISK,
            "score": row["score"],
            "matches": row["detections"],
        }
        print(json.dumps({"id": run["id"], **told}))


if __name__ == "__main__":
    main()
