"""Both checkpoints over a whole log in one streaming pass.

1. Trajectories are laid out as texts (`sampled_tokens`), a window of them at a
   time; those without token ids are tokenised again, and the scores say so.
2. The texts of a window are packed (`shared_prefixes`) and read by both models, a
   pack at a time (`hidden_states`); what is kept are the hidden states at the
   places of sampled tokens.
3. From these the columns are formed a chunk of positions at a time
   (`score_columns`), so that no array of the size `[tokens, vocabulary]` ever
   exists, whatever the log's length.

A policy that is no model on this machine (a server) is asked for its
log-probabilities instead; then `policy` and `reference` are the only columns.
Two policies of one content hash are one policy, and the ratio is exactly 0;
where the hash is that of weights which training has changed since (a live
policy), they are two.

`gap_by_depth` is the gap between what a sampler told and what a scorer finds of the same drawn
tokens, by depth of context: how many tokens stand before the token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Final

import numpy as np
import torch

from forensics.errors import UserError
from forensics.policies.distribution import Text
from forensics.policies.hidden_states import HiddenStates
from forensics.policies.kv_cache import release_memory
from forensics.policies.sampled_tokens import (
    Layout,
    TokenScores,
    drawn_tokens,
    lacks_token_ids,
    layout_of,
    require_known,
    text_layout,
    with_token_ids,
)
from forensics.policies.score_columns import Columns, Readout, TokenPositions
from forensics.policies.shared_prefixes import PackCost, PrefixPack, pack_by_prefix
from forensics.policies.weights import identify_model
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory

EDGES: Final = (0, 64, 256, 1024, 4096, 16384, inf)  # tokens of context
LEAST: Final = 1e-4  # nats; below, rounding alone may grow tenfold
LARGEST_LOG_RATIO: Final = 20.0  # nats; a ratio of half a billion


def gap_by_depth(gap: torch.Tensor, depth: torch.Tensor) -> dict[str, float]:
    """Of all tokens, then of those from each edge on (`_from_64`: up to the next edge):
    `sampler_gap`, the mean of absolute gaps (nats), and `sampler_ratio`, the mean of scored /
    told probability. A depth without tokens has no numbers.

    `gap`: scored minus told log-probability `[tokens]`, float64. `depth` `[tokens]`.
    """
    found = _numbers(gap, "")
    for low, high in pairwise(EDGES):
        found |= _numbers(gap[(depth >= low) & (depth < high)], f"_from_{low}")
    return found


def _numbers(gap: torch.Tensor, where: str) -> dict[str, float]:
    if not len(gap):
        return {}
    ratio = gap.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp().mean()
    return {f"sampler_gap{where}": float(gap.abs().mean()), f"sampler_ratio{where}": float(ratio)}


WINDOW_TOKENS: Final = 65536
WINDOW_TEXTS: Final = 1024
LOOKED_AT: Final = 16  # actions whose token ids are held against their text


def score_log(
    policy: Policy,
    reference: Policy | None,
    trajectories: Iterable[Trajectory],
    *,
    settings: SamplingSettings | None = None,
    readouts: Sequence[Readout] = (),
    most_tokens: int | None = None,
    first: int = 0,
    progress: Callable[[int], None] = lambda reached: None,
) -> Iterator[TokenScores]:
    """Each trajectory with its columns, in order.

    `reference` `None`: without the columns that need one. `settings`: the
    distribution that log-probabilities are stated under, for both (default: the
    model's own, temperature 1). `readouts`: further columns. `most_tokens`:
    read at most so many last tokens of a text (default: the positions that the
    models were made for). `first`: number of the first trajectory, as readouts
    and `progress` are told it. Raises `UserError` for checkpoints of different
    tokenizers, a log of another tokenizer, and readouts that need whole
    distributions where there are none.
    """
    settings = settings or SamplingSettings()
    policies = [policy] if reference is None else [policy, reference]
    if reference is not None:
        require_one_tokenizer(policy, reference)
    lengths = [getattr(one, "context_length", None) for one in policies]  # not every one says it
    limit = min((most for most in (most_tokens, *lengths) if most is not None), default=None)
    windows = _windows(layouts_of(policy, trajectories, limit))
    if all("weights" in one.capabilities for one in policies):
        yield from scores_by_distribution(policies, windows, settings, readouts, first, progress)
        return
    if readouts:
        raise UserError(
            "a server tells the log-probabilities of tokens and no whole distributions, which this"
            " reading needs; give the checkpoint directory"
        )
    yield from scores_by_logprobs(policies, windows, settings)


def layouts_of(
    policy: Policy, trajectories: Iterable[Trajectory], most_tokens: int | None
) -> Iterator[Layout]:
    """Every trajectory as a text; those without token ids in the policy's rendering."""
    for trajectory in require_same_spelling(policy, trajectories):
        bare = lacks_token_ids(trajectory)
        yield layout_of(
            with_token_ids(trajectory, policy) if bare else trajectory,
            most_tokens,
            retokenised=bare,
        )


def require_one_tokenizer(policy: Policy, reference: Policy) -> None:
    """Refuse two checkpoints whose tokens do not mean the same. Raises `UserError`."""
    if not {"tokens"} <= policy.capabilities & reference.capabilities:
        return
    ours, theirs = policy.tokenizer, reference.tokenizer
    if ours is not theirs and ours.get_vocab() != theirs.get_vocab():
        raise UserError(
            "policy and reference have different tokenizers, so no token has a ratio; give two"
            " checkpoints of one training run"
        )


def require_same_spelling(
    policy: Policy, trajectories: Iterable[Trajectory]
) -> Iterator[Trajectory]:
    """The trajectories as they come. Raises `UserError` when of the first
    actions with token ids none says in this tokenizer what its text says.
    """
    spells = "tokens" in policy.capabilities and policy.renderer is not None
    looked_at = other = 0
    for trajectory in trajectories:
        known = spells and not lacks_token_ids(trajectory)
        for _, step in trajectory.actions if known else ():
            if looked_at == LOOKED_AT or not step.text.strip() or not step.token_ids:
                continue
            try:
                spelled = policy.renderer.action_text(list(drawn_tokens(step)))
            except (IndexError, OverflowError, TypeError):  # ids that the tokenizer does not have
                spelled = None
            looked_at += 1
            other += spelled is None or "".join(spelled.split()) != "".join(step.text.split())
            if looked_at == other == LOOKED_AT:
                raise UserError(
                    "the log's token ids do not spell its texts in the policy's tokenizer; give the"
                    " checkpoint that made the log, or a log without token ids"
                )
        yield trajectory


def _windows(layouts: Iterable[Layout]) -> Iterator[list[Layout]]:
    window: list[Layout] = []
    tokens = 0
    for layout in layouts:
        window.append(layout)
        tokens += len(layout.ids)
        if tokens >= WINDOW_TOKENS or len(window) == WINDOW_TEXTS:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def scores_by_distribution(
    policies: Sequence[Policy],
    windows: Iterable[Sequence[Layout]],
    settings: SamplingSettings,
    readouts: Sequence[Readout],
    first: int,
    progress: Callable[[int], None],
) -> Iterator[TokenScores]:
    """Windows scored with models on this machine."""
    distinct = policies[:1] if same_weights(policies[0], policies[-1]) else policies
    readers = [HiddenStates(one.model, one.within) for one in distinct]
    if readers[-1].vocabulary != readers[0].vocabulary:
        raise UserError(
            f"the policy has {readers[0].vocabulary} tokens and the reference"
            f" {readers[-1].vocabulary}; give two checkpoints of one training run"
        )
    reference = readers[-1] if len(policies) > 1 else None
    columns = Columns(readers[0], reference, settings, readouts)
    for window in windows:
        for layout in window:
            require_known(layout, readers[0].known)
        values = read_layouts(window, readers, columns, settings, first, progress)
        for layout, rows in zip(window, values, strict=True):
            yield layout.scored(dict(zip(columns.names, rows.T, strict=True)))
        first += len(window)


@torch.inference_mode()
def read_layouts(
    layouts: Sequence[Layout],
    readers: Sequence[HiddenStates],
    columns: Columns,
    settings: SamplingSettings,
    first: int = 0,
    progress: Callable[[int], None] = lambda reached: None,
) -> list[np.ndarray]:
    """Of each text the columns of its tokens that can be read `[tokens, names]`."""
    values = [np.empty((0, len(columns.names)))] * len(layouts)
    wanted = [i for i, layout in enumerate(layouts) if layout.read.any()]
    cost = readers[0].cost if len(wanted) > 1 else PackCost()
    reached = 0
    for members, rows in _packs(wanted, layouts, readers, columns, settings, first, cost):
        for member, own in zip(members, rows, strict=True):
            values[member] = own
        reached = max(reached, *members)
        progress(first + reached)
    return values


def _packs(
    wanted: Sequence[int],
    layouts: Sequence[Layout],
    readers: Sequence[HiddenStates],
    columns: Columns,
    settings: SamplingSettings,
    first: int,
    cost: PackCost,
) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """The wanted layouts, a pack of them at a time, with their columns. A pack for which
    memory does not suffice is read as two.
    """
    texts = [layouts[i].ids[: layouts[i].at.max()] for i in wanted]
    for forest in pack_by_prefix(texts, cost):
        members = [wanted[i] for i in forest.texts]
        parts = [layouts[i] for i in members]
        try:
            rows = _read_pack(
                forest, parts, readers, columns, settings, [first + i for i in members]
            )
        except torch.OutOfMemoryError:
            if len(members) == 1:
                raise
        else:
            yield members, rows
            continue
        release_memory(readers[0].device)
        for half in (members[: len(members) // 2], members[len(members) // 2 :]):
            yield from _packs(half, layouts, readers, columns, settings, first, cost)


def _read_pack(
    forest: PrefixPack,
    parts: Sequence[Layout],
    readers: Sequence[HiddenStates],
    columns: Columns,
    settings: SamplingSettings,
    numbers: Sequence[int],
) -> list[np.ndarray]:
    """The columns of each text of a pack; `numbers`: those of the trajectories."""
    nodes = [path[one.at[one.read] - 1] for path, one in zip(forest.paths, parts, strict=True)]
    read, node = np.unique(np.concatenate(nodes), return_inverse=True)
    states = [reader.at(forest, read) for reader in readers]
    before = None
    if settings.penalises:  # then what may come depends on more than the state
        before = [Text(ids=ids, start=start) for one in parts for ids, start in one.contexts()]
        states, node = [part[node] for part in states], np.arange(len(node))
    counts = [int(one.read.sum()) for one in parts]
    token, step, place = (
        np.concatenate([getattr(one, name)[one.read] for one in parts])
        for name in ("token", "step", "place")
    )
    number = np.repeat(numbers, counts)
    at = TokenPositions(token=token, trajectory=number, step=step, place=place)
    rows = columns.read(states, node, at, before)
    return np.split(rows, np.cumsum(counts)[:-1])


def text_logprobs(
    reader: HiddenStates,
    texts: Sequence[Sequence[int]],
    settings: SamplingSettings,
    starts: Sequence[Sequence[int]] | None = None,
) -> list[np.ndarray]:
    """Log-probability of every token but the first, float32 nats `[length - 1]`."""
    layouts = [text_layout(ids, starts[i] if starts else ()) for i, ids in enumerate(texts)]
    columns = Columns(reader, None, settings, standard=("policy",))
    values = read_layouts(layouts, [reader], columns, settings)
    return [rows[:, 0].astype(np.float32) for rows in values]


def scores_by_logprobs(
    policies: Sequence[Policy], windows: Iterable[Sequence[Layout]], settings: SamplingSettings
) -> Iterator[TokenScores]:
    """Windows scored by what policies tell of their own log-probabilities."""
    for window in windows:
        columns = {"policy": _logprobs(policies[0], window, settings)}
        if len(policies) > 1:
            columns["reference"] = (
                columns["policy"]
                if same_weights(*policies)
                else _logprobs(policies[1], window, settings)
            )
        for i, layout in enumerate(window):
            yield layout.scored({name: rows[i] for name, rows in columns.items()})


def _logprobs(
    policy: Policy, window: Sequence[Layout], settings: SamplingSettings
) -> list[np.ndarray]:
    """Of each text, the log-probabilities of its tokens that can be read. A
    text is sent up to the last of them.
    """
    more: dict[str, Any] = {}
    readable = [layout for layout in window if layout.read.any()]
    if settings.penalises_output:
        more["starts"] = [layout.starts for layout in readable]
    texts = [layout.ids[: layout.at.max() + 1].tolist() for layout in readable]
    rows = iter(policy.logprobs(texts, settings, **more) if readable else ())
    return [
        (
            np.asarray(next(rows), dtype=float)[layout.at[layout.read] - 1]
            if layout.read.any()
            else np.empty(0)
        )
        for layout in window
    ]


def same_weights(policy: Policy, reference: Policy) -> bool:
    """Whether two policies are one: their names are, and where they have
    weights here these are equal.
    """
    if policy.identity != reference.identity:
        return False
    if not {"weights"} <= policy.capabilities & reference.capabilities:
        return True
    ours, theirs = policy.model, reference.model
    return ours is theirs or identify_model(ours) == identify_model(theirs)
