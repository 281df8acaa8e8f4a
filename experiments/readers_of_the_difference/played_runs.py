"""The after model playing with an account taken out of its activations as it goes, the before
model reading along; use of the behaviour and success, beside rotations of the same account.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from crosscoders.steering.activation_edits import Change
from crosscoders.steering.interventions import Position, Seen, intervention, policy_alongside
from experiments.readers_of_the_difference.difference_readers import Reading
from experiments.readers_of_the_difference.pair_worlds import CUE, Pair
from experiments.readers_of_the_difference.teacher_forced import random_graft
from forensics.policies import policy_from
from forensics.protocols import Intervention, Policy
from forensics.records import Trajectory

Row = dict[str, Any]


def plain_play(pair: Pair, seed: int) -> Row:
    """Both models as they are."""
    return {
        "before": _scores(pair, pair.before, seed),
        "after": _scores(pair, pair.after, seed),
    }


def edited_play(
    pair: Pair, seed: int, reading: Reading, limits: Tensor, turns: Iterable[Tensor]
) -> Row:
    """`limits`: of the norms; rows beyond them stay as they are."""
    width = pair.after.model.config.hidden_size
    own = _changed(pair, seed, reading, torch.eye(width), limits, elsewhere=True)
    others = [_changed(pair, seed, reading, turn, limits) for turn in turns]
    return plain_play(pair, seed) | {"ablated": own, "rotations": others}


def answers(
    pair: Pair, seed: int, reading: Reading, limits: Tensor, turns: Iterable[Tensor]
) -> Row:
    """Success of the after model's drawn answers in one-turn tasks, with an account taken out."""
    width, tasks = pair.after.model.config.hidden_size, pair.tasks(seed)

    def success(turn: Tensor) -> float:
        edit, acting = _edited(pair, reading, turn, limits)
        return _success(pair.runs(acting, tasks, 9000 + seed, interventions=[edit]))

    return {
        "before": _success(pair.runs(pair.before, tasks, 9000 + seed)),
        "after": _success(pair.runs(pair.after, tasks, 9000 + seed)),
        "ablated": success(torch.eye(width)),
        "rotations": [success(turn) for turn in turns],
    }


def grafted_play(pair: Pair, seed: int, grafted: Any, draws: int) -> Row:
    def scores(model: Any, elsewhere: bool = False) -> Row:
        policy = policy_from(model, pair.after.tokenizer, "grafted")
        return _scores(pair, policy, seed, elsewhere=elsewhere)

    others = (random_graft(grafted, pair.after.model, draw) for draw in range(draws))
    own = scores(grafted, True)
    return plain_play(pair, seed) | {"ablated": own, "rotations": [scores(one) for one in others]}


def _changed(
    pair: Pair,
    seed: int,
    reading: Reading,
    turn: Tensor,
    limits: Tensor,
    elsewhere: bool = False,
) -> Row:
    edit, acting = _edited(pair, reading, turn, limits)
    return _scores(pair, acting, seed, elsewhere=elsewhere, interventions=[edit])


def _edited(
    pair: Pair, reading: Reading, turn: Tensor, limits: Tensor
) -> tuple[Intervention, Policy]:
    """The account, turned, taken out at every position; the after model with before beside it."""

    def amounts(own: Tensor, other: Tensor | None) -> Tensor:
        assert other is not None
        return reading.account(other, own)

    change = Change(directions=turn, amounts=amounts, mode="ablate", strength=1.0, needs_other=True)
    seen = Seen()
    edit = intervention(
        change,
        site=pair.site,
        name="account",
        position=Position(where="everywhere"),
        seen=seen,
        limit=float(limits[1]),
    )
    return edit, policy_alongside(pair.after, pair.before, pair.site, seen)


def _scores(pair: Pair, policy: Policy, seed: int, elsewhere: bool = True, **how: Any) -> Row:
    tasks = pair.tasks(seed)
    runs = pair.runs(policy, tasks, 9000 + seed, **how)
    row: Row = {"used": _used(pair, runs), "success": _success(runs)}
    if elsewhere:
        row["elsewhere"] = _success(pair.runs(policy, tasks, 9000 + seed, scrubbed=True, **how))
    return row


def _used(pair: Pair, runs: Sequence[Trajectory]) -> float | None:
    """Share of the runs (with the cue) that have the behaviour (as their first action)."""
    if pair.behaviour is None:
        return None
    some = [run for run in runs if not pair.cued or CUE.search(run.steps[0].text)]
    flags = [
        any(
            pair.behaviour in step.kinds
            for _, step in (run.actions[:1] if pair.cued else run.actions)
        )
        for run in some
    ]
    return sum(flags) / len(flags)


def _success(runs: Sequence[Trajectory]) -> float:
    return sum(run.outcome or 0.0 for run in runs) / len(runs)
