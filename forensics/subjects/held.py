"""A policy in memory as a subject."""

from dataclasses import dataclass

from forensics.policies.weights import identity_of_weights
from forensics.protocols import Capability, Policy
from forensics.records.case_file import Checkpoint, StatedPolicy
from forensics.subjects.subject import Role


@dataclass(frozen=True, kw_only=True)
class HeldPolicy:
    """`stated`: what it was when the case began; where nothing is stated, its identity follows
    its weights as they are now.
    """

    role: Role
    policy: Policy
    stated: Checkpoint | StatedPolicy | None = None

    @property
    def identity(self) -> str:
        return self.stated.identity if self.stated else identity_of_weights(self.policy)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self.policy.capabilities

    def open(self) -> Policy:
        return self.policy


def held_subjects(before: Policy | None, *afters: Policy) -> tuple[HeldPolicy, ...]:
    """Policies in memory as the subjects of a case."""
    first = () if before is None else (HeldPolicy(role=Role(), policy=before),)
    return (
        *first,
        *(HeldPolicy(role=Role(seed), policy=after) for seed, after in enumerate(afters)),
    )
