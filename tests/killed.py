"""Runs that are killed with `kill -9` before their n-th step, for tests of `--resume`.

`python -m tests.killed investigation OUT=N ...`: small investigations of a stranger's
world by every family of tests, each killed before it writes its n-th log (0: not at
all), one after the other. `base OUT=N`: a base of one's own, before its n-th step.
`watch OUT=N`: a watch of the checkpoints beside OUT, before the n-th time that it puts a
file in its place or has played a run. Each is a process of its own, forked once
everything is imported; exit codes are printed.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import forensics.runs.run_store
from experiments.phantom_gain.resplits import instruments
from forensics import Budget, investigate
from forensics.policies.scripted import scripted_policy
from forensics.study import run_study
from training.organisms import base_model, own_base

WATCH = "tests.training.watched_runs"
EXAMPLE = Path(__file__).parents[1] / "examples" / "guess_number"


def killed_before(what: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function, but its n-th call kills the process."""
    calls = 0

    def counting(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return what(*given, **named)

    return counting


def investigation(out: Path, number: int) -> None:
    store = forensics.runs.run_store.__dict__
    store["write_trajectories"] = killed_before(store["write_trajectories"], number)
    world = import_module("tests.strangers.b_ticket_desk")
    investigate(
        scripted_policy(world.BEFORE),
        scripted_policy(world.AFTER),
        world.World(),
        budget=Budget(tasks=20, samples=2),
        instruments=instruments(),
        out=out,
        device="cpu",
        formats=(),
        resume=out.exists(),
    )


def base(out: Path, number: int) -> None:
    sys.path.insert(0, str(EXAMPLE))
    world = import_module("guess_number").GuessNumber()
    model, own = (module.__dict__ for module in (base_model, own_base))
    own["build_environment"] = lambda name, options: world
    model["SAVED_EVERY"] = 3
    model["demonstration_loss"] = killed_before(model["demonstration_loss"], number)
    shown = out.parent / "demonstrations.jsonl"
    rows = [{"task": task, "actions": ["debug"]} for task in world.tasks("train", 6, seed=0)]
    shown.write_text("\n".join(map(json.dumps, rows)))
    study = own_base.OwnBase(environment="guess-number", demonstrations=shown, steps=8)
    run_study(study, out, resume=out.exists())


def watch(out: Path, number: int) -> None:
    """Notes in `OUT.played` which files of runs each process finished."""
    store, moment = forensics.runs.run_store.__dict__, killed_before(lambda: None, number)
    write, replace, notes = store["write_trajectories"], os.replace, Path(f"{out}.played")

    def playing(runs: Any) -> Any:
        for run in runs:
            moment()
            yield run

    def noted(path: Path, runs: Any) -> None:
        write(path, playing(runs))
        with open(notes, "a") as file:
            file.write(f"{path.relative_to(out)}\n")

    def put_in_place(*places: Any, **more: Any) -> None:
        moment()
        replace(*places, **more)

    store["write_trajectories"], os.replace = noted, put_in_place
    with open(notes, "a") as file:
        file.write("begun\n")
    import_module(WATCH).watched(out.parent / "run", folder=out)


def exit_code(what: str, out: Path, number: int) -> int:
    """Of a process that does it."""
    child = os.fork()
    if child == 0:
        RUNS[what](out, number)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


RUNS = {"investigation": investigation, "base": base, "watch": watch}

if __name__ == "__main__":
    if sys.argv[1] == "watch":
        with TemporaryDirectory() as passing:
            import_module(WATCH).trained(Path(passing), 1)
    for told in sys.argv[2:]:
        folder, _, step = told.rpartition("=")
        print(exit_code(sys.argv[1], Path(folder), int(step)), flush=True)
