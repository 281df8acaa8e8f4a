"""The logs of `benchmarks.scan`: made-up `.eval` files as Inspect writes them.

Each sample has its messages, and a model event for every generation, whose
input points into the pool of messages (so Inspect condenses them). What is the
same in all of them stands in `scan_logs.json`.
"""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

AT_ONCE = 100  # samples of one file
TURNS, LINES = 30, 40
FIXED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SYLLABLES = "ba den fo gu lim mo nar pe qui ros sul ti vex wo yam zel"
WORDS = tuple(  # of no language: what greps do not find
    first + second for first in SYLLABLES.split() for second in SYLLABLES.split()
)
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


def write_logs(folder: Path, samples: int, seed: int = 0) -> int:
    """Write so many samples into `.eval` files; returns their size in bytes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for count, first in enumerate(range(0, samples, AT_ONCE)):
        numbers = range(first, min(first + AT_ONCE, samples))
        path = folder / f"2025-11-01T00-00-00+00-00_agent_{count:05d}.eval"
        _write(path, count, [_sample(number, rng) for number in numbers])
    return sum(path.stat().st_size for path in folder.iterdir())


def _write(path: Path, number: int, samples: Sequence[dict[str, Any]]) -> None:
    evaluation = FIXED["eval"] | {
        "eval_id": f"eval{number}",
        "run_id": f"run{number}",
        "task_id": f"task{number}",
        "dataset": {"name": "agent", "samples": len(samples), "shuffled": False},
    }
    counts = {"total_samples": len(samples), "completed_samples": len(samples), "scores": []}
    header = FIXED["header"] | {"eval": evaluation, "results": counts}
    start = {"version": 2, "eval": evaluation, "plan": header["plan"]}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(start))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
        archive.writestr("summaries.json", json.dumps([_summary(one) for one in samples]))
        archive.writestr("header.json", json.dumps(header))


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    kept = ("id", "epoch", "input", "target", "uuid", "model_usage", "metadata", "scores")
    length = {"completed": True, "message_count": len(sample["messages"])}
    return {key: sample[key] for key in kept} | length


def _sample(number: int, rng: np.random.Generator) -> dict[str, Any]:
    messages = [
        {"id": f"m{number}-{place}", "role": role, "content": text}
        | ({"source": "generate", "tool_calls": []} if role == "assistant" else {})
        for place, (role, text) in enumerate(_said(rng))
    ]
    won = "C" if rng.random() < 0.5 else "I"
    return FIXED["sample"] | {
        "id": f"task-{number // 4}-{number}",
        "uuid": f"sample{number}",
        "input": messages[0]["content"],
        "messages": messages,
        "output": _output(messages[-2]) | {"completion": messages[-2]["content"]},
        "scores": {"score": {"value": won}},
        "events": [
            _event(number, place, message)
            for place, message in enumerate(messages)
            if message["role"] == "assistant"
        ],
        "message_pool": messages,
    }


def _said(rng: np.random.Generator) -> list[tuple[str, str]]:
    """A shell agent: each of `TURNS` turns a thought with a command, then `LINES` lines that
    came back.
    """
    said = [("user", "Fix the failing test. Reply with exactly one ```bash block.")]
    for _ in range(TURNS):
        thought = " ".join(rng.choice(WORDS, 30))
        about = [f"{rng.choice(WORDS)}_{rng.integers(50)}" for _ in range(2)]
        command = str(rng.choice(COMMANDS)).format(*about)
        shown = "\n".join(f"{at:4d}  {' '.join(rng.choice(WORDS, 9))}" for at in range(LINES))
        said += [
            ("assistant", f"THOUGHT: {thought}\n\n```bash\n{command}\n```"),
            ("user", f"<returncode>0</returncode>\n<output>\n{shown}\n</output>"),
        ]
    return said


def _event(number: int, place: int, message: dict[str, Any]) -> dict[str, Any]:
    return FIXED["event"] | {
        "uuid": f"e{number}-{place}",
        "working_start": float(place),
        "input_refs": [[0, place]],
        "output": _output(message),
    }


def _output(message: dict[str, Any]) -> dict[str, Any]:
    return {"model": "agent", "choices": [{"message": message, "stop_reason": "stop"}]}
