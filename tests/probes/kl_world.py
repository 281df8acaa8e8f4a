"""A world of five tokens that can be written out in full: two actions, each
`history`, `open 1` or `open notes`.

Distributions are tables drawn at random for every beginning, so every run's
probability and every KL is known. A file's name may be said twice, which is the
content that policies differ in. The readout is the real one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from forensics.policies.sampled_tokens import TokenScores
from forensics.policies.score_columns import TokenPositions
from forensics.records import Step, Trajectory
from probes.kl.kl_split import KlPlan, plan_kl
from tests.episodes import episode_of

HISTORY, OPEN, FILE, NOTES, END = range(5)
WORDS = ("history", "open", " 1", " notes", "\n")
ACTIONS = {
    (HISTORY, END): "history",
    (OPEN, FILE, END): "open-file",
    (OPEN, FILE, FILE, END): "open-file",
    (OPEN, NOTES, END): "open-notes",
    (OPEN, NOTES, FILE, END): "open-notes",
}
NEXT = {
    (): (HISTORY, OPEN),
    (HISTORY,): (END,),
    (OPEN,): (FILE, NOTES),
    (OPEN, FILE): (FILE, END),
    (OPEN, NOTES): (FILE, END),
    (OPEN, FILE, FILE): (END,),
    (OPEN, NOTES, FILE): (END,),
}
Action = tuple[int, ...]


class Words:
    """A tokenizer as far as the split needs one."""

    all_special_ids = ()

    def __len__(self) -> int:
        return len(WORDS)

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(WORDS[i] for i in ids)


@dataclass(frozen=True)
class Table:
    """A policy. `seed`: of its table."""

    seed: int
    identity, capabilities, tokenizer = "table", frozenset({"tokens"}), Words()

    def spread(self, done: tuple[Action, ...], begun: Action) -> np.ndarray:
        """Probabilities `[5]` of what comes next."""
        return _spread(self.seed, done, begun)

    def probability(self, actions: tuple[Action, ...]) -> float:
        spreads = [
            (self.spread(actions[:i], action[:k]), action[k])
            for i, action in enumerate(actions)
            for k in range(len(action))
        ]
        return float(np.prod([spread[token] for spread, token in spreads]))


@cache
def _spread(seed: int, done: tuple[Action, ...], begun: Action) -> np.ndarray:
    found = np.zeros(len(WORDS))
    key = [seed, 7, *(token + 10 * len(action) for action in done for token in action), 99, *begun]
    found[list(NEXT[begun])] = np.random.default_rng(key).dirichlet(np.ones(len(NEXT[begun])))
    return found


def run(actions: Sequence[Action], task: str = "task", name: str = "run") -> Trajectory:
    steps = [Step(role="user", text="go", token_ids=(9,), sampled=(False,))]
    for action in actions:
        text = Words().decode(action).strip()
        steps.append(
            Step(
                role="assistant",
                text=text,
                kinds=(ACTIONS[tuple(action)],),
                token_ids=tuple(action),
                sampled=(True,) * len(action),
            )
        )
        steps.append(Step(role="tool", text="ok", token_ids=(9,), sampled=(False,)))
    return episode_of(
        id=name, task=task, policy="after", environment="words", steps=tuple(steps), outcome=None
    )


def everything() -> list[tuple[Action, Action]]:
    """Every run of two actions."""
    return [(first, second) for first in ACTIONS for second in ACTIONS]


def scored(
    runs: Sequence[Trajectory], after: Table, before: Table, plan: KlPlan
) -> Iterator[TokenScores]:
    """What the scorer would say."""
    for number, one in enumerate(runs):
        actions = tuple(step.token_ids or () for _, step in one.actions)
        spots = [
            (step, actions[:i], actions[i][:k], actions[i][k])
            for i, (step, _) in enumerate(one.actions)
            for k in range(len(actions[i]))
        ]
        ours = np.array([after.spread(done, begun) for _, done, begun, _ in spots])
        theirs = np.array([before.spread(done, begun) for _, done, begun, _ in spots])
        token = np.array([spot[3] for spot in spots])
        step = np.array([spot[0] for spot in spots])
        place = np.array([len(spot[2]) for spot in spots])
        at = TokenPositions(
            token=torch.tensor(token),
            trajectory=torch.full((len(spots),), number),
            step=torch.tensor(step),
            place=torch.tensor(place),
        )
        logs = [torch.tensor(spread).log().float() for spread in (ours, theirs)]
        told = plan.readout(*logs, at).double().numpy()
        rows = np.arange(len(spots))
        ratio = np.log(np.where(ours > 0, ours, 1)) - np.log(np.where(theirs > 0, theirs, 1))
        columns = {
            "policy": np.log(ours[rows, token]),
            "reference": np.log(theirs[rows, token]),
            "kl": (ours * ratio).sum(1),
            **dict(zip(plan.readout.names, told.T, strict=True)),
        }
        yield TokenScores(trajectory=one, step=step, place=place, token=token, columns=columns)


def plan_of(runs: Sequence[Trajectory], after: Table) -> KlPlan:
    return plan_kl(runs, after)
