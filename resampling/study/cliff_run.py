"""`forensics cliffs` as a function: what was asked, checked against what the folder holds, run, and written."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from forensics.cli.options import SAMPLING
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.records.base import content_hash
from forensics.records.files import read_json, write_json
from resampling.cliffs import CliffConfig, cliff_config
from resampling.study.logs import Choice, Which
from resampling.study.opening import Opened, Server, open_runs
from resampling.study.running import StudyConfig, study_cliffs
from resampling.study.writing import write_study

PER_RUN = 1000  # rollouts a run that search and confirmation may take unless told otherwise
ASKED = "asked.json"


@dataclass(frozen=True, kw_only=True)
class CliffRun:
    """What was asked on the command line. `runs`: `None` takes lost ones, or won ones with `rises`."""

    logs: Path
    policy: Path
    environment: str | None
    options: Mapping[str, str]
    runs: str | None
    most: int
    only: tuple[str, ...]
    without: tuple[str, ...]
    rises: bool
    delta: float
    fdr: float
    budget: int | None
    delete_keep: int
    seed: int
    settings: SamplingSettings
    device: str
    server: Server | None = None

    def choice(self) -> Choice:
        """The runs to look at. Raises `UserError` for a word that is none of lost, won, all."""
        which = self.runs or ("won" if self.rises else "lost")
        if which not in get_args(Which):
            raise UserError(f"--runs {which} is none of {', '.join(get_args(Which))}")
        return Choice(runs=which, most=self.most, only=self.only, without=self.without)  # type: ignore[arg-type]

    def cliff_config(self, runs: int) -> CliffConfig:
        return cliff_config(delta=self.delta, fdr=self.fdr, rollouts=self.budget or PER_RUN * runs)


def run_cliffs(asked: CliffRun, out: Path, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Returns what `cliffs.json` says. Raises `UserError` for bad input, and where `out` holds another study."""
    choice = asked.choice()
    asked.cliff_config(1)  # refuse a rate or a drop that has no meaning before anything is loaded
    opened = open_runs(asked.logs, choice, asked.policy, asked.environment, asked.options, asked.settings, asked.seed,
                       asked.device, asked.server)
    inputs = _inputs(asked, opened)
    _require_same(out / ASKED, inputs)
    config = StudyConfig(cliffs=asked.cliff_config(len(opened.runs)), rises=asked.rises, delete_keep=asked.delete_keep)
    study = study_cliffs(opened, out, config, asked.seed, progress)
    return write_study(out, opened, study, inputs, _replay(asked, study.report.cliffs[:1]))


def _inputs(asked: CliffRun, opened: Opened) -> dict[str, Any]:
    """What identifies the study: hashes and settings; paths are left out, since they may change."""
    return {
        "runs": [run.id for run in opened.runs], "log": content_hash([content_hash(run) for run in opened.runs]),
        "policy": opened.policy.identity, "environment": opened.environment.name,
        "options": dict(opened.environment.options), "without": list(opened.environment.scrubbed),
        "settings": opened.settings.content(), "seed": asked.seed, "rises": asked.rises, "delta": asked.delta,
        "fdr": asked.fdr, "budget": asked.budget, "delete_keep": asked.delete_keep,
    }


def _require_same(path: Path, inputs: dict[str, Any]) -> None:
    if path.exists():
        before = read_json(path)
        for key, value in inputs.items():
            if before.get(key) != value:
                raise UserError(f"{path.parent} holds a study with another {key}; give the same, or another --out")
    write_json(path, inputs)


def _replay(asked: CliffRun, found: Any) -> str:
    """The command with which a reader does the first cliff again."""
    if not found:
        return ""
    options = [part for key, value in asked.options.items() for part in ("--env-option", f"{key}={value}")]
    world = ["--env", asked.environment] if asked.environment else []
    settings = [part for name, (default, _) in SAMPLING.items() if (value := getattr(asked.settings, name)) != default
                for part in (f"--{name.replace('_', '-')}", str(value))]
    words = ["forensics", "resample", str(asked.logs), "--at", f"{found[0].trace}:{found[0].token}", "--policy",
             str(asked.policy), *world, *options, *settings, "--seed", str(asked.seed + 1)]
    return shlex.join(words)
