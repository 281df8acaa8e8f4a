"""The two policies of an audit: the one that is trained, on random streams of its own, and the
start, whose runs are stored and whose weights are gone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.errors import MissingInput
from forensics.protocols import (
    Capability,
    Constraint,
    Environment,
    Intervention,
    Policy,
    SamplingSettings,
)
from forensics.records import Checkpoint, Trajectory, content_hash
from forensics.subjects import BEFORE


@dataclass(frozen=True, kw_only=True)
class AuditedPolicy:
    """A lent policy that plays the two worlds of an audit, on random streams of
    its own for every `step`.

    Two audits of equal weights share no noise, and neither does the start with
    any of them.
    """

    policy: Policy
    step: int
    scrubbed: tuple[str, ...]
    capabilities = frozenset({"play"})

    @property
    def identity(self) -> str:
        return self.policy.identity

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Episodes in the open or the fully scrubbed world; any other raises `MissingInput`."""
        if (
            environment.scrubbed not in ((), self.scrubbed)
            or constraint is not None
            or interventions
        ):
            self._refuse()
        stream = int(content_hash(["audit", seed, self.step], 15), 16)
        return self.policy.play(environment, tasks, samples, settings, stream)

    def _refuse(self, *given: Any, **named: Any) -> Any:
        raise MissingInput(
            "An audit plays the open and the fully scrubbed world alone.",
            "Save this checkpoint and the start, and run `forensics investigate` on them.",
        )

    logprobs = sample = activations = _refuse


@dataclass(frozen=True, kw_only=True)
class PlayedStart:
    """The start as a subject: its runs in two worlds are stored, and its weights are gone."""

    stated: Checkpoint
    role = BEFORE
    capabilities = frozenset[Capability]({"play"})

    @property
    def identity(self) -> str:
        return self.stated.identity

    def open(self) -> Policy:
        raise MissingInput(
            "The start was played in the open and the fully scrubbed world alone.",
            "Save the start and this checkpoint, and run `forensics investigate` on them.",
        )
