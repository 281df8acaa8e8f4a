"""Causal readings by sampling again: action ablation, potentials, cliff tokens.

`find_cliffs(traces(policy, runs, settings), LocalSampler(...))` says at which
token runs were lost; `ablate_actions(case)` through which kind of action a gain
runs. Names are loaded when they are first used, so that `import resampling`
costs nothing.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from resampling.ablation.ablation_run import ablate_actions as ablate_actions
    from resampling.cliffs.cliff_search import CliffConfig as CliffConfig
    from resampling.cliffs.cliff_search import Draws as Draws
    from resampling.cliffs.cliffs import find_cliffs as find_cliffs
    from resampling.samplers.completion_server import checkpoint_rendering as checkpoint_rendering
    from resampling.samplers.completion_server import open_server as open_server
    from resampling.samplers.local_sampler import LocalSampler as LocalSampler
    from resampling.samplers.local_sampler import traces as traces
    from resampling.samplers.ray_sampler import FromCheckpoint as FromCheckpoint
    from resampling.samplers.ray_sampler import RayConfig as RayConfig
    from resampling.samplers.ray_sampler import RaySampler as RaySampler
    from resampling.samplers.rollout_store import StoredSampler as StoredSampler
    from resampling.samplers.run_replay import replay_run as replay_run
    from resampling.samplers.server_sampler import ServerSampler as ServerSampler
    from resampling.solvable_traces import SolvableSampler as SolvableSampler
    from resampling.solvable_traces import SolvableTrace as SolvableTrace
    from resampling.solvable_traces import solvable_trace as solvable_trace
    from resampling.study.cliff_study import CliffStudy as CliffStudy
    from resampling.study.cliff_study import RunsToContinue as RunsToContinue
    from resampling.study.cliff_study import StudyConfig as StudyConfig
    from resampling.study.cliff_study import cliff_pairs as cliff_pairs
    from resampling.study.cliff_study import study_cliffs as study_cliffs
    from resampling.study.cliff_study import token_pair as token_pair
    from resampling.study.delete_keep import DeleteKeep as DeleteKeep
    from resampling.study.delete_keep import DeleteKeepConfig as DeleteKeepConfig
    from resampling.study.delete_keep import delete_and_keep as delete_and_keep
    from resampling.trace_rollouts import Request as Request
    from resampling.trace_rollouts import Rollout as Rollout
    from resampling.trace_rollouts import Sampler as Sampler
    from resampling.trace_rollouts import Trace as Trace
    from resampling.trace_rollouts import draw_branches as draw_branches
    from resampling.trace_rollouts import trace_of as trace_of

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CliffConfig": "cliffs.cliff_search",
        "CliffStudy": "study.cliff_study",
        "DeleteKeep": "study.delete_keep",
        "DeleteKeepConfig": "study.delete_keep",
        "Draws": "cliffs.cliff_search",
        "FromCheckpoint": "samplers.ray_sampler",
        "LocalSampler": "samplers.local_sampler",
        "RayConfig": "samplers.ray_sampler",
        "RaySampler": "samplers.ray_sampler",
        "Request": "trace_rollouts",
        "Rollout": "trace_rollouts",
        "RunsToContinue": "study.cliff_study",
        "Sampler": "trace_rollouts",
        "ServerSampler": "samplers.server_sampler",
        "SolvableSampler": "solvable_traces",
        "SolvableTrace": "solvable_traces",
        "StoredSampler": "samplers.rollout_store",
        "StudyConfig": "study.cliff_study",
        "Trace": "trace_rollouts",
        "ablate_actions": "ablation.ablation_run",
        "checkpoint_rendering": "samplers.completion_server",
        "cliff_pairs": "study.cliff_study",
        "delete_and_keep": "study.delete_keep",
        "draw_branches": "trace_rollouts",
        "find_cliffs": "cliffs.cliffs",
        "open_server": "samplers.completion_server",
        "replay_run": "samplers.run_replay",
        "solvable_trace": "solvable_traces",
        "study_cliffs": "study.cliff_study",
        "token_pair": "study.cliff_study",
        "trace_of": "trace_rollouts",
        "traces": "samplers.local_sampler",
    },
)
