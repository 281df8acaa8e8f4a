"""Linear probes: what a step or a run will do, read off activations, held against what the text alone tells.

    readings = collect_activations(policy, runs, sites=["blocks.1.hook_resid_post"], question=will_use(("history",)))
    found = evaluate_probe(readings)            # held-out tasks; text baselines and shuffled labels beside it
    probe = train_probe(readings.activations["blocks.1.hook_resid_post"], readings.labels)
    told = alignment(probe.direction, decoders, null_directions(readings, "blocks.1.hook_resid_post", 99))

Light at import: torch is loaded when activations are collected.
"""

from typing import TYPE_CHECKING, Any

from probes.linear.evaluating import Evaluation, ProbeConfig, evaluate_probe, null_directions
from probes.linear.fitting import Alignment, LinearProbe, alignment, train_probe
from probes.linear.readings import Question, Readings, will_succeed, will_use

if TYPE_CHECKING:
    from probes.linear.collecting import collect_activations

__all__ = [
    "Alignment", "Evaluation", "LinearProbe", "ProbeConfig", "Question", "Readings", "alignment",
    "collect_activations", "evaluate_probe", "null_directions", "train_probe", "will_succeed", "will_use",
]


def __getattr__(name: str) -> Any:
    """`collect_activations` brings torch, so it is loaded when it is asked for."""
    if name != "collect_activations":
        raise AttributeError(name)
    from probes.linear.collecting import collect_activations

    return collect_activations
