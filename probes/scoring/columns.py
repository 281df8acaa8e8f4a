"""Numbers at the positions of a pack: the distributions formed a chunk of positions at a time, read, and dropped.

1. Positions with one and the same text before them have one distribution. It is formed once.
2. Logits of a chunk become log-probabilities under the stated settings (`forensics.policies.sampling`); where nothing
   is shut out of the distribution they do so in place. So a few `[chunk, vocabulary]` arrays live at once.
3. The standard columns are taken, then every readout sees both distributions with the tokens drawn there.

Standard columns (nats): `policy`, `reference` (log-probabilities), `entropy`, `kl` (of the policy from the reference),
`self_certainty` (of the uniform distribution from the policy, 2502.18581), `top_logprob` (of the likeliest token).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from forensics.policies.sampling import Text, log_distribution
from forensics.protocols import SamplingSettings
from probes.scored import Positions, Readout
from probes.scoring.reader import Reader

CHUNK_BYTES: Final = {"cpu": 24 * 2**20, "cuda": 256 * 2**20}  # one array of log-probabilities
NO_CHANCE: Final = -1e4  # in place of log 0 where it is multiplied by probability 0
STANDARD: Final = ("policy", "reference", "entropy", "kl", "self_certainty", "top_logprob")
OF_BOTH: Final = frozenset({"reference", "kl"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Sampled positions of a pack: `node [n]` is the row of `states` that tells what may stand there.

    `positions`: their tokens and places, numpy `[n]` each. `texts`: what stands before each, where settings ask.
    """

    node: np.ndarray
    positions: Positions
    texts: Sequence[Text] | None = None


class Columns:
    """Reads columns off states of the policy and, where there is one, of the reference."""

    def __init__(
        self, policy: Reader, reference: Reader | None, settings: SamplingSettings, readouts: Sequence[Readout]
    ) -> None:
        self._readers = [policy] if reference is None else [policy, reference]
        self._same = reference is policy
        self._settings, self._readouts = settings, readouts
        self.standard = tuple(name for name in STANDARD if reference is not None or name not in OF_BOTH)
        self.names = (*self.standard, *(name for readout in readouts for name in readout.names))
        kind = policy.model.device.type
        self._chunk = max(1, CHUNK_BYTES["cpu" if kind == "cpu" else "cuda"] // (4 * policy.vocabulary))
        self._buffers: dict[str, torch.Tensor] = {}

    def read(self, states: Sequence[torch.Tensor], asked: Asked) -> np.ndarray:
        """`[n, names]`, float64. `states`: of the policy, and of the reference."""
        order = np.argsort(asked.node, kind="stable")
        found = np.empty((len(order), len(self.names)))
        for rows, here in self._parts(asked.node[order], len(states[0])):
            spreads = self._spreads(states, rows, asked, order[here])
            found[order[here]] = self._numbers(spreads, asked.node[order[here]] - rows.start, asked, order[here])
        return found

    def _parts(self, node: np.ndarray, states: int) -> Iterator[tuple[slice, slice]]:
        """Chunks of states, with the sorted positions that stand at them; never more positions than a chunk."""
        first = 0
        while first < len(node):
            start = int(node[first])
            last = int(np.searchsorted(node, start + self._chunk))
            last = min(last, first + self._chunk)
            yield slice(start, int(node[last - 1]) + 1), slice(first, last)
            first = last

    def _spreads(
        self, states: Sequence[torch.Tensor], rows: slice, asked: Asked, here: np.ndarray
    ) -> list[torch.Tensor]:
        """Log-probabilities `[rows, vocabulary]` under each reader's model."""
        readers = self._readers[:1] if self._same else self._readers
        found = [self._spread(reader, part[rows], number, asked, here)
                 for number, (reader, part) in enumerate(zip(readers, states, strict=False))]
        return found * 2 if self._same else found

    def _spread(
        self, reader: Reader, states: torch.Tensor, number: int, asked: Asked, here: np.ndarray
    ) -> torch.Tensor:
        settings = self._settings
        logits = reader.logits(states, self._buffer("logits", states, reader.vocabulary))
        if is_whole(settings):
            logits = logits.div_(settings.temperature) if settings.temperature != 1 else logits
            return torch.log_softmax(logits, -1, out=self._buffer(f"spread {number}", logits, logits.shape[-1]))
        texts = None if asked.texts is None else [asked.texts[i] for i in here]
        return log_distribution(logits, settings, texts)

    def _buffer(self, name: str, like: torch.Tensor, width: int) -> torch.Tensor:
        """Fresh arrays of this size are mapped anew each time, which on a CPU costs more than the arithmetic."""
        if name not in self._buffers or self._buffers[name].shape[-1] != width:
            self._buffers[name] = torch.empty((self._chunk, width), dtype=torch.float32, device=like.device)
        return self._buffers[name][: len(like)]

    def _numbers(
        self, spreads: list[torch.Tensor], node: np.ndarray, asked: Asked, here: np.ndarray
    ) -> np.ndarray:
        """`[positions, names]` of one chunk; `node`: the row of each position in the chunk."""
        device = spreads[0].device
        rows = torch.from_numpy(node).to(device)
        at = asked.positions
        near = Positions(**{name: torch.from_numpy(getattr(at, name)[here]).to(device)
                            for name in ("token", "trajectory", "step", "place")})
        parts = [spread[rows, near.token][:, None] for spread in spreads]
        if self._readouts:
            told = [_expanded(spread, rows) for spread in spreads]
            reference = told[1] if len(told) > 1 else None
            extra = [readout(told[0], reference, near).reshape(len(rows), -1) for readout in self._readouts]
        else:
            extra = []
        parts += [self._of_rows(spreads)[rows], *extra]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def _of_rows(self, spreads: list[torch.Tensor]) -> torch.Tensor:
        """What does not depend on the token drawn: entropy, kl, self-certainty and top log-probability `[rows, ..]`.

        Overwrites the distribution of the reference.
        """
        policy, size = spreads[0], spreads[0].shape[-1]
        top, total = policy.amax(-1), policy.sum(-1)
        if not is_whole(self._settings):
            policy = policy.clamp(min=NO_CHANCE)
        chances = torch.exp(policy, out=self._buffer("logits", policy, size))
        found = [-torch.linalg.vecdot(chances, policy)]
        if len(spreads) > 1:
            found.append(torch.zeros_like(found[0]) if self._same else self._divergence(chances, policy, spreads[1]))
        log_size = torch.log(torch.tensor(float(size), dtype=torch.float64))
        return torch.stack([*found, -(total.double() / size) - log_size.to(total.device), top], 1)

    def _divergence(self, chances: torch.Tensor, policy: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        if not is_whole(self._settings):
            return torch.where(chances > 0, chances * (policy - reference), 0.0).sum(-1)
        found: torch.Tensor = torch.linalg.vecdot(chances, reference.sub_(policy)).neg_()
        return found


def is_whole(settings: SamplingSettings) -> bool:
    """Whether every token keeps a chance, whatever stands before it."""
    cut = settings.top_k > 0 or settings.top_p < 1
    return settings.temperature > 0 and not cut and not settings.penalises


def _expanded(spread: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """One row a position."""
    if len(rows) == len(spread) and bool((rows == torch.arange(len(rows), device=rows.device)).all()):
        return spread
    return spread[rows]
