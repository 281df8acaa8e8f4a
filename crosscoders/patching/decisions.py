"""Where a policy decides, and the behaviour that is read there.

1. A *decision* is a text that ends where an action starts: its last token is
   the deciding one. Its task is the unit of independence.
2. A *behaviour* is a set of actions, each given as its tokens. Its chance at a
   decision is the probability that the policy's next tokens are one of them:
   exact under the policy at temperature 1, no episode is run again.
3. Both can be taken from trajectories: the decisions at which a run's actions
   started, the first tokens or the whole actions of a kind.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from forensics.errors import UserError
from forensics.records import Trajectory
from forensics.records.trajectory import action_starts

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
