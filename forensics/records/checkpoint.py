"""Checkpoints and the pair that a case compares. The hash is the identity, the path only a hint."""

from typing import Self

from pydantic import model_validator

from forensics.records.base import Record, VersionedRecord


class Checkpoint(Record):
    """A Hugging Face directory. `weights` and `tokenizer` are SHA-256 hashes of content."""

    path: str
    weights: str
    tokenizer: str
    dtype: str
    parameters: int
    training_step: int | None = None

    @property
    def identity(self) -> str:
        """Sixteen digits that name the weights wherever they lie."""
        return self.weights[:16]


class CheckpointPair(VersionedRecord):
    """One *before* and one or more *after* checkpoints (several: training seeds of one recipe)."""

    before: Checkpoint
    after: tuple[Checkpoint, ...]

    @model_validator(mode="after")
    def _same_tokenizer(self) -> Self:
        if not self.after:
            raise ValueError("a pair needs at least one after checkpoint")
        for after in self.after:
            if after.tokenizer != self.before.tokenizer:
                raise ValueError(
                    f"the tokenizers of {self.before.path} and {after.path} differ; "
                    "compare checkpoints of one model family that share a tokenizer"
                )
        return self
