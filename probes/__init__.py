"""Numbers read off a model: step grades, the KL split, linear probes.

`progress_advantage(policy, reference, trajectories)` grades every step by its
log-ratio. Names are loaded when they are first used, so that the commands of
this room start without torch.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from probes.grades.comparison import compare_scores as compare_scores
    from probes.grades.comparison import table_rows as table_rows
    from probes.grades.step_checks import contrast as contrast
    from probes.grades.step_checks import failure_attribution as failure_attribution
    from probes.grades.step_checks import shuffled_contrast as shuffled_contrast
    from probes.grades.step_grades import Aggregation as Aggregation
    from probes.grades.step_grades import GradedRun as GradedRun
    from probes.grades.step_grades import StepGrade as StepGrade
    from probes.grades.step_grades import grade as grade
    from probes.grades.step_grades import progress_advantage as progress_advantage
    from probes.grades.step_grades import step_rewards as step_rewards
    from probes.kl.kl_split import CONDITIONAL as CONDITIONAL
    from probes.kl.kl_split import KlTally as KlTally
    from probes.kl.kl_split import kl_split as kl_split
    from probes.kl.kl_split import plan_kl as plan_kl
    from probes.kl.kl_split import split_of as split_of
    from probes.linear.dictionary_alignment import alignment as alignment
    from probes.linear.probe_data import collect_activations as collect_activations
    from probes.linear.probe_data import will_succeed as will_succeed
    from probes.linear.probe_data import will_use as will_use
    from probes.linear.probe_evaluation import evaluate_probe as evaluate_probe
    from probes.linear.probe_fit import train_probe as train_probe
    from probes.scores.score_log import score_log as score_log
    from probes.scores.score_store import policy_ref as policy_ref
    from probes.scores.score_store import stored_scores as stored_scores
    from probes.scores.token_scores import Readout as Readout
    from probes.scores.token_scores import TokenScores as TokenScores

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Aggregation": "grades.step_grades",
        "CONDITIONAL": "kl.kl_split",
        "GradedRun": "grades.step_grades",
        "KlTally": "kl.kl_split",
        "Readout": "scores.token_scores",
        "StepGrade": "grades.step_grades",
        "TokenScores": "scores.token_scores",
        "alignment": "linear.dictionary_alignment",
        "collect_activations": "linear.probe_data",
        "compare_scores": "grades.comparison",
        "contrast": "grades.step_checks",
        "evaluate_probe": "linear.probe_evaluation",
        "failure_attribution": "grades.step_checks",
        "grade": "grades.step_grades",
        "kl_split": "kl.kl_split",
        "plan_kl": "kl.kl_split",
        "policy_ref": "scores.score_store",
        "progress_advantage": "grades.step_grades",
        "score_log": "scores.score_log",
        "shuffled_contrast": "grades.step_checks",
        "split_of": "kl.kl_split",
        "step_rewards": "grades.step_grades",
        "stored_scores": "scores.score_store",
        "table_rows": "grades.comparison",
        "train_probe": "linear.probe_fit",
        "will_succeed": "linear.probe_data",
        "will_use": "linear.probe_data",
    },
)
