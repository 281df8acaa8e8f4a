"""A trace: one recorded run as tokens, with the probability of each under the sampler."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.errors import UserError
from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One run.

    `ids`: all token ids of the run, the prompt and the environment's words included. `positions` `[N]`: where in
    `ids` the sampled tokens stand. `steps` `[N]`: the step of the trajectory that each belongs to.
    `logprobs` `[N]`: nats under the very settings that continuations are sampled with (`pi_t = exp(logprobs[t])`).
    `outcome`: the score of the recorded run itself, which is never counted as a rollout.
    """

    id: str
    task: str
    ids: tuple[int, ...]
    positions: tuple[int, ...]
    steps: tuple[int, ...]
    logprobs: np.ndarray
    outcome: float | None

    def __len__(self) -> int:
        """N, the number of sampled tokens; prefixes are `kept` = 0 to N."""
        return len(self.positions)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The sampled tokens `[N]`."""
        return tuple(self.ids[position] for position in self.positions)

    @property
    def probabilities(self) -> np.ndarray:
        """`pi_t` `[N]`."""
        return np.asarray(np.exp(self.logprobs))

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each action starts in `ids`."""
        return tuple(p for i, p in enumerate(self.positions) if i == 0 or self.steps[i] != self.steps[i - 1])

    def prefix(self, kept: int) -> tuple[int, ...]:
        """The token ids up to the first `kept` sampled tokens.

        Where the next sampled token opens a later action, the environment's words before it are part of the prefix.
        """
        if not 0 <= kept <= len(self):
            raise ValueError(f"kept must be in 0..{len(self)}, not {kept}")
        return self.ids[: self.positions[kept]] if kept < len(self) else self.ids[: self.positions[-1] + 1]


def trace_of(trajectory: Trajectory, logprobs: Sequence[float] | None = None) -> Trace:
    """A trajectory with token ids as a trace; `logprobs` `[N]` replace the recorded ones.

    Raises `UserError` where the trajectory has no token ids or no log-probabilities.
    """
    ids: list[int] = []
    positions: list[int] = []
    steps: list[int] = []
    recorded: list[float] = []
    for number, step in enumerate(trajectory.steps):
        if step.token_ids is None or step.sampled is None:
            raise UserError(
                f"step {number} of trajectory {trajectory.id} has no token ids, so it cannot be continued; record the "
                "runs with their tokens"
            )
        positions += [len(ids) + i for i, drawn in enumerate(step.sampled) if drawn]
        steps += [number] * sum(step.sampled)
        ids += step.token_ids
        recorded += step.logprobs or ()
    scores = np.asarray(recorded if logprobs is None else logprobs, dtype=np.float64)
    if scores.shape != (len(positions),):
        raise UserError(
            f"trajectory {trajectory.id} has {len(positions)} sampled tokens and {scores.size} log-probabilities; "
            "score it under the policy that continues it"
        )
    return Trace(
        id=trajectory.id, task=trajectory.task, ids=tuple(ids), positions=tuple(positions), steps=tuple(steps),
        logprobs=scores, outcome=trajectory.outcome,
    )
