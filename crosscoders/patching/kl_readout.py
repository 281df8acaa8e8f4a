"""One pass over the decisions: both checkpoints and every hybrid read the same
texts, in batches of equal length.

1. Both models read a batch; their next-token distributions at the deciding
   token, and what passes the sites that hybrids need, stay in memory for this
   batch alone.
2. Each hybrid is made by a context (a patch or a graft), reads the batch, and
   leaves three numbers a decision.
3. Whole actions are read as the text with the action's tokens behind it, once
   for each of the actions' stems.

No text is padded; logits are kept at the deciding token and at the action's own
tokens only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crosscoders.patching.decisions import Behaviour, Decision, Tokens
from crosscoders.patching.moved import Readings
from crosscoders.patching.places import recorded
from crosscoders.patching.results import Change
from forensics.errors import UserError
from forensics.policies import require
from forensics.progress import Progress
from forensics.protocols import Policy

BEFORE, AFTER = 0, 1
Passed = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """A checkpoint with a piece of the other. `enter(passed, deciding)` makes
    it of the receiver for one batch: `passed` is what the *donor* has at
    `sites` on these tokens, `deciding` the position of the deciding token.
    """

    change: Change
    enter: Callable[[Passed, int], AbstractContextManager[None]]
    site: str | None = None

    @property
    def receiver(self) -> int:
        return BEFORE if self.change.direction == "into-before" else AFTER


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two policies. `values_at_once`: how many numbers the activations, or
    the logits, of a batch may be.
    """

    before: Policy
    after: Policy
    values_at_once: int

    def __post_init__(self) -> None:
        for side, policy in (("before", self.before), ("after", self.after)):
            require(policy, "weights", task=f"patching ({side})")

    @property
    def models(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        return self.before.model, self.after.model


@torch.inference_mode()
def read(
    pair: Pair,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    hybrids: Sequence[Hybrid],
    progress: Progress = lambda what, done, of: None,
) -> Readings:
    """Read every decision under both checkpoints and every hybrid. Raises
    `UserError` where there is nothing to read, where a text does not fit a
    model, or where a checkpoint's logits are not finite.
    """
    if not decisions:
        raise UserError(
            "there is no decision to read; give at least one text that ends where an action starts"
        )
    _require_fitting(pair, decisions, behaviour)
    number = len(decisions)
    between, kl = np.zeros((2, number)), np.zeros((len(hybrids), 2, number))
    chance, hybrid_chance = np.zeros((2, number)), np.zeros((len(hybrids), number))
    done = 0
    for members in _batches(pair, decisions, behaviour, hybrids):
        texts = torch.tensor([decisions[i].token_ids for i in members])
        for stem, last in _stems(behaviour).items():
            batch = _Batch(pair, texts, stem, last, hybrids)
            if not stem:
                between[:, members] = batch.between()
            chance[:, members] += batch.chance
            for at, hybrid in enumerate(hybrids):
                logs = batch.hybrid(hybrid)
                hybrid_chance[at, members] += batch.chance_of(logs)
                if not stem:
                    kl[at][:, members] = batch.divergence(logs)
        done += len(members)
        progress("reading decisions", done, number)
    tasks = tuple(decision.task for decision in decisions)
    if behaviour is None:
        return Readings(tasks=tasks, between=between, hybrid_kl=kl)
    return Readings(
        tasks=tasks, between=between, hybrid_kl=kl, chance=chance, hybrid_chance=hybrid_chance
    )


class _Batch:
    """Texts of one length with one stem behind them, as both checkpoints read them."""

    def __init__(
        self, pair: Pair, texts: Tensor, stem: Tokens, last: Tokens, hybrids: Sequence[Hybrid]
    ) -> None:
        self._models = pair.models
        self._stem, self._last = list(stem), list(last)
        self._deciding = texts.shape[1] - 1
        self._tokens = torch.cat(
            [texts, torch.tensor(self._stem, dtype=texts.dtype).expand(len(texts), -1)], dim=1
        )
        self._passed: list[Passed] = []
        self._logs = []
        for side, model in enumerate(self._models):
            sites = sorted(
                {hybrid.site for hybrid in hybrids if hybrid.site and hybrid.receiver != side}
            )
            with recorded(model, sites) as passed:
                logs = self._read(model)
            if bool(logs.isnan().any()):
                raise UserError(
                    f"the {('before', 'after')[side]} checkpoint gives logits that are not numbers;"
                    " check its weights"
                )
            self._passed.append(passed)
            self._logs.append(logs)
        self.chance = np.stack([self.chance_of(logs) for logs in self._logs])

    def between(self) -> np.ndarray:
        """`[2, rows]`: KL(after || before), KL(before || after)."""
        before, after = (logs[:, 0] for logs in self._logs)
        return np.stack([_kl(after, before), _kl(before, after)])

    def divergence(self, logs: Tensor) -> np.ndarray:
        """`[2, rows]`: from after and from before to what has these log-probabilities."""
        before, after = (own[:, 0] for own in self._logs)
        return np.stack([_kl(after, logs[:, 0]), _kl(before, logs[:, 0])])

    def hybrid(self, hybrid: Hybrid) -> Tensor:
        donor = AFTER if hybrid.receiver == BEFORE else BEFORE
        with hybrid.enter(self._passed[donor], self._deciding):
            return self._read(self._models[hybrid.receiver])

    def chance_of(self, logs: Tensor) -> np.ndarray:
        """The chance `[rows]` of the stem followed by any of the last tokens; 0
        where no behaviour was asked for.
        """
        total = logs[:, -1, self._last].double().exp().sum(-1)
        for at, token in enumerate(self._stem):
            total = total * logs[:, at, token].double().exp()
        found: np.ndarray = total.cpu().numpy()
        return found

    def _read(self, model: torch.nn.Module) -> Tensor:
        """Log-probabilities `[rows, 1 + stem, vocabulary]` from the deciding token on, float32."""
        keep = 1 + len(self._stem)
        tokens = self._tokens.to(next(model.parameters()).device)
        logits: Tensor = model(tokens, use_cache=False, logits_to_keep=keep).logits[:, -keep:]
        return logits.float().log_softmax(-1)


def _kl(p: Tensor, q: Tensor) -> np.ndarray:
    """KL(p || q) `[rows]` in nats of log-probabilities `[rows, vocabulary]`;
    tokens that p excludes count nothing.
    """
    p, q = p.double(), q.to(p.device).double()
    terms = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q))
    found: np.ndarray = terms.sum(-1).clamp_min(0).cpu().numpy()
    return found


