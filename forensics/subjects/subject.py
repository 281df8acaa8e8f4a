"""A subject: a policy that a case asks about, whatever stands behind it.

A checkpoint directory run by one of the backends, a policy in memory, a server that scores
(`forensics.policies.server`), or nothing but the logs of its runs. A case holds one subject before
training and one for each training seed after it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from pathlib import Path
from typing import Any, Protocol

from forensics.errors import MissingInput
from forensics.policies import SAMPLES, load_policy
from forensics.policies.weights import identity_of_weights
from forensics.progress import Progress, counted
from forensics.protocols import Capability, Policy
from forensics.records.case_file import Checkpoint, StatedPolicy


@total_ordering
@dataclass(frozen=True)
class Role:
    """What a subject is in a comparison: before training (`seed` is `None`), or after it with
    the number of its training seed.
    """

    seed: int | None = None

    @property
    def phase(self) -> str:
        """`before` or `after`, whatever the training seed."""
        return "before" if self.seed is None else "after"

    @property
    def name(self) -> str:
        """`before`, `after-0`, ...: how runs, evidence and reports call it."""
        return "before" if self.seed is None else f"after-{self.seed}"

    def said(self, seeds: int) -> str:
        """In words, of so many training seeds: `after training (seed 2 of 3)`."""
        number = (
            f" (seed {self.seed + 1} of {seeds})" if self.seed is not None and seeds > 1 else ""
        )
        return f"{self.phase} training{number}"

    def __lt__(self, other: "Role") -> bool:
        return (-1 if self.seed is None else self.seed) < (-1 if other.seed is None else other.seed)

    @classmethod
    def named(cls, name: str) -> "Role":
        """The role of a name. Raises `ValueError` for any other text."""
        found = re.fullmatch(r"before|after-(\d+)", name)
        if found is None:
            raise ValueError(f"{name!r} is no subject's name; there are: before, after-0, after-1")
        return cls(int(found[1]) if found[1] else None)


BEFORE = Role()


class Subject(Protocol):
    """What every kind of subject says of itself."""

    @property
    def role(self) -> Role: ...

    @property
    def identity(self) -> str:
        """Names what plays, wherever it lies: a hash of its weights where there are any."""
        ...

    @property
    def stated(self) -> Checkpoint | StatedPolicy | None:
        """How `case.json` states it; `None` where nothing vouches for it."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability] | None:
        """What its policy can do; `None` where only the opened policy tells."""
        ...

    def open(self) -> Policy:
        """The policy, loaded now. Raises `MissingInput` where there is none."""
        ...


def opened(subjects: Sequence[Subject], progress: Progress) -> tuple[Any, ...]:
    """The policies of a pair, loaded one after the other."""
    loading = (subject.open() for subject in subjects)
    return tuple(counted(loading, progress, "loading both models", len(subjects)))


def can(subject: Subject, capability: Capability) -> bool:
    """Whether a subject may have a capability, as far as is known before it is opened."""
    return subject.capabilities is None or capability in subject.capabilities


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Its runs stand in `Case.stored`; it can neither play nor score."""

    role: Role
    stated = None
    capabilities = frozenset[Capability]()

    @property
    def identity(self) -> str:
        return f"logs of {self.role.name}"

    def open(self) -> Policy:
        raise MissingInput(
            f"There is no policy to open for `{self.role.name}`.", "Give its checkpoint."
        )


@dataclass(frozen=True, kw_only=True)
class CheckpointSubject:
    """`dtype`: the backend's own choice unless given."""

    role: Role
    stated: Checkpoint
    backend: str = "huggingface"
    device: str = "auto"
    dtype: str | None = None
    capabilities = None  # they depend on the backend

    @property
    def identity(self) -> str:
        return self.stated.identity

    def open(self) -> Policy:
        return load_policy(
            Path(self.stated.path).expanduser(),
            backend=self.backend,
            device=self.device,
            dtype=self.dtype,
            identity=self.identity,
        )


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


@dataclass(frozen=True, kw_only=True)
class ServedPolicy:
    """`url`: up to and with `/v1`; `model`: the name it is served by (`None`: the only one).
    `checkpoint`: the directory that has its tokenizer, without which it only scores. What a
    server really serves cannot be hashed, so its identity is its address.
    """

    role: Role
    url: str
    model: str | None = None
    checkpoint: Path | None = None
    stated = None

    @property
    def identity(self) -> str:
        return " ".join(("server", self.url, *filter(None, (self.model,))))

    @property
    def capabilities(self) -> frozenset[Capability]:
        scores = frozenset[Capability]({"logprobs"})
        return scores | SAMPLES if self.checkpoint else scores

    def open(self) -> Policy:
        return load_policy(self.url, backend="openai", model=self.model, checkpoint=self.checkpoint)
