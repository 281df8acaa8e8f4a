"""One pass over the decisions: both checkpoints and every hybrid read the same
texts, in batches of equal length.

1. Both models read a batch; their next-token distributions at the deciding
   token, and what passes the sites that hybrids need, stay in memory for this
   batch alone.
2. Each hybrid (one checkpoint with a piece of the other) reads the batch, and
   leaves three numbers a decision.
3. Whole actions are read as the text with the action's tokens behind it, once
   for each of the actions' prefixes.

No text is padded; logits are kept at the deciding token and at the action's own
tokens only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crosscoders.patching.decisions import Behaviour, Decision, Tokens
from crosscoders.patching.hybrids import (
    Pieces,
    grafted,
    part_of,
    patched,
    pieces_of,
    recorded,
)
from crosscoders.patching.moved import Readings
from crosscoders.patching.results import Change
from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.protocols import Policy

SIDES = ("before", "after")


@torch.inference_mode()
def read_decisions(
    before: Policy,
    after: Policy,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    changes: Sequence[Change],
    *,
    values_at_once: int,
    progress: Progress = silent,
) -> Readings:
    """Read every decision under both checkpoints and every hybrid that `changes`
    name. `values_at_once`: how many numbers the activations, or the logits, of a
    batch may be.

    Raises `UserError` where there is nothing to read, where a text does not fit a
    model, or where a checkpoint's logits are not finite.
    """
    models: tuple[Any, Any] = (before.model, after.model)
    # the empty prefix comes first and is always there: the KL is read at it
    prefixes: dict[Tokens, Tokens] = {(): ()} | (behaviour.by_prefix if behaviour else {})
    table, longest = models[0].get_input_embeddings(), max(map(len, prefixes))
    _require_fitting((before, after), decisions, behaviour, longest)
    pieces = [pieces_of(model) for model in models]
    number = len(decisions)
    between, kl = np.zeros((2, number)), np.zeros((len(changes), 2, number))
    chance, hybrid_chance = np.zeros((2, number)), np.zeros((len(changes), number))
    sites = {change.place for change in changes if change.positions}
    width = table.embedding_dim * max(1, len(sites))

    def rows(length: int) -> int:
        values = max((length + longest) * width, (1 + longest) * table.num_embeddings)
        return min(before.batch_rows, values_at_once // int(values))

    done = 0
    for members in _batches(decisions, rows):
        texts = torch.tensor([decisions[i].token_ids for i in members])
        for prefix, last in prefixes.items():
            more = torch.tensor(prefix, dtype=texts.dtype).expand(len(texts), -1)
            read = _read_all(models, pieces, changes, torch.cat([texts, more], 1), 1 + len(prefix))
            ends = next(read), next(read)
            chance[:, members] += [_chance(logs, prefix, last) for logs in ends]
            if not prefix:
                between[:, members] = _kl(ends[1], ends[0]), _kl(ends[0], ends[1])
            for at, logs in enumerate(read):
                hybrid_chance[at, members] += _chance(logs, prefix, last)
                if not prefix:
                    kl[at][:, members] = _kl(ends[1], logs), _kl(ends[0], logs)
        done += len(members)
        progress("reading decisions", done, number)
    return Readings(
        tasks=tuple(decision.task for decision in decisions),
        between=between,
        hybrid_kl=kl,
        chance=chance if behaviour else None,
        hybrid_chance=hybrid_chance if behaviour else None,
    )


def _read_all(
    models: tuple[Any, Any],
    pieces: Sequence[Pieces],
    changes: Sequence[Change],
    tokens: Tensor,
    keep: int,
) -> Iterator[Tensor]:
    """Log-probabilities `[rows, keep, vocabulary]` of the last `keep` positions, the
    deciding token's first: of before, of after, and of each hybrid.
    """
    receivers = [0 if change.direction == "into-before" else 1 for change in changes]
    passed = []
    for side, model in enumerate(models):
        donated = zip(changes, receivers, strict=True)
        sites = {change.place for change, to in donated if change.positions and to != side}
        with recorded(model, sorted(sites)) as seen:
            logs = _log_probabilities(model, tokens, keep)
        passed.append(seen)
        if bool(logs.isnan().any()):
            raise UserError(
                f"the {SIDES[side]} checkpoint gives logits that are not numbers; check its weights"
            )
        yield logs
    for change, to in zip(changes, receivers, strict=True):
        if change.positions:
            where = part_of(change.positions, tokens.shape[1] - keep)
            hybrid = patched(models[to], change.place, passed[1 - to], where)
        else:
            hybrid = grafted(*(pieces[side].of(change.place) for side in (to, 1 - to)))
        with hybrid:
            logs = _log_probabilities(models[to], tokens, keep)
        yield logs


def _require_fitting(
    policies: Sequence[Policy],
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    longest: int,
) -> None:
    if not decisions:
        raise UserError(
            "there is no decision to read; give at least one text that ends where an action starts"
        )
    texts = [decision.token_ids for decision in decisions]
    size = min(one.model.get_input_embeddings().num_embeddings for one in policies)
    largest = max(map(max, [*texts, *(behaviour.actions if behaviour else ())]))
    if largest >= size:
        raise UserError(
            f"token {largest} is not among the {size} of the models; give texts of their own"
            " tokenizer"
        )
    length = max(map(len, texts)) + longest
    for side, policy in zip(SIDES, policies, strict=True):
        most = policy.context_length
        if most is not None and length > most:
            raise UserError(
                f"a text of {length} tokens does not fit the {side} model's {most} positions;"
                " shorten it"
            )


def _batches(decisions: Sequence[Decision], rows: Callable[[int], int]) -> Iterator[list[int]]:
    """Indices of decisions of one length, at most `rows(length)` at a time."""
    by_length: dict[int, list[int]] = {}
    for i, decision in enumerate(decisions):
        by_length.setdefault(len(decision.token_ids), []).append(i)
    for length, members in sorted(by_length.items()):
        most = max(1, rows(length))
        yield from (members[first : first + most] for first in range(0, len(members), most))


def _log_probabilities(model: Any, tokens: Tensor, keep: int) -> Tensor:
    """Of the last `keep` positions, `[rows, keep, vocabulary]`, float32."""
    tokens = tokens.to(next(model.parameters()).device)
    logits: Tensor = model(tokens, use_cache=False, logits_to_keep=keep).logits[:, -keep:]
    return logits.float().log_softmax(-1)


def _chance(logs: Tensor, prefix: Tokens, last: Tokens) -> np.ndarray:
    """The chance `[rows]` of the prefix followed by any of the last tokens; 0
    where no behaviour was asked for.
    """
    total = logs[:, -1, list(last)].double().exp().sum(-1)
    for at, token in enumerate(prefix):
        total = total * logs[:, at, token].double().exp()
    chance: np.ndarray = total.cpu().numpy()
    return chance


def _kl(p: Tensor, q: Tensor) -> np.ndarray:
    """KL(p || q) `[rows]` in nats at the deciding token, of log-probabilities
    `[rows, positions, vocabulary]`; tokens that p excludes count nothing.
    """
    p, q = p[:, 0].double(), q[:, 0].to(p.device).double()
    terms = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q))
    divergence: np.ndarray = terms.sum(-1).clamp_min(0).cpu().numpy()
    return divergence
