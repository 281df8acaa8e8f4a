"""A trajectory without a policy."""

from forensics.records import Step, Trajectory


def trajectory(
    task: str, outcome: float | None, sample: int = 0, end: str = "terminated"
) -> Trajectory:
    return Trajectory(
        id=f"{task}-{sample}",
        task=task,
        policy="none",
        environment="none",
        seed=0,
        sample=sample,
        outcome=outcome,
        end=end,
        steps=(
            Step(role="user", text="?", token_ids=(1, 2), sampled=(False, False), logprobs=()),
            Step(
                role="assistant",
                text="!",
                token_ids=(3, 4),
                sampled=(True, True),
                logprobs=(-0.5, -0.25),
            ),
        ),
    )
