"""A script that only writes folders of checkpoints, and a watch of what it wrote."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from forensics import policy_from
from forensics.policies import inspect_checkpoint
from forensics.protocols import SamplingSettings
from tests.plain_words import said_plainly
from tests.training.test_live import View
from training.environments.mini_repo import MiniRepo
from training.live import AuditSettings, ForensicsCallback, read_reports
from training.live.marks import read_marks
from training.live.watcher import Until, watch_of
from training.organisms.base_model import build_model, build_tokenizer
from training.run_state import save_checkpoint

SHORT = SamplingSettings(max_turn_tokens=6, max_tokens=60)
SETTINGS = AuditSettings(every=1, tasks=6, samples=1, ceiling=1.0, tensorboard=False)
FILES = ("evidence.jsonl", "findings.jsonl", "ablation.jsonl")
OPTIONS = {"turns": "2"}
ONCE = Until(once=True)


def moved(model: Any, step: int) -> None:
    """Other weights, as an update would leave them."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(step)
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.02 * torch.randn_like(weight)


def trained(folder: Path, steps: int = 2, audits: Path | None = None) -> Path:
    """A script that writes folders: the base, then `checkpoint-N` below `run`; audited in
    process where `audits` says where to.
    """
    tokenizer = build_tokenizer()
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")
    save_checkpoint(folder / "base", policy.model, tokenizer)
    trained_for = {"name": "mini-repo", "options": OPTIONS}
    (folder / "base" / "environment.json").write_text(json.dumps(trained_for))
    view = View(policy, MiniRepo(**OPTIONS), audits, settings=SHORT, seed=5)
    callback = ForensicsCallback(SETTINGS)
    if audits:
        callback.on_start(view)
    for step in range(1, steps + 1):
        moved(policy.model, step)
        view.step = step
        save_checkpoint(folder / "run" / f"checkpoint-{step}", policy.model, tokenizer)
        if audits:
            callback.on_step_end(view, None)
    return folder / "run"


def watched(
    run: Path, until: Until = ONCE, meanwhile: Sequence[Callable[[], Any]] = (), **more: Any
) -> list[str]:
    """What a watch says. `meanwhile`: what the trainer does between two looks."""
    told: list[str] = []
    given = {"settings": SETTINGS, "sampling": SHORT, "seed": 5, "device": "cpu"} | more
    acts = iter(meanwhile)
    with watch_of(run, run.parent / "base", "mini-repo", OPTIONS, until=until, **given) as watcher:
        watcher.say = lambda line: told.append(said_plainly(line, run.parent))
        watcher.sleep = lambda seconds: next(acts)()
        watcher.watch()
    return told


def states(run: Path) -> dict[str, str]:
    return {one.checkpoint: one.state for one in read_marks(run / "watch")}


def answers(folder: Path) -> dict[str, bytes]:
    """Everything that audits measured, and the runs that they measured it with."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in FILES or path.suffix == ".parquet"
    }


def without_times(folder: Path) -> list[Any]:
    return [report.model_copy(update={"seconds": 0.0}) for report in read_reports(folder)]


def policies(run: Path) -> dict[str, str | None]:
    return {one.checkpoint: one.policy for one in read_marks(run / "watch")}


def identity(folder: Path) -> str:
    return inspect_checkpoint(folder).identity


def runs_of(folder: Path) -> dict[str, int]:
    """Runs that lie whole on the disk; played again, they are other files."""
    found = sorted(folder.rglob("[!.]*.parquet"))
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in found}
