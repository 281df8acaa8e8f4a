"""Lending a model that is being trained to an audit, and giving it back as it was.

`HuggingFacePolicy` puts its model into evaluation mode and may switch the attention function; a trainer's own
generation would then round differently. Everything that an audit could leave behind is put back: the mode of every
module, the attention function, and the random state of torch (the CPU's and the model's
device's), numpy and Python.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from forensics.errors import MissingInput
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.policies.rendering import Rendering
from forensics.protocols import Constraint, Environment, Intervention, SamplingSettings
from forensics.records import Trajectory, content_hash


@contextmanager
def lent(
    model: Any, tokenizer: Any, identity: str, rendering: Rendering | None = None
) -> Iterator[HuggingFacePolicy]:
    """A policy around the live `model`, which is as it was when the block ends."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    attention = getattr(model.config, "_attn_implementation", None)
    draws, shuffle = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            yield HuggingFacePolicy(model, tokenizer, identity, rendering)
    finally:
        random.setstate(draws)
        np.random.set_state(shuffle)  # noqa: NPY002
        if attention != getattr(model.config, "_attn_implementation", None):
            model.set_attn_implementation(attention)
        for module, training in modes:
            module.training = training


@dataclass(frozen=True, kw_only=True)
class AuditedPolicy:
    """A lent policy that plays the two worlds of an audit, on random streams of its own for every `step`.

    Two audits of equal weights share no noise, and neither does the start with any of them.
    """

    policy: HuggingFacePolicy
    step: int
    scrubbed: tuple[str, ...]
    capabilities = frozenset({"play"})

    @property
    def identity(self) -> str:
        return self.policy.identity

    def play(
        self, environment: Environment, tasks: Sequence[str], samples: int, settings: SamplingSettings, seed: int,
        constraint: Constraint | None = None, interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Episodes in the open or the fully scrubbed world; any other raises `MissingInput`."""
        if environment.scrubbed not in ((), self.scrubbed) or constraint is not None or interventions:
            raise MissingInput(
                "An audit plays the open and the fully scrubbed world alone.",
                "Save this checkpoint and the start, and run `forensics investigate` on them.",
            )
        stream = int(content_hash(["audit", seed, self.step], 15), 16)
        return self.policy.play(environment, tasks, samples, settings, stream)
