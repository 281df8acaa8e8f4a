"""Columns of numbers read off the distributions of one or two models at sampled
positions: the standard ones, then what every readout makes of both distributions.

Positions with one and the same text before them have one distribution; it is formed
once, a chunk of positions at a time (`scorer`). Standard columns (nats): `policy`,
`reference` (log-probabilities), `entropy`, `kl` (of the policy from the reference),
`self_certainty` (of the uniform distribution from the policy, 2502.18581),
`top_logprob` (of the likeliest token).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch

from forensics.policies.distribution import Text
from forensics.policies.hidden_states import HiddenStates
from forensics.policies.output_head import LogitFormula
from forensics.policies.scorer import NO_CHANCE, Plan, Spreads, entropy, is_whole
from forensics.protocols import Policy, SamplingSettings

CHUNK_BYTES: Final = {"cpu": 24 * 2**20, "cuda": 256 * 2**20}  # one array of log-probabilities
WINDOW_POSITIONS: Final = 512  # of `distributions`
STANDARD: Final = ("policy", "reference", "entropy", "kl", "self_certainty", "top_logprob")
OF_BOTH: Final = frozenset({"reference", "kl"})


class Readout(Protocol):
    """What is taken down at each position. `names`: the columns it gives."""

    @property
    def names(self) -> Sequence[str]: ...

    def __call__(self, policy: Any, reference: Any, at: "TokenPositions") -> Any:
        """`policy` and `reference` are log-probabilities `[n, vocabulary]`
        (float32 tensors); gives `[n, names]`.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TokenPositions:
    """Some sampled positions of some trajectories, side by side: `token [n]`
    drawn there, and where each one stands.

    `trajectory [n]`: number of the trajectory in the log, `step [n]` and `place
    [n]` as in `TokenScores`.
    """

    token: Any
    trajectory: Any
    step: Any
    place: Any

    def chosen(self, rows: np.ndarray, device: torch.device) -> "TokenPositions":
        """Some of them, as tensors."""
        parts = {name: torch.from_numpy(all_[rows]) for name, all_ in vars(self).items()}
        return TokenPositions(**{name: part.to(device) for name, part in parts.items()})


