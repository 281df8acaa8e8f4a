"""Runs of the start on training tasks, and their cliffs: what parts (b) and (c) rest on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics import load_policy
from forensics.progress import Progress
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from forensics.records.tables import read_trajectories, write_trajectories
from resampling import CliffConfig, LocalSampler, traces
from resampling.study import CliffStudy, RunsToContinue, StudyConfig, study_cliffs
from training import MiniRepo, checkpoint_path

START = "bundled:open-base"
TASKS, SAMPLES = 160, 2
PER_RUN = 600  # rollouts a run for search and confirmation
SETTINGS = SamplingSettings()


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The start, its runs on the training tasks of one seed, and the study of those it lost."""

    opened: RunsToContinue
    runs: tuple[Trajectory, ...]
    study: CliffStudy


def start() -> Policy:
    """The policy that everything starts from, loaded anew."""
    return load_policy(checkpoint_path(START), device="cpu")


def world() -> Environment:
    """Its world without the shortcut."""
    return MiniRepo(world="open").without("git-history")


def collect(seed: int, folder: Path, progress: Progress, delete_keep: int = 64) -> Collected:
    """Play, and look for cliffs in what was lost; what the folder holds is not
    done again.

    `delete_keep`: rollouts of each arm of delete and keep; 0 leaves that out.
    """
    policy, place = start(), world()
    path = folder / "runs.parquet"
    if not path.exists():
        write_trajectories(
            path, policy.play(place, place.tasks("train", TASKS, seed), SAMPLES, SETTINGS, seed)
        )
    runs = tuple(read_trajectories(path))
    lost = [run for run in runs if run.outcome == 0 and run.sampled_tokens]
    opened = open_lost(policy, place, lost, seed)
    config = StudyConfig(cliffs=CliffConfig(rollouts=PER_RUN * len(lost)), delete_keep=delete_keep)
    return Collected(
        opened=opened, runs=runs, study=study_cliffs(opened, folder, config, seed, progress)
    )


def open_lost(
    policy: Any, place: Environment, runs: Sequence[Trajectory], seed: int
) -> RunsToContinue:
    return RunsToContinue(
        runs=tuple(runs),
        traces=tuple(traces(policy, runs, SETTINGS)),
        policy=policy,
        environment=place,
        settings=SETTINGS,
        sampler=LocalSampler(policy, place, runs, SETTINGS, seed),
    )
