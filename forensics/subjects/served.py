"""A server as a subject (`forensics.policies.server`)."""

from dataclasses import dataclass
from pathlib import Path

from forensics.policies import SAMPLES, load_policy
from forensics.protocols import Capability, Policy
from forensics.subjects.subject import Role


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
