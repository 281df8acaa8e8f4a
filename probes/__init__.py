"""Numbers read off a model: step grades, the KL split, linear probes.

`progress_advantage(policy, reference, trajectories)` grades every step by its
log-ratio. Names are loaded when they are first used, so that the commands of
this room start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.grades.comparison import compare_scores
    from probes.grades.step_checks import contrast, failure_attribution
    from probes.grades.step_grades import Aggregation, GradedRun, progress_advantage, step_rewards
    from probes.kl.kl_split import kl_split, plan_kl
    from probes.linear.dictionary_alignment import alignment
    from probes.linear.probe_data import collect_activations, will_succeed, will_use
    from probes.linear.probe_evaluation import evaluate_probe
    from probes.linear.probe_fit import train_probe
    from probes.scores.score_log import score_log
    from probes.scores.score_store import policy_ref, stored_scores
    from probes.scores.token_scores import Readout, TokenScores

_HOME = {
    "Aggregation": "grades.step_grades",
    "GradedRun": "grades.step_grades",
    "Readout": "scores.token_scores",
    "TokenScores": "scores.token_scores",
    "alignment": "linear.dictionary_alignment",
    "collect_activations": "linear.probe_data",
    "compare_scores": "grades.comparison",
    "contrast": "grades.step_checks",
    "evaluate_probe": "linear.probe_evaluation",
    "failure_attribution": "grades.step_checks",
    "kl_split": "kl.kl_split",
    "plan_kl": "kl.kl_split",
    "policy_ref": "scores.score_store",
    "progress_advantage": "grades.step_grades",
    "score_log": "scores.score_log",
    "step_rewards": "grades.step_grades",
    "stored_scores": "scores.score_store",
    "train_probe": "linear.probe_fit",
    "will_succeed": "linear.probe_data",
    "will_use": "linear.probe_data",
}
__all__ = [
    "Aggregation",
    "GradedRun",
    "Readout",
    "TokenScores",
    "alignment",
    "collect_activations",
    "compare_scores",
    "contrast",
    "evaluate_probe",
    "failure_attribution",
    "kl_split",
    "plan_kl",
    "policy_ref",
    "progress_advantage",
    "score_log",
    "step_rewards",
    "stored_scores",
    "train_probe",
    "will_succeed",
    "will_use",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'probes' has no attribute '{name}'")
    return getattr(import_module(f"probes.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
