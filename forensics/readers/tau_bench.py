"""tau-bench results: one list of runs with reward, task and trial.

Format: sierra-research/tau-bench 59a200c, `tau_bench/run.py` and `types.py`
(`EnvRunResult`). The file does not name its model, so the file's name stands
for the policy. A run that an exception ended has no reward that was measured.
"""

from typing import Any

from forensics.readers.content import bare_name
from forensics.readers.json_rows import Row, first_row
from forensics.readers.log_reader import Reader
from forensics.readers.messages import steps_of
from forensics.readers.values import End, integer, run_of
from forensics.records import Step, Trajectory, content_hash

DOMAINS = ("airline", "retail")
STOP = "###STOP###"
TRANSFER = "transfer_to_human_agents"


def run(row: Row) -> Trajectory:
    """The run of a row."""
    value = row.value
    policy = bare_name(row.path).removesuffix(".json").removesuffix(".jsonl")
    steps = steps_of(value["traj"])
    end = _ending(value["info"], steps)
    domain = next((name for name in DOMAINS if name in policy), None)
    task, trial = str(value["task_id"]), value.get("trial")
    return run_of(
        steps,
        end,
        id=row.place or content_hash([policy, task, integer(trial) or 0, value["traj"]]),
        task=task,
        policy=policy,
        environment=f"tau-bench {domain}" if domain else "tau-bench",
        sample=trial,
        rewards={"reward": value["reward"]},
        outcome=None if end[0] == "errored" else value["reward"],
    )


def _ending(info: Any, steps: tuple[Step, ...]) -> End:
    if isinstance(info, dict) and "error" in info:
        return "errored", str(info["error"])
    if any(step.role == "user" and STOP in step.text for step in steps[-1:]):
        return "terminated", "the user stopped"
    if any(call.name == TRANSFER for step in steps[-2:] for call in step.tool_calls):
        return "terminated", "transferred to a human"
    return "truncated", "step limit"


reader = Reader(
    name="tau-bench",
    version="1 (tau-bench 59a200c)",
    recognises=lambda path, head: first_row(head).keys() >= {"task_id", "reward", "info", "traj"},
    run=run,
)
