"""The checkpoints that a log is scored under, named by what their numbers rest on.

1. A checkpoint on disk has its content hash, and is loaded when something is missing.
2. A policy in memory is named by its weights as they are now (`forensics.policies.live`); under its own `identity` a
   live policy would have a ratio of 0 to its start everywhere.
3. A policy without weights here (a server) cannot be named so; nothing of it is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.policies.live import identity_now, weights_hash

Load = Callable[[], Any]  # a `probes.scoring.log.Scorable`


@dataclass(frozen=True, kw_only=True)
class Side:
    """A checkpoint: its content hash (`None`: nothing is kept), and how it is loaded. In memory: `side_of`."""

    identity: str | None
    load: Load


def side_of(policy: Any) -> Side:
    """A policy in memory. Its `load` raises `UserError` where the weights have changed since."""
    if getattr(policy, "model", None) is None:
        return Side(identity=None, load=lambda: policy)
    now = identity_now(policy)

    def load() -> Any:
        if identity_now(policy) != now:
            raise UserError("the weights of the policy have changed since its scores were asked for; ask again")
        return policy

    return Side(identity=now, load=load)


def side_of_case(case: Case, name: str) -> Side:
    """A side of the case. Both models are wanted at once, so only *after* is the one that the case keeps."""
    if name not in case.policies:
        raise MissingInput(f"There is no policy `{name}` to score with.", "Give its checkpoint.")
    if case.pair is None:
        return side_of(case.policies[name]())
    known = case.pair.before if name == "before" else case.pair.after[int(name.split("-")[1])]
    return Side(identity=known.identity,
                load=case.policies[name] if name == "before" else lambda: case.policy(name))


def one_policy(policy: Any, reference: Any) -> bool:
    """Whether two policies are one: their names are, and where they have weights here these are equal."""
    if policy.identity != reference.identity:
        return False
    ours, theirs = getattr(policy, "model", None), getattr(reference, "model", None)
    if ours is theirs or ours is None or theirs is None:
        return True
    return weights_hash(ours) == weights_hash(theirs)
