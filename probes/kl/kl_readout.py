"""What is taken down at a position besides the standard columns: KL by alternative, and
KL by class of token.

1. At a choice token, `sum over v in c of pi_after(v) log(pi_after(v) /
   pi_before(v))` for each kind c (it may be negative); 0 elsewhere. What is
   left of the position's KL is something else's, and is worked out by the tally.
2. At every position the same sum over each class of the vocabulary (numbers,
   signs, white space, control); words have what is left.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import torch

from forensics.policies import TokenPositions
from probes.kl.command_tokens import CLASSES, CommandTrie


def position_key(trajectory: Any, step: Any, place: Any) -> Any:
    """One number for a sampled token of a log: of its trajectory, its step, its
    place among the step's drawn tokens.
    """
    return (trajectory << 42) + (step << 24) + place


VERSION: Final = 1  # raised when the same lexicon gives other numbers


class KlReadout:
    """`keys [choices]`, ascending, and `nodes [choices]`: where choice tokens
    stand, and at which node of the lexicon.

    `classes [vocabulary]`: number of each token's class, or `None`.
    """

    def __init__(
        self, lexicon: CommandTrie, keys: np.ndarray, nodes: np.ndarray, classes: np.ndarray | None
    ) -> None:
        self._lexicon, self._keys, self._nodes, self.classes = lexicon, keys, nodes, classes
        self._on_device: dict[Any, Any] = {}

    @cached_property
    def names(self) -> Sequence[str]:
        kinds = tuple(f"choice {kind}" for kind in self._lexicon.kinds[:-1])
        return (
            kinds if self.classes is None else (*kinds, *(f"class {name}" for name in CLASSES[:-1]))
        )

    @cached_property
    def identity(self) -> str:
        """What its numbers depend on: the lexicon, the places of the choices, the classes."""
        digest = hashlib.sha256(
            repr((VERSION, self._lexicon.kinds, self._lexicon.choices)).encode()
        )
        parts = [self._keys, self._nodes, np.empty(0) if self.classes is None else self.classes]
        for path in self._lexicon.choices:
            parts += self._lexicon.alternatives(path)
        for part in parts:
            digest.update(repr((part.shape, part.dtype.str)).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        return f"KL by alternative and class {digest.hexdigest()}"

    def __call__(
        self, policy: torch.Tensor, reference: torch.Tensor, at: TokenPositions
    ) -> torch.Tensor:
        parts = [self._choices(policy, reference, at)]
        if self.classes is not None:
            kept = self._remembered("classes", policy, self._one_hot)
            size = min(len(kept), policy.shape[-1])
            parts.append(_terms(policy[:, :size], reference[:, :size]) @ kept[:size])
        return torch.cat(parts, 1)

    def _choices(
        self, policy: torch.Tensor, reference: torch.Tensor, at: TokenPositions
    ) -> torch.Tensor:
        """`[n, kinds]`"""
        keys = position_key(at.trajectory.long(), at.step.long(), at.place.long()).cpu().numpy()
        spot = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        hit = self._keys[spot] == keys if len(self._keys) else np.zeros(len(keys), bool)
        terms = policy.new_zeros((len(keys), len(self._lexicon.kinds) - 1))
        for node in np.unique(self._nodes[spot[hit]]) if hit.any() else ():
            rows = np.flatnonzero(hit & (self._nodes[spot] == node))
            tokens, weights = self._remembered(
                int(node), policy, lambda number=int(node): self._node(number)
            )
            where = torch.from_numpy(rows).to(policy.device)
            pair = (logprobs[where[:, None], tokens[None]] for logprobs in (policy, reference))
            terms[where] = _terms(*pair) @ weights
        return terms

    def _node(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, weights = self._lexicon.alternatives(self._lexicon.choices[number])
        return tokens, weights[:, :-1].astype(np.float32)

    def _one_hot(self) -> np.ndarray:
        assert self.classes is not None
        one_hot: np.ndarray = np.eye(len(CLASSES), dtype=np.float32)[self.classes][:, :-1]
        return one_hot

    def _remembered(self, name: Any, like: torch.Tensor, make: Any) -> Any:
        if (name, like.device) not in self._on_device:
            made = make()
            moved = [
                torch.from_numpy(part).to(like.device)
                for part in (made if isinstance(made, tuple) else (made,))
            ]
            self._on_device[name, like.device] = tuple(moved) if len(moved) > 1 else moved[0]
        return self._on_device[name, like.device]


def _terms(policy: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """`pi_after log(pi_after / pi_before)` of each token, nats; 0 where the policy never goes."""
    chances = policy.exp()
    return torch.where(chances > 0, chances * (policy - reference), 0.0)
