"""tau-bench results: one list of runs with reward, task and trial.

Format: sierra-research/tau-bench 59a200c, `tau_bench/run.py` and `types.py`
(`EnvRunResult`). The file does not name its model, so the file's name stands
for the policy. A run that an exception ended has no reward that was measured.
"""

from collections.abc import Iterator
from pathlib import Path

from forensics.readers.content import Unreadable, bare_name
from forensics.readers.json_rows import Row, first_row, read_rows, trajectories_from
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import integer, number, score_of
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import Ending

DOMAINS = ("airline", "retail")
STOP = "###STOP###"
TRANSFER = "transfer_to_human_agents"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return {"task_id", "reward", "info", "traj"} <= first_row(head).keys()


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """Every run of the file."""
    policy = bare_name(path).removesuffix(".json").removesuffix(".jsonl")
    return trajectories_from(path, read_rows(path), lambda row: _run(row, policy))


reader = Reader(
    name="tau-bench",
    version="1 (tau-bench 59a200c)",
    recognises=recognises,
    reads=read,
)


def _run(row: Row, policy: str) -> Trajectory:
    run = row.value
    steps = steps_of(run["traj"])
    end, reason = _ending(run["info"], steps)
    domain = next((name for name in DOMAINS if name in policy), None)
    task, trial = str(run["task_id"]), integer(run.get("trial")) or 0
    return Trajectory(
        id=content_hash([policy, task, trial, run["traj"]]),
        task=task,
        policy=policy,
        environment=f"tau-bench {domain}" if domain else "tau-bench",
        seed=0,
        sample=max(trial, 0),
        steps=steps,
        rewards={"reward": number(run["reward"])},
        outcome=None if end == "errored" else score_of(run["reward"]),
        end=end,
        end_reason=reason,
    )


def _ending(info: object, steps: tuple[Step, ...]) -> tuple[Ending, str | None]:
    if isinstance(info, dict) and "error" in info:
        return "errored", str(info["error"])[:500]
    if any(step.role == "user" and STOP in step.text for step in steps[-1:]):
        return "terminated", "the user stopped"
    if any(call.name == TRANSFER for step in steps[-2:] for call in step.tool_calls):
        return "terminated", "transferred to a human"
    return "truncated", "step limit"
