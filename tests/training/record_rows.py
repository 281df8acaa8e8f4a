"""Training rows made by hand, for tests of the record and of what reads it."""

from typing import Any

from forensics.records import TrainingRow, TrainingRun

RUN = TrainingRun(
    code="test",
    recipe={"grpo": {"steps": 3}},
    estimator={"scaling": "group", "tolerance": 0.0},
    seed=3,
    start="a" * 64,
    tokenizer="b" * 64,
    environment={"name": "mini-repo", "options": {}, "without": []},
)


def row(
    step: int, group: str = "0", sample: int = 0, reward: float | None = 1.0, **changes: Any
) -> TrainingRow:
    """Five tokens, three of them sampled."""
    fields: dict[str, Any] = {
        "task": f"task-{group}",
        "trajectory": f"{step}-{group}-{sample}",
        "token_ids": (5, 6, 7, 8, 9),
        "sampled": (False, True, True, False, True),
        "sampler_logprobs": (-0.5, -1.5, -0.25),
        "rewards": {"outcome": reward},
        "reward": reward,
        "advantage": 0.5,
        "end": "terminated",
        "outcome": reward,
        "turns": 2,
        "policy_step_first": step,
        "policy_step_last": step,
        "step_starts": (0, 1),
        "step_roles": ("user", "assistant"),
        "step_kinds": ((), ("open",)),
    }
    return TrainingRow(step=step, group=f"{step}-{group}", sample=sample, **(fields | changes))
