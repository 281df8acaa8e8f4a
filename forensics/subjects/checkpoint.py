"""A checkpoint directory as a subject, run by one of the backends."""

from dataclasses import dataclass
from pathlib import Path

from forensics.policies import load_policy
from forensics.protocols import Policy
from forensics.records.case_file import Checkpoint
from forensics.subjects.subject import Role


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
