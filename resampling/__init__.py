"""Causal readings by sampling again: action ablation, cliff tokens.

`find_cliffs(traces(policy, runs, settings), LocalSampler(...))` says at which
token runs were lost; `ablate_actions(case)` through which kind of action a gain
runs. Names are loaded when they are first used, so that `import resampling`
costs nothing.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from resampling.ablation.instrument import ablate_actions as ablate_actions
    from resampling.cliffs.cliff_search import CliffConfig as CliffConfig, Draws as Draws
    from resampling.cliffs.cliffs import find_cliffs as find_cliffs
    from resampling.samplers.local_sampler import LocalSampler as LocalSampler, traces as traces
    from resampling.trace_rollouts import (
        Request as Request,
        Rollout as Rollout,
        Sampler as Sampler,
        Trace as Trace,
        draw_branches as draw_branches,
        trace_of as trace_of,
    )

__getattr__, __dir__ = lazy_names(__name__)
