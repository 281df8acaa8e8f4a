"""A run that a trainer's dump tells of, as a row of a training record: what every
format of dumps shares.
"""

from collections.abc import Callable
from typing import Any

from forensics.readers.content import Unreadable
from forensics.readers.values import prompt_of
from forensics.records import TrainingRow, Trajectory

Broken = Callable[[Unreadable], None]
Found = tuple[TrainingRow, str | None]  # a row, and the text of its prompt


def row_of(
    run: Trajectory,
    *,
    step: int,
    group: str,
    sample: int,
    reward: float | None,
    policy_steps: tuple[int | None, int | None] = (None, None),
    **told: Any,
) -> Found:
    """The row of a run. `told`: other columns that the dump has, or lacks (`None`),
    whatever the reader of its format made of them.
    """
    name = f"{step}-{group}"
    row = TrainingRow.of(
        run,
        step=step,
        group=name,
        rewards=run.rewards,
        reward=reward,
        policy_steps=policy_steps,
        **{"sample": sample, "trajectory": f"{name}-{sample}"} | told,
    )
    return row, "\n".join(text for _, text in prompt_of(run.steps))
