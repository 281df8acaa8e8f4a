"""Which behaviour a diff is about: the kinds of action whose use rose most, as
a contrast and as first tokens.

Chosen by what the policies do, never by activations, so that the latents' tests
stay tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crosscoders.latents.row_groups import Contrast, decision_contrast, outcome_contrast
from crosscoders.patching.decisions import Behaviour, starting_with, whole_actions
from forensics.errors import UserError
from forensics.protocols import Channel
from forensics.records import Trajectory

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
