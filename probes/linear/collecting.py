"""Activations at the tokens that a question asks about, and at no others.

1. Each run is laid out as one text; a step's deciding token is the one before the first that the policy drew there.
2. Texts are cut behind their last deciding token and read some at a time, those of like length together, padded on
   the right: in a causal model nothing behind a position reaches it, so the padding changes nothing.
3. A hook at each site keeps the asked positions alone, so memory grows with the number of questions, never with
   the length of runs.

A log without token ids is tokenised again in the policy's rendering. A step whose deciding token lies before the text
that fits is counted as unread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.room import positions
from forensics.policies.sites import attach
from forensics.records import Trajectory
from probes.linear.readings import Question, Readings
from probes.scoring.layout import lay_out
from probes.scoring.retokenise import with_token_ids

WINDOW: Final = 256  # runs that are sorted by length together
TOKENS_AT_ONCE: Final = 16384
Floats = np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """One run: its text up to the last deciding token; `at`, `steps`, `turns` and `labels` of what is asked."""

    run: Trajectory
    ids: Floats
    at: Floats
    steps: Floats
    turns: Floats
    labels: Floats
    unread: int


def collect_activations(
    policy: Any, trajectories: Iterable[Trajectory], *, sites: Sequence[str], question: Question,
    progress: Callable[[int], None] = lambda done: None,
) -> Readings:
    """Activations (float32) at the deciding tokens of the steps that `question` names, in the order of the runs.

    `sites`: TransformerLens names. `progress` is told how many runs were read. Raises `UserError` for a policy that
    shows no activations, an unknown site, or runs of which no step is asked about.
    """
    if not sites:
        raise UserError("no site to read; give at least one such as blocks.0.hook_resid_post")
    if "activations" not in policy.capabilities:
        raise UserError("this policy shows no activations; give a checkpoint directory that is run here")
    runs = iter(trajectories)
    asked: list[_Asked] = []
    kept: dict[str, list[Floats]] = {site: [] for site in sites}
    while window := list(islice(runs, WINDOW)):
        part = [_ask(run, policy, question) for run in window]
        for site, rows in _read(policy, part, sites).items():
            kept[site].append(rows)
        asked += part
        progress(len(asked))
    return _readings(asked, kept)


def _ask(run: Trajectory, policy: Any, question: Question) -> _Asked:
    bare = any(step.token_ids is None for step in run.steps)
    model = getattr(policy, "model", None)
    room = None if model is None else positions(model.config.to_dict())
    layout = lay_out(with_token_ids(run, policy) if bare else run, room)
    firsts = {int(step): int(layout.at[i]) - 1 for i, step in reversed(list(enumerate(layout.step)))}
    turns = {number: turn for turn, (number, _) in enumerate(run.actions)}
    wanted = list(question(run))
    found = [(firsts[step], step, turns[step], label) for step, label in wanted if firsts.get(step, -1) >= 0]
    at = np.array([row[0] for row in found], np.int64)
    return _Asked(
        run=run, ids=layout.ids[: at.max() + 1] if len(at) else layout.ids[:0], at=at,
        steps=np.array([row[1] for row in found], np.int64), turns=np.array([row[2] for row in found], float),
        labels=np.array([row[3] for row in found], bool), unread=len(wanted) - len(found),
    )


def _read(policy: Any, asked: Sequence[_Asked], sites: Sequence[str]) -> dict[str, Floats]:
    """Activations of each site `[asked positions, features]`, in the order of `asked`."""
    order = [i for i in np.argsort([len(one.ids) for one in asked], kind="stable").tolist() if len(asked[i].at)]
    found: dict[str, list[Any]] = {site: [None] * len(asked) for site in sites}
    for batch in _batches(order, asked):
        read = _forward if hasattr(policy, "model") else _through_protocol
        for site, rows in read(policy, [asked[i] for i in batch], sites).items():
            for i, one in zip(batch, rows, strict=True):
                found[site][i] = one
    parts = {site: [row for row in rows if row is not None] for site, rows in found.items()}
    return {site: np.concatenate(rows) for site, rows in parts.items() if rows}


def _batches(order: Sequence[int], asked: Sequence[_Asked]) -> Iterator[list[int]]:
    """Runs of like length, as many as fit: padded, they hold at most `TOKENS_AT_ONCE` tokens."""
    batch: list[int] = []
    for i in order:
        if batch and len(asked[i].ids) * (len(batch) + 1) > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _forward(policy: Any, batch: Sequence[_Asked], sites: Sequence[str]) -> dict[str, list[Floats]]:
    import torch

    model = policy.model
    ids = torch.zeros((len(batch), max(len(one.ids) for one in batch)), dtype=torch.long)
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.from_numpy(one.ids)
    rows = torch.repeat_interleave(torch.arange(len(batch)), torch.tensor([len(one.at) for one in batch]))
    where = torch.from_numpy(np.concatenate([one.at for one in batch]))
    seen: dict[str, Floats] = {}

    def keep(site: str) -> Callable[[Any], None]:
        def hook(activation: Any) -> None:
            seen[site] = activation[rows.to(activation.device), where.to(activation.device)].float().cpu().numpy()

        return hook

    with ExitStack() as stack, torch.inference_mode():
        for site in sites:
            stack.callback(attach(model, site, keep(site)).remove)
        model(ids.to(model.device), use_cache=False, logits_to_keep=1)
    ends = np.cumsum([len(one.at) for one in batch])[:-1]
    return {site: np.split(seen[site], ends) for site in sites}


def _through_protocol(policy: Any, batch: Sequence[_Asked], sites: Sequence[str]) -> dict[str, list[Floats]]:
    """For backends that are not a Hugging Face model: one text at a time, whole."""
    found: dict[str, list[Floats]] = {site: [] for site in sites}
    for one in batch:
        (told,) = policy.activations([one.ids.tolist()], sites)
        for site in sites:
            found[site].append(np.asarray(told[site], np.float32)[one.at])
    return found


def _readings(asked: Sequence[_Asked], kept: dict[str, list[Floats]]) -> Readings:
    if not any(len(one.at) for one in asked):
        raise UserError(f"of {len(asked)} runs no step can be read for this question; ask about steps that they have")
    steps = np.concatenate([one.steps for one in asked])
    length = np.concatenate([one.at + 1 for one in asked]).astype(float)
    return Readings(
        activations={site: np.concatenate(rows) for site, rows in kept.items()},
        labels=np.concatenate([one.labels for one in asked]),
        tasks=tuple(one.run.task for one in asked for _ in one.at),
        runs=tuple(one.run.id for one in asked for _ in one.at), steps=steps,
        prefixes=tuple(one.ids[: at + 1] for one in asked for at in one.at.tolist()),
        columns={"turn number": np.concatenate([one.turns for one in asked]), "length of the text": length},
        unread=sum(one.unread for one in asked),
    )
