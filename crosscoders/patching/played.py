"""The same changes while the policy acts: share of runs that use a channel, and
success, in its environment.

1. A grafted policy plays as any other. A patched one reads the whole text again
   for each token, with the other model reading it beside, so that at every
   token the site has what the other model has there (all positions).
2. Each hybrid has its own random stream, and an identity of its own.
3. A run uses a channel where an observation showed the channel's content.
   Errored runs have no outcome and do not count for success. Shares moved are
   those of `moved`, over tasks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from crosscoders.patching.moved import Direction, Readings, Resampling, Share, behaviour_moved
from crosscoders.patching.places import grafted, patched, pieces_of, recorded, require_same_shape
from crosscoders.patching.results import Change, MapConfig
from forensics.errors import UserError
from forensics.policies import policy_from
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory, content_hash


@dataclass(frozen=True, kw_only=True)
class Play:
    """What is played: `samples` runs of each of the `tasks`. `channel`: whose use is counted."""

    environment: Environment
    tasks: tuple[str, ...]
    channel: str
    samples: int = 1
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class PlayedRow:
    """One policy. `change` is `None` for the checkpoints themselves, which move
    nothing by definition.
    """

    name: str
    change: Change | None
    use: Share
    success: Share
    use_moved: Share | None
    success_moved: Share | None
    tasks: int


def played_map(
    before: Policy,
    after: Policy,
    changes: Sequence[Change],
    play: Play,
    config: MapConfig | None = None,
) -> tuple[PlayedRow, ...]:
    """Play before, after and every change. Raises `UserError` for an unknown
    place, or a patch at some positions.
    """
    config = config or MapConfig()
    known = {channel.name for channel in play.environment.channels}
    if play.channel not in known:
        raise UserError(
            f"this world has no channel '{play.channel}'; it has:"
            f" {', '.join(sorted(known)) or 'none'}"
        )
    ends = [
        _tally(_run(policy, play, name), play)
        for name, policy in (("before", before), ("after", after))
    ]
    hybrids = []
    for change in changes:
        with hybrid_policy(before, after, change) as policy:
            hybrids.append(_tally(_run(policy, play, f"{change.place} {change.direction}"), play))
    uses, wins = ([tally[:, column] for tally in (*ends, *hybrids)] for column in (0, 1))
    use, use_moved = _shares(uses, play.tasks, changes, config)
    success, success_moved = _shares(wins, play.tasks, changes, config)
    names = ["before", "after", *(f"{change.place}, {change.direction}" for change in changes)]
    whole: list[Change | None] = [None, None, *changes]
    return tuple(
        PlayedRow(
            name=names[i],
            change=whole[i],
            use=use[i],
            success=success[i],
            tasks=len(play.tasks),
            use_moved=use_moved[i - 2] if i > 1 else None,
            success_moved=success_moved[i - 2] if i > 1 else None,
        )
        for i in range(len(names))
    )


@contextmanager
def hybrid_policy(before: Policy, after: Policy, change: Change) -> Iterator[Policy]:
    """A policy that acts with the change; before and after are as they were when this closes."""
    require_same_shape(before.model, after.model)
    receiver, donor = (before, after) if change.direction == "into-before" else (after, before)
    identity = content_hash(
        [before.identity, after.identity, change.place, change.direction, change.positions]
    )
    if change.positions is None:
        with grafted(
            pieces_of(receiver.model).of(change.place), pieces_of(donor.model).of(change.place)
        ):
            yield policy_from(receiver.model, receiver.tokenizer, identity)
        return
    if change.positions != "all":
        raise UserError(
            f"episodes are played with a patch at all positions, not at {change.positions} ones"
        )
    with _beside(receiver.model, donor.model, change.place):
        # the other model reads whole texts
        yield policy_from(receiver.model, receiver.tokenizer, identity, cache_kind="none")


@contextmanager
def _beside(receiver: Any, donor: Any, site: str) -> Iterator[None]:
    """Whatever the receiver reads, the donor reads first, and what it has at the site is put in."""
    passed: dict[str, torch.Tensor] = {}

    def read_too(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tokens = args[0] if args else kwargs["input_ids"]
        with recorded(donor, [site]) as seen:
            donor(tokens.to(donor.device), use_cache=False, logits_to_keep=1)
        passed.update(seen)

    handle = receiver.register_forward_pre_hook(read_too, with_kwargs=True)
    try:
        with patched(receiver, site, passed, slice(None)):
            yield
    finally:
        handle.remove()


def _run(policy: Policy, play: Play, stream: str) -> Iterator[Trajectory]:
    seed = int(content_hash([play.seed, stream], 12), 16)
    return policy.play(play.environment, play.tasks, play.samples, play.settings, seed)


def _tally(runs: Iterator[Trajectory], play: Play) -> np.ndarray:
    """`[tasks, 2]`: share of a task's runs that use the channel, and their mean
    outcome (NaN where none has one).
    """
    uses: dict[str, list[float]] = {task: [] for task in play.tasks}
    outcomes: dict[str, list[float]] = {task: [] for task in play.tasks}
    for run in runs:
        uses[run.task].append(float(any(play.channel in step.channels for step in run.steps)))
        outcomes[run.task] += [] if run.outcome is None else [run.outcome]
    rows = [[_mean(uses[task]), _mean(outcomes[task])] for task in play.tasks]
    return np.array(rows, dtype=float)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _shares(
    tallies: Sequence[np.ndarray],
    tasks: Sequence[str],
    changes: Sequence[Change],
    config: MapConfig,
) -> tuple[list[Share], list[Share]]:
    """Of every policy, and what each change moves, over the tasks that all of
    them have a value for.
    """
    values = np.stack(tallies)
    kept = np.isfinite(values).all(axis=0)
    if not kept.any():
        nothing = Share(estimate=None, reason="no task has an outcome under every policy")
        return [nothing] * len(values), [nothing] * len(changes)
    values, names = (
        values[:, kept],
        tuple(task for task, there in zip(tasks, kept, strict=True) if there),
    )
    resampling = Resampling(names, draws=config.draws, seed=config.seed, level=config.level)
    empty = np.zeros((len(changes), 2, len(names)))
    readings = Readings(
        tasks=names,
        between=np.zeros((2, len(names))),
        hybrid_kl=empty,
        chance=values[:2],
        hybrid_chance=values[2:],
    )
    directions: list[Direction] = [change.direction for change in changes]
    return resampling.means(values), behaviour_moved(readings, directions, resampling)
