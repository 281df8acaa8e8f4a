"""Dense rewards: each step's progress advantage as a record that training can read (`forensics.records.step_reward`).

By the identity of 2606.26080 a step's advantage is `beta` times the *sum* of its log-ratios, so this is what is
written, not the length-normalised grade that runs are ranked by. `beta` is the weight of the KL term in the training
that made the policy; where it is not known, 1 leaves the reward in nats. How it is combined with the outcome is for
who trains.
"""

from typing import Final

from forensics.records import Provenance, StepRewards, Trajectory
from forensics.records.step_reward import drawn_key
from probes.grades.grading import Graded

BETA: Final = 1.0


def step_rewards(
    graded: Graded, trajectory: Trajectory, *, policy: str, reference: str, code: str = "", beta: float = BETA
) -> StepRewards:
    """The record of one run. `policy`, `reference`: identities of the two checkpoints."""
    return StepRewards(
        trajectory=graded.trajectory, task=graded.task, outcome=graded.outcome, tokens=drawn_key(trajectory),
        steps=tuple(step.step for step in graded.steps),
        rewards=tuple(None if step.ratio_sum is None else beta * step.ratio_sum for step in graded.steps),
        provenance=Provenance(instrument="grade", config={"beta": beta, "tokens": "sum"}, code=code,
                              inputs={"policy": policy, "reference": reference}),
    )
