"""Causal readings by sampling again: action ablation, potentials, cliff tokens.

`find_cliffs(traces(policy, runs, settings), LocalSampler(...))` says at which
token runs were lost; `ablate_actions(case)` through which kind of action a gain
runs. Names are loaded when they are first used, so that `import resampling`
costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resampling.ablation.ablation_run import ablate_actions
    from resampling.cliffs.cliff_search import Draws
    from resampling.cliffs.cliffs import cliff_config, find_cliffs
    from resampling.samplers.completion_server import open_server, server_logprobs
    from resampling.samplers.local_sampler import LocalSampler, traces
    from resampling.samplers.rollout_store import StoredSampler
    from resampling.samplers.run_replay import replay_run
    from resampling.samplers.server_sampler import ServerSampler
    from resampling.solvable_traces import SolvableTrace, solvable_sampler, solvable_trace
    from resampling.study.cliff_study import (
        CliffStudy,
        RunsToContinue,
        StudyConfig,
        cliff_pairs,
        study_cliffs,
        token_pair,
    )
    from resampling.study.delete_keep import DeleteKeep, DeleteKeepConfig, delete_and_keep
    from resampling.trace_rollouts import Request, Rollout, Sampler, Trace, draw_branches, trace_of

_NAMES = {
    "ablation.ablation_run": ("ablate_actions",),
    "cliffs.cliff_search": ("Draws",),
    "cliffs.cliffs": (
        "cliff_config",
        "find_cliffs",
    ),
    "samplers.completion_server": (
        "open_server",
        "server_logprobs",
    ),
    "samplers.local_sampler": (
        "LocalSampler",
        "traces",
    ),
    "samplers.rollout_store": ("StoredSampler",),
    "samplers.run_replay": ("replay_run",),
    "samplers.server_sampler": ("ServerSampler",),
    "solvable_traces": (
        "SolvableTrace",
        "solvable_sampler",
        "solvable_trace",
    ),
    "study.cliff_study": (
        "CliffStudy",
        "RunsToContinue",
        "StudyConfig",
        "cliff_pairs",
        "study_cliffs",
        "token_pair",
    ),
    "study.delete_keep": (
        "DeleteKeep",
        "DeleteKeepConfig",
        "delete_and_keep",
    ),
    "trace_rollouts": (
        "Request",
        "Rollout",
        "Sampler",
        "Trace",
        "draw_branches",
        "trace_of",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [
    "CliffStudy",
    "DeleteKeep",
    "DeleteKeepConfig",
    "Draws",
    "LocalSampler",
    "Request",
    "Rollout",
    "RunsToContinue",
    "Sampler",
    "ServerSampler",
    "SolvableTrace",
    "StoredSampler",
    "StudyConfig",
    "Trace",
    "ablate_actions",
    "cliff_config",
    "cliff_pairs",
    "delete_and_keep",
    "draw_branches",
    "find_cliffs",
    "open_server",
    "replay_run",
    "server_logprobs",
    "solvable_sampler",
    "solvable_trace",
    "study_cliffs",
    "token_pair",
    "trace_of",
    "traces",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'resampling' has no attribute '{name}'")
    return getattr(import_module(f"resampling.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
