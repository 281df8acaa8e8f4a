"""Scored trajectories written by hand."""

from collections.abc import Sequence

import numpy as np

from forensics.policies.sampled_tokens import TokenScores
from forensics.records import Step, Trajectory
from tests.episodes import episode_of

ACTIONS = (
    1,
    3,
    5,
    7,
    9,
)  # step numbers of the actions: a prompt, then action and observation in turns


def trajectory(
    actions: Sequence[int],
    *,
    name: str = "run",
    task: str = "task",
    outcome: float | None = 1.0,
    kinds: Sequence[tuple[str, ...]] = (),
) -> Trajectory:
    """`actions`: how many tokens the policy drew in each."""
    steps = [Step(role="user", text="go", token_ids=(1,), sampled=(False,))]
    for number, count in enumerate(actions):
        steps += [
            Step(
                role="assistant",
                text="act",
                token_ids=(2,) * count,
                sampled=(True,) * count,
                kinds=kinds[number] if kinds else (),
            ),
            Step(role="tool", text="seen", token_ids=(3,), sampled=(False,)),
        ]
    return episode_of(id=name, task=task, steps=tuple(steps), outcome=outcome)


def scored(
    policy: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]] | None = None,
    *,
    unread: Sequence[int] = (),
    name: str = "run",
    task: str = "task",
    outcome: float | None = 1.0,
    kinds: Sequence[tuple[str, ...]] = (),
    **columns: Sequence[Sequence[float]],
) -> TokenScores:
    """Log-probabilities of the tokens of each action."""
    counts = [len(step) for step in policy]
    given = {"policy": policy, **({} if reference is None else {"reference": reference}), **columns}
    return TokenScores(
        trajectory=trajectory(counts, name=name, task=task, outcome=outcome, kinds=kinds),
        step=np.repeat(ACTIONS[: len(counts)], counts),
        place=np.concatenate([np.arange(c) for c in counts]),
        token=np.full(sum(counts), 2),
        unread=frozenset(unread),
        columns={
            key: np.array([v for step in value for v in step], float)
            for key, value in given.items()
        },
    )
