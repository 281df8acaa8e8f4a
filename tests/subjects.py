"""Subjects of tests: whatever a function opens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forensics.case import Case
from forensics.policies.weights import identity_of_weights
from forensics.records.case_file import Checkpoint, StatedPolicy
from forensics.subjects import Role


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """`stated` as a checkpoint is; where nothing is, it goes by its weights as they are now."""

    role: Role
    load: Callable[[], Any]
    stated: Checkpoint | StatedPolicy | None = None
    capabilities = None

    @property
    def identity(self) -> str:
        return self.stated.identity if self.stated else identity_of_weights(self.load())

    def open(self) -> Any:
        return self.load()


class Known(StatedPolicy):
    """One whose identity a test sets."""

    known: str

    @property
    def identity(self) -> str:
        return self.known


def loaded(
    load: Mapping[str, Callable[[], Any]], identities: Mapping[str, str] | None = None
) -> tuple[Loaded, ...]:
    """One subject for each side's name."""
    stated = {
        side: Known(policy=side, tokenizer=None, known=name[:16])
        for side, name in (identities or {}).items()
    }
    return tuple(
        Loaded(role=Role.named(side), load=one, stated=stated.get(side))
        for side, one in load.items()
    )


def playing(case: Case, load: Mapping[str, Callable[[], Any]]) -> Case:
    """The same case with other policies behind the names of these sides."""
    subjects = tuple(
        Loaded(role=one.role, stated=one.stated, load=load.get(one.role.name, one.open))
        for one in case.subjects
    )
    return replace(case, subjects=subjects)
