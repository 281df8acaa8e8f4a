"""The logs of `benchmarks.scan`: `.eval` files as Inspect writes them, from
real logs or from made-up ones.

Each sample has its messages, and a model event for every generation, whose
input points into the pool of messages (so Inspect condenses them). Copies of a
real log differ in their names and in the folder that their commands work in.
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from forensics.readers import read_logs
from forensics.records import Step, Trajectory

AT_ONCE = 100  # samples of one file
TURNS, LINES = 30, 40
STARTED = "2025-11-01T00:00:00+00:00"
SYLLABLES = (
    "ba",
    "den",
    "fo",
    "gu",
    "lim",
    "mo",
    "nar",
    "pe",
    "qui",
    "ros",
    "sul",
    "ti",
    "vex",
    "wo",
    "yam",
    "zel",
)
WORDS = tuple(
    first + second for first in SYLLABLES for second in SYLLABLES
)  # of no language: what greps do not find
COMMANDS = (
    "cat src/{0}.py",
    "grep -rn '{0}' src | head -20",
    "sed -i 's/{0}/{1}/' src/{1}.py",
    "python -m pytest tests",
    "git log --oneline -n 5",
    "git diff",
    "ls -la src && find . -name '{0}*.py'",
    "git log --all --oneline -- {0}",
)


def write_logs(folder: Path, samples: int, real: Path | None, seed: int = 0) -> int:
    """Write so many samples into `.eval` files; returns their size in bytes."""
    folder.mkdir(parents=True)
    runs = _copies(real) if real is not None else _made(np.random.default_rng(seed))
    numbered = enumerate(islice(runs, samples))
    count = 0
    while part := list(islice(numbered, AT_ONCE)):
        path = folder / f"2025-11-01T00-00-00+00-00_agent_{count:05d}.eval"
        _write(path, count, part)
        count += 1
    return sum(path.stat().st_size for path in folder.iterdir())


def _copies(real: Path) -> Iterator[Trajectory]:
    found = [run for run in read_logs(real) if isinstance(run, Trajectory)]
    for copy in range(1 << 30):
        for run in found:
            steps = tuple(
                step.model_copy(update={"text": step.text.replace("/testbed", f"/testbed{copy}")})
                for step in run.steps
            )
            yield run.model_copy(update={"steps": steps, "task": f"{run.task}-{copy}"})


def _made(rng: np.random.Generator) -> Iterator[Trajectory]:
    """Runs of a shell agent: each of `TURNS` turns a thought with a command,
    then `LINES` lines that came back.
    """
    number = 0
    while True:
        steps = [
            Step(role="user", text="Fix the failing test. Reply with exactly one ```bash block.")
        ]
        for _ in range(TURNS):
            said, about = (
                " ".join(rng.choice(WORDS, 30)),
                [f"{rng.choice(WORDS)}_{rng.integers(50)}" for _ in range(2)],
            )
            command = str(rng.choice(COMMANDS)).format(*about)
            shown = "\n".join(f"{at:4d}  {' '.join(rng.choice(WORDS, 9))}" for at in range(LINES))
            steps += [
                Step(role="assistant", text=f"THOUGHT: {said}\n\n```bash\n{command}\n```"),
                Step(role="user", text=f"<returncode>0</returncode>\n<output>\n{shown}\n</output>"),
            ]
        yield Trajectory(
            id=str(number),
            task=f"task-{number // 4}",
            policy="agent",
            environment="agent",
            seed=0,
            steps=tuple(steps),
            outcome=float(rng.random() < 0.5),
            submission="",
            end="terminated",
        )
        number += 1


def _write(path: Path, number: int, runs: Sequence[tuple[int, Trajectory]]) -> None:
    header = _header(number, len(runs))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        start = {"version": 2, "eval": header["eval"], "plan": header["plan"]}
        archive.writestr("_journal/start.json", json.dumps(start))
        summaries = []
        for place, run in runs:
            sample = _sample(place, run)
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
            named = {
                key: sample[key]
                for key in ("id", "epoch", "input", "target", "uuid", "model_usage", "metadata")
            }
            scores = {"score": {"value": sample["scores"]["score"]["value"]}}
            summaries.append(
                {
                    **named,
                    "scores": scores,
                    "completed": True,
                    "message_count": len(sample["messages"]),
                }
            )
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(header))


def _header(number: int, samples: int) -> dict[str, Any]:
    evaluation = {
        "eval_id": f"eval{number}",
        "run_id": f"run{number}",
        "created": STARTED,
        "task": "agent",
        "task_id": f"task{number}",
        "task_version": 0,
        "task_attribs": {},
        "task_args": {},
        "dataset": {"name": "agent", "samples": samples, "shuffled": False},
        "model": "openai/agent",
        "model_args": {},
        "config": {"epochs": 1},
        "packages": {"inspect_ai": "0.3.285"},
        "scorers": [],
    }
    return {
        "version": 2,
        "status": "success",
        "eval": evaluation,
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {"total_samples": samples, "completed_samples": samples, "scores": []},
        "stats": {"started_at": STARTED, "completed_at": STARTED, "model_usage": {}},
    }


def _sample(number: int, run: Trajectory) -> dict[str, Any]:
    messages = [_message(number, place, step) for place, step in enumerate(run.steps)]
    last = next(
        (message for message in reversed(messages) if message["role"] == "assistant"), messages[-1]
    )
    answer = {
        "model": "agent",
        "choices": [{"message": last, "stop_reason": "stop"}],
        "completion": last["content"],
    }
    score = {
        "value": "C" if (run.outcome or 0) >= 0.5 else "I",
        "metadata": {"model_patch": run.patch},
    }
    return {
        "id": f"{run.task}-{number}",
        "epoch": 1,
        "uuid": f"sample{number}",
        "input": run.steps[0].text,
        "target": "",
        "messages": messages,
        "output": answer,
        "scores": {"score": score},
        "metadata": {},
        "store": {},
        "events": [
            _event(number, place, message)
            for place, message in enumerate(messages)
            if message["role"] == "assistant"
        ],
        "model_usage": {},
        "attachments": {},
        "message_pool": messages,
    }


def _message(number: int, place: int, step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"id": f"m{number}-{place}", "role": step.role, "content": step.text}
    if step.role == "assistant":
        message["source"] = "generate"
        message["tool_calls"] = [
            {
                "id": f"c{number}-{place}",
                "function": call.name,
                "arguments": {"text": call.arguments},
                "type": "function",
            }
            for call in step.tool_calls
        ]
    if step.role == "tool":
        message |= {"tool_call_id": f"c{number}-{place - 1}", "function": "bash"}
    return message


def _event(number: int, place: int, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "uuid": f"e{number}-{place}",
        "span_id": "agent",
        "timestamp": STARTED,
        "working_start": float(place),
        "event": "model",
        "model": "openai/agent",
        "input": [],
        "input_refs": [[0, place]],
        "tools": [],
        "tool_choice": "auto",
        "config": {},
        "completed": STARTED,
        "working_time": 1.0,
        "output": {"model": "agent", "choices": [{"message": message, "stop_reason": "stop"}]},
    }
