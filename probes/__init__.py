"""Numbers read off a model: step grades, the KL split, linear probes.

`progress_advantage(policy, reference, trajectories)` grades every step by its
log-ratio. Names are loaded when they are first used, so that the commands of
this room start without torch.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.policies import (
        Readout as Readout,
        TokenScores as TokenScores,
        policy_ref as policy_ref,
        score_log as score_log,
        stored_scores as stored_scores,
    )
    from probes.grades.comparison import (
        compare_scores as compare_scores,
        contrast as contrast,
        failure_attribution as failure_attribution,
        shuffled_contrast as shuffled_contrast,
        table_rows as table_rows,
    )
    from probes.grades.step_grades import (
        GradedRun as GradedRun,
        StepGrade as StepGrade,
        grade as grade,
        progress_advantage as progress_advantage,
        step_rewards as step_rewards,
    )
    from probes.kl.kl_split import (
        CONDITIONAL as CONDITIONAL,
        KlTally as KlTally,
        kl_split as kl_split,
        plan_kl as plan_kl,
        split_of as split_of,
    )

__getattr__, __dir__ = lazy_names(__name__)
