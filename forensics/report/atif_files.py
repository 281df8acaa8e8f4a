"""The runs of a case as files of Harbor's Agent Trajectory Interchange Format (ATIF 1.8): one a
run, below `atif/SIDE-WORLD/`, one after the other.

1. An action is a step of the agent, what came back the results of its observation. A tool's
   message that answers no action is a step without a model call.
2. Drawn tokens and their log-probabilities go into the step's metrics, where the run has them.
3. What the format has no place for (outcome, rewards, kinds of actions, what showed a shortcut,
   how the run ended) stands in `extra`, under `policy_forensics`; `forensics.readers.atif`
   gives the same run again. Where the run was read is left out.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from forensics.progress import Progress
from forensics.readers.atif import ATIF_EXTRA
from forensics.records import Step, ToolCall, Trajectory, content_hash
from forensics.records.files import write_atomically
from forensics.report.case_logs import Log, find_logs
from forensics.version import code_version

FOLDER: Final = "atif"
VERSION: Final = "ATIF-v1.8"
OF_RUN: Final = (
    *("task", "environment", "seed", "sample", "outcome", "end", "end_reason"),
    *("submission", "patch", "redraws"),
)


def write_runs(case: Path, progress: Progress) -> Path:
    """Every plain run of a case, refused actions apart; returns the folder, made anew."""
    place, logs = case / FOLDER, find_logs(case)
    rmtree(place, ignore_errors=True)
    number = sum(1 for log in logs for _ in log.rows("id"))
    done = 0
    for log in logs:
        for run in log.rollouts:
            progress("writing the runs", done, number)
            write_atomically(place / _world(log) / _name(run), _text(document_of(run)))
            done += 1
    progress("writing the runs", 1, 1)
    return place


def document_of(run: Trajectory) -> dict[str, Any]:
    """One run as an ATIF document."""
    told = {name: getattr(run, name) for name in OF_RUN}
    steps = [*_steps(run)]
    drawn = run.sampled_tokens
    return {
        "schema_version": VERSION,
        "session_id": run.id,
        "agent": {
            "name": "policy-forensics",
            "version": code_version(),
            "model_name": run.policy,
        },
        "steps": [{"step_id": at + 1, **step} for at, step in enumerate(steps)],
        "final_metrics": {
            "total_steps": len(steps),
            **({} if drawn is None else {"total_completion_tokens": drawn}),
        },
        "extra": {ATIF_EXTRA: told | {"without": list(run.without), "rewards": run.rewards}},
    }


def _steps(run: Trajectory) -> Iterator[dict[str, Any]]:
    """Each message, what an action brought back inside its step."""
    open_step: dict[str, Any] | None = None
    for step in run.steps:
        if step.role == "tool" and open_step is not None:
            results = open_step.setdefault("observation", {"results": []})["results"]
            results.append({"content": step.text})
            if step.channels:
                shown = _own(open_step).setdefault("shown", {})
                shown[str(len(results) - 1)] = list(step.channels)
            continue
        if open_step is not None:
            yield open_step
        open_step = _said(step)
        if step.role != "assistant":
            yield open_step
            open_step = None
    if open_step is not None:
        yield open_step


def _said(step: Step) -> dict[str, Any]:
    if step.role == "tool":
        told: dict[str, Any] = {"source": "agent", "message": step.text, "llm_call_count": 0}
    else:
        told = {"source": "agent" if step.role == "assistant" else step.role, "message": step.text}
    calls = [_call(call, at) for at, call in enumerate(step.tool_calls)]
    if calls:
        told["tool_calls"] = calls
        _own(told)["arguments"] = [call.arguments for call in step.tool_calls]
    for name in ("kinds", "channels"):
        if values := getattr(step, name):
            _own(told)[name] = list(values)
    if step.role == "assistant" and (metrics := _metrics(step)):
        told["metrics"] = metrics
    return told


def _own(step: dict[str, Any]) -> dict[str, Any]:
    """What is told of a step beyond the format."""
    told: dict[str, Any] = step.setdefault("extra", {}).setdefault(ATIF_EXTRA, {})
    return told


def _call(call: ToolCall, at: int) -> dict[str, Any]:
    """The arguments as an object, which the format asks for; as they were written in `extra`."""
    try:
        value = json.loads(call.arguments)
    except ValueError:
        value = None
    arguments = value if isinstance(value, dict) else {"arguments": call.arguments}
    return {"tool_call_id": f"call-{at}", "function_name": call.name, "arguments": arguments}


def _metrics(step: Step) -> dict[str, Any]:
    if step.token_ids is None or step.sampled is None:
        return {}
    drawn = [token for token, ours in zip(step.token_ids, step.sampled, strict=True) if ours]
    told: dict[str, Any] = {"completion_tokens": len(drawn), "completion_token_ids": drawn}
    return told | ({} if step.logprobs is None else {"logprobs": list(step.logprobs)})


def _world(log: Log) -> str:
    world = ("without", *log.without) if log.without else ("open",)
    return _plain("-".join((log.side, *world)))


def _name(run: Trajectory) -> str:
    return f"{_plain(run.id)}-{content_hash(run.id, 8)}.json"


def _plain(name: str) -> str:
    """A name that any file system takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:80].strip("-") or "run"


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
