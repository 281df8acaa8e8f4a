"""A subject of which nothing but logs of its runs is there."""

from dataclasses import dataclass

from forensics.errors import MissingInput
from forensics.protocols import Capability, Policy
from forensics.subjects.subject import Role


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
