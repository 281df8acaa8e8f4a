"""A subject: a policy that a case asks about, whatever stands behind it.

A checkpoint directory (`checkpoint`), a policy in memory (`held`), a server that scores
(`served`), or nothing but the logs of its runs (`logs`). A case holds one subject before
training and one for each training seed after it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Protocol

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