class Columns:
    """Reads columns off states of the policy and, where there is one, of the reference.
    `standard`: those of the standard columns that are wanted.
    """

    def __init__(
        self,
        policy: HiddenStates,
        reference: HiddenStates | None,
        settings: SamplingSettings,
        readouts: Sequence[Readout] = (),
        standard: Sequence[str] = STANDARD,
    ) -> None:
        self._same = reference is policy
        self._settings, self._readouts = settings, readouts
        self.standard = tuple(
            name for name in standard if reference is not None or name not in OF_BOTH
        )
        self.names = (*self.standard, *(name for readout in readouts for name in readout.names))
        size = CHUNK_BYTES["cpu" if policy.device.type == "cpu" else "cuda"]
        self._chunk = max(1, size // (4 * policy.vocabulary))
        self._spreads = [_spreads(policy, settings, self._chunk)]
        if reference is not None and reference is not policy:
            self._spreads.append(_spreads(reference, settings, self._chunk, self._spreads[0]))

    def read(
        self,
        states: Sequence[torch.Tensor],
        node: np.ndarray,
        at: TokenPositions,
        texts: Sequence[Text] | None = None,
    ) -> np.ndarray:
        """`[n, names]`, float64. `states`: of the policy, and of the reference; row
        `node [n]` of them tells what may stand at each position.
        """
        order = np.argsort(node, kind="stable")
        numbers = np.empty((len(order), len(self.names)))
        for rows, part in self._parts(node[order]):
            here = order[part]
            before = None if texts is None else [texts[i] for i in here]
            found = [
                spreads.at(own[rows], before)
                for spreads, own in zip(self._spreads, states, strict=True)
            ]
            near = at.chosen(here, states[0].device)
            numbers[here] = self._numbers(
                [logprobs for _, logprobs in found], found[-1][0], node[here] - rows.start, near
            )
        return numbers

    def _parts(self, node: np.ndarray) -> Iterator[tuple[slice, slice]]:
        """Chunks of states, with the sorted positions that stand at them; never
        more positions than a chunk.
        """
        first = 0
        while first < len(node):
            start = int(node[first])
            last = int(np.searchsorted(node, start + self._chunk))
            last = min(last, first + self._chunk)
            yield slice(start, int(node[last - 1]) + 1), slice(first, last)
            first = last

    def _numbers(
        self, both: list[torch.Tensor], scratch: torch.Tensor, node: np.ndarray, at: TokenPositions
    ) -> np.ndarray:
        """`[positions, names]` of one chunk; `node`: the row of each position in the
        chunk. Overwrites `scratch`, and in the end `both`.
        """
        both = both * 2 if self._same else both
        rows = torch.from_numpy(node).to(both[0].device)
        parts = [one[rows, at.token][:, None] for one in both]
        if self._readouts:
            whole = len(rows) == len(both[0]) and np.array_equal(node, np.arange(len(node)))
            expanded = [one if whole else one[rows] for one in both]
            reference = expanded[1] if len(expanded) > 1 else None
            extra = [readout(expanded[0], reference, at) for readout in self._readouts]
        else:
            extra = []
        if len(self.standard) > len(both):
            parts.append(self._of_rows(both, scratch)[rows])
        parts += [values.reshape(len(rows), -1) for values in extra]
        return torch.cat([part.double() for part in parts], 1).cpu().numpy()

    def _of_rows(self, both: list[torch.Tensor], scratch: torch.Tensor) -> torch.Tensor:
        """What does not depend on the token drawn: entropy, kl, self-certainty
        and top log-probability `[rows, ..]`.
        """
        policy, size = both[0], both[0].shape[-1]
        top, total, whole = policy.amax(-1), policy.sum(-1), is_whole(self._settings)
        policy = policy if whole else policy.clamp(min=NO_CHANCE)
        columns = [entropy(policy, out=scratch)]  # which leaves the probabilities there
        if self._same:
            columns.append(torch.zeros_like(columns[0]))
        elif len(both) > 1 and whole:
            columns.append(torch.linalg.vecdot(scratch, both[1].sub_(policy)).neg_())
        elif len(both) > 1:
            terms = torch.where(scratch > 0, scratch * (policy - both[1]), 0.0)
            columns.append(terms.sum(-1))
        log_size = torch.log(torch.tensor(float(size), dtype=torch.float64))
        return torch.stack([*columns, -(total.double() / size) - log_size.to(total.device), top], 1)


@torch.inference_mode()  # but not while the caller has control
def distributions(
    reader: HiddenStates,
    batch: Sequence[Sequence[int]],
    settings: SamplingSettings,
    starts: Sequence[Sequence[int]],
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """What can follow the positions `start` to `end - 1` of texts of equal length:
    log-probabilities `[rows, end - start, vocabulary]`, a window of positions at a
    time. `starts`: where the actions of each start.

    A window holds until the next one is asked for.
    """
    rows, last = len(batch), len(batch[0]) - 1
    size = max(1, WINDOW_POSITIONS // rows)
    spreads = _spreads(reader, settings, size * rows)
    states = reader.whole(torch.tensor([list(row)[:last] for row in batch]).to(reader.device))
    for start in range(0, last, size):
        end = min(start + size, last)
        texts = None
        if settings.penalises:
            texts = [
                Text(ids=ids[:at], start=max((one for one in begun if one <= at), default=0))
                for ids, begun in zip(batch, starts, strict=True)
                for at in range(start + 1, end + 1)
            ]
        found = spreads.at(states[:, start:end].flatten(0, 1), texts)[1]
        yield start, end, found.view(rows, end - start, -1)


def _spreads(
    reader: HiddenStates, settings: SamplingSettings, chunk: int, like: Spreads | None = None
) -> Spreads:
    """What follows from the hidden states of a model, `chunk` positions at a time."""
    head = reader.head
    linear = head.linear if head else None
    plan = Plan(
        settings=settings,
        formula=head.formula if head else LogitFormula(),
        chunk=chunk,
        precision=linear.weight.dtype if linear else torch.float32,
    )
    shape = (chunk, reader.vocabulary)
    weight, bias = (linear.weight, linear.bias) if linear else (None, None)
    return Spreads(weight, bias, plan, shape, reader.device, like)


@torch.inference_mode()
def last_logprobs(policy: Policy, ids: torch.Tensor, keep: int) -> torch.Tensor:
    """What can follow the last `keep` positions of texts of one length, under the model's
    own distribution: log-probabilities `[rows, keep, vocabulary]`, float32. Hooks and
    weights that were exchanged in the model of a local policy act.
    """
    reader = HiddenStates(policy.model, policy.within)
    states = reader.whole(ids.to(reader.device), keep).flatten(0, 1)
    found = _spreads(reader, SamplingSettings(), len(states)).at(states)[1]
    return found.view(len(ids), keep, -1)


@dataclass(frozen=True, kw_only=True)
class TopTokens:
    """`ids`, `logprobs` `[length - 1, k]`: row i is about the token that
    follows position i, most probable first.

    Log-probabilities are nats under the sampling settings; a token that cannot
    be drawn has -inf.
    """

    ids: np.ndarray
    logprobs: np.ndarray

    def at(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """The choices for the token that stands at `position` (from 1) of the text."""
        return self.ids[position - 1], self.logprobs[position - 1]

    def entropies(self) -> np.ndarray:
        """Entropy in nats `[length - 1]` over the k tokens, renormalised among them."""
        p = np.exp(self.logprobs)
        p = p / p.sum(-1, keepdims=True)
        return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(-1))


@torch.inference_mode()
def top_tokens(
    policy: Policy,
    token_ids: Sequence[int],
    k: int,
    settings: SamplingSettings,
    starts: Sequence[int] = (),
) -> TopTokens:
    """The `k` most probable tokens (at most the vocabulary) after every token
    but the last, under a local policy.

    `starts`: where the actions start, for penalties on the output.
    """
    if len(token_ids) < 2:
        return TopTokens(ids=np.zeros((0, k), np.int64), logprobs=np.zeros((0, k), np.float32))
    parts = [
        window[0].topk(min(k, window.shape[-1]), dim=-1)
        for _, _, window in policy.distributions([token_ids], settings, [starts])
    ]
    return TopTokens(
        ids=torch.cat([part.indices for part in parts]).cpu().numpy(),
        logprobs=torch.cat([part.values for part in parts]).cpu().numpy(),
    )
