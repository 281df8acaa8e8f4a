"""Where a policy decides, and the behaviour that is read there.

1. A *decision* is a text that ends where an action starts: its last token is
   the deciding one. Its task is the unit of independence.
2. A *behaviour* is a set of actions, each given as its tokens. Its chance at a
   decision is the probability that the policy's next tokens are one of them:
   exact under the policy at temperature 1, no episode is run again.
3. Both can be taken from trajectories: the decisions at which a run's actions
   started, the first tokens or the whole actions of a kind.

Which behaviour a diff is about (`theme_of`): the kinds of action whose use rose most, as a
contrast and as first tokens. Chosen by what the policies do, never by activations, so that the
latents' tests stay tests.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from crosscoders.latents.row_groups import Contrast, decision_contrast, outcome_contrast
from forensics.errors import UserError
from forensics.protocols import Channel
from forensics.records import Trajectory, action_starts
from forensics.statistics import mean

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """`token_ids` of a text up to and with the deciding token, and the task that it belongs to."""

    token_ids: Tokens
    task: str

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise UserError(
                f"a decision of task '{self.task}' has no tokens; give the text before the action"
            )


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """A named set of actions or of their beginnings, as token sequences of
    which none begins another.
    """

    name: str
    actions: tuple[Tokens, ...]

    def __post_init__(self) -> None:
        known = set(self.actions)
        if not known or () in known:
            raise UserError(f"the behaviour '{self.name}' needs actions of at least one token each")
        if any(action[:end] in known for action in known for end in range(1, len(action))):
            raise UserError(
                f"an action of '{self.name}' begins another one, so both would be counted; drop the"
                " longer"
            )

    @property
    def by_prefix(self) -> dict[Tokens, Tokens]:
        """All actions as `prefix -> last tokens`, the shortest prefixes first: one
        pass of the model serves each prefix.
        """
        found: dict[Tokens, list[int]] = {}
        for action in sorted(set(self.actions), key=lambda action: (len(action), action)):
            found.setdefault(action[:-1], []).append(action[-1])
        return {prefix: tuple(last) for prefix, last in found.items()}


def decisions_of(
    trajectories: Iterable[Trajectory], which: Literal["first", "all"] = "first"
) -> tuple[Decision, ...]:
    """The decisions of each run, or its first alone; equal texts of a task
    count once.

    Raises `UserError` where a run's tokens are not known.
    """
    found: dict[tuple[str, Tokens], None] = {}
    for trajectory in trajectories:
        steps = trajectory.steps
        if any(s.token_ids is None or s.sampled is None for s in steps if s.role != "system"):
            raise UserError(
                f"run {trajectory.id} has no token ids; give runs that were sampled or tokenised"
                " here"
            )
        ids = tuple(token for step in steps for token in step.token_ids or ())
        starts = action_starts(trajectory)
        for start in starts[:1] if which == "first" else starts:
            found[trajectory.task, ids[:start]] = None
    return tuple(Decision(task=task, token_ids=ids) for task, ids in found)


def starting_with(kind: str, trajectories: Iterable[Trajectory]) -> Behaviour:
    """Starting an action of a kind, told by its first token.

    Raises `UserError` where no run has the kind, or where its first token also
    starts actions of other kinds.
    """
    of_kind: set[int] = set()
    of_others: dict[int, str] = {}
    for drawn, kinds in _actions(trajectories):
        if kind in kinds[:1]:
            of_kind.add(drawn[0])
        else:
            of_others.setdefault(drawn[0], kinds[0] if kinds else "none")
    _require_any(kind, of_kind)
    if both := sorted(of_kind & set(of_others)):
        raise UserError(
            f"token {both[0]} starts actions of kind '{kind}' and of kind '{of_others[both[0]]}';"
            " take whole actions"
        )
    return Behaviour(name=f"start {kind}", actions=tuple((token,) for token in sorted(of_kind)))


def whole_actions(kind: str, trajectories: Iterable[Trajectory]) -> Behaviour:
    """Taking one of the very actions of a kind that these runs have, each as it was drawn."""
    found = {drawn for drawn, kinds in _actions(trajectories) if kind in kinds[:1]}
    _require_any(kind, found)
    shortest = [
        action
        for action in found
        if not any(action[:end] in found for end in range(1, len(action)))
    ]
    return Behaviour(name=f"whole {kind}", actions=tuple(sorted(shortest)))


def _actions(trajectories: Iterable[Trajectory]) -> Iterator[tuple[Tokens, Sequence[str]]]:
    """The sampled tokens of each action that has any, and its kinds."""
    for trajectory in trajectories:
        for _, step in trajectory.actions:
            drawn = zip(step.token_ids or (), step.sampled or (), strict=False)
            if ids := tuple(token for token, sampled in drawn if sampled):
                yield ids, step.kinds


def _require_any(kind: str, found: Collection[object]) -> None:
    if not found:
        raise UserError(
            f"no action of kind '{kind}' in these runs; name a kind that they have, or give more"
            " runs"
        )


MOST_ACTIONS = 16  # whole actions of a kind, read one by one


@dataclass(frozen=True, kw_only=True)
class Theme:
    """`kinds` of action under one `name` (a channel's attempts, or one kind),
    and the share of runs that have one.
    """

    name: str
    kinds: tuple[str, ...]
    before: float
    after: float


def theme_of(
    runs: Sequence[Trajectory],
    identities: tuple[str, str],
    channels: Sequence[Channel],
    kind: str | None = None,
) -> Theme | None:
    """The channel whose attempts rose most, else the kind whose use did; `None`
    where runs name no kinds.

    `identities`: of the before and the after policy. `kind`: take this one.
    Raises `UserError` where no run has it.
    """
    used = [
        [
            frozenset(kind for _, step in run.actions for kind in step.kinds)
            for run in runs
            if run.policy == identity
        ]
        for identity in identities
    ]
    known = sorted(set().union(*used[0], *used[1]))
    if kind is not None:
        if kind not in known:
            raise UserError(
                f"no run has an action of the kind '{kind}'; they have {', '.join(known) or 'none'}"
            )
        return _theme(kind, (kind,), used)
    by_channel = [
        _theme(channel.name, tuple(k for k in channel.attempts if k in known), used)
        for channel in channels
    ]
    for themes in (
        [one for one in by_channel if one.kinds],
        [_theme(name, (name,), used) for name in known],
    ):
        rising = [one for one in themes if one.after > one.before]
        if rising:
            return max(rising, key=lambda one: one.after - one.before)
    return None


MOST_CHANGED: Final = 6  # themes whose behaviours are read


def changed_themes(
    theme: Theme | None,
    runs: Sequence[Trajectory],
    identities: tuple[str, str],
    *,
    alone: bool = False,
) -> list[Theme]:
    """The theme, and the kinds of action whose use training surely changed, either way: the
    interval over tasks, corrected for the number of kinds, leaves 0 out. `alone`: the theme only.
    """
    if theme is None or alone:
        return [theme] if theme else []
    used: dict[str, tuple[list[frozenset[str]], list[frozenset[str]]]] = {}
    for run in runs:
        if run.policy in identities:
            kinds = frozenset(kind for _, step in run.actions for kind in step.kinds)
            used.setdefault(run.task, ([], []))[identities.index(run.policy)].append(kinds)
    paired = [sides for sides in used.values() if all(sides)]
    known = sorted(
        {kind for sides in used.values() for side in sides for run in side for kind in run}
    )
    if len(paired) < 2:
        return [theme]
    found = []
    for kind in known:
        before, after = (
            np.array([np.mean([kind in run for run in sides[side]]) for sides in paired])
            for side in (0, 1)
        )
        change = mean(after - before, reach=1.0, level=1 - 0.05 / len(known))
        if kind not in theme.kinds and (change.low > 0 or change.high < 0):
            one = Theme(
                name=kind, kinds=(kind,), before=float(before.mean()), after=float(after.mean())
            )
            found.append((-abs(change.estimate), kind, one))
    return [theme, *(one for *_, one in sorted(found)[: MOST_CHANGED - 1])]


def _theme(name: str, kinds: tuple[str, ...], used: Sequence[Sequence[frozenset[str]]]) -> Theme:
    before, after = (
        sum(not run.isdisjoint(kinds) for run in side) / max(len(side), 1) for side in used
    )
    return Theme(name=name, kinds=kinds, before=before, after=after)


def contrasts_of(theme: Theme | None, runs: Sequence[Trajectory]) -> tuple[Contrast, ...]:
    """Decisions for the theme against others first; won against lost runs where both are known."""
    outcomes = {run.outcome >= 0.5 for run in runs if run.outcome is not None}
    won = (outcome_contrast(),) if len(outcomes) == 2 else ()
    return won if theme is None else (decision_contrast(theme.kinds, theme.name), *won)


def behaviour_of(theme: Theme | None, runs: Sequence[Trajectory]) -> Behaviour | None:
    """Starting an action of the theme, by its first tokens, else by its few
    whole actions; `None`: the KL alone.
    """
    if theme is None:
        return None
    try:
        parts = [starting_with(kind, runs) for kind in theme.kinds]
        return Behaviour(
            name=f"start {theme.name}", actions=tuple(sorted({a for p in parts for a in p.actions}))
        )
    except UserError:  # a first token that other kinds have too, or a kind that never stands first
        pass
    try:
        found = whole_actions(theme.kinds[0], runs)
    except UserError:
        return None
    return found if len(found.actions) <= MOST_ACTIONS else None