def _stems(behaviour: Behaviour | None) -> dict[Tokens, Tokens]:
    """The empty stem comes first and is always there: the KL is read at it."""
    return {(): ()} | (behaviour.stems if behaviour else {})


def _batches(
    pair: Pair,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    hybrids: Sequence[Hybrid],
) -> Iterator[list[int]]:
    longest = max(len(stem) for stem in _stems(behaviour))
    table = _embedding(pair.before.model)
    width = table.embedding_dim * max(1, len({hybrid.site for hybrid in hybrids if hybrid.site}))
    by_length: dict[int, list[int]] = {}
    for i, decision in enumerate(decisions):
        by_length.setdefault(len(decision.token_ids), []).append(i)
    for length, members in sorted(by_length.items()):
        values = max((length + longest) * width, (1 + longest) * table.num_embeddings)
        rows = max(1, min(pair.before.batch_rows, pair.values_at_once // values))
        for first in range(0, len(members), rows):
            yield members[first : first + rows]


def _require_fitting(
    pair: Pair, decisions: Sequence[Decision], behaviour: Behaviour | None
) -> None:
    size = min(_embedding(model).num_embeddings for model in pair.models)
    largest = max(max(decision.token_ids) for decision in decisions)
    largest = max([largest, *(max(action) for action in (behaviour.actions if behaviour else ()))])
    if largest >= size:
        raise UserError(
            f"token {largest} is not among the {size} of the models; give texts of their own"
            " tokenizer"
        )
    longest = max(len(decision.token_ids) for decision in decisions) + max(
        len(stem) for stem in _stems(behaviour)
    )
    for side, policy in (("before", pair.before), ("after", pair.after)):
        room = policy.context_length
        if room is not None and longest > room:
            raise UserError(
                f"a text of {longest} tokens does not fit the {side} model's {room} positions;"
                " shorten it"
            )


def _embedding(model: Any) -> Any:
    return model.get_input_embeddings()
