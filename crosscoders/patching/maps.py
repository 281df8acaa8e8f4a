"""Where the change between two checkpoints lives: a map by site and position,
and a map by module.

1. `patch_map`: at every site and position, what the after model has there
   replaces what the before model has (into before), and the reverse (into
   after). Source: activation patching (2202.05262, 2309.16042); that it runs
   across the two ends of an RL run is ours.
2. `graft_map`: one module's weights at a time from after into before, and back.
   The network with before's module in after is told from both ends: how much of
   before came back, and how much of after is left (`all-but`). Single grafts
   need not add up to the whole; the two together say how far they are from it.
3. Every row says how much of the KL and of a named behaviour moved, with
   intervals over tasks (`results`).

Both come from one pass over the decisions (`read_decisions`), in batches of
equal length:

1. Both models read a batch; their next-token distributions at the deciding
   token, and what passes the sites that hybrids need, stay in memory for this
   batch alone.
2. Each hybrid (one checkpoint with a piece of the other) reads the batch, and
   leaves three numbers a decision. Layers before its piece are not run again
   (`replayed`); patches leave attention sinks as they are (`outlying`).
3. Whole actions are read as the text with the action's tokens behind it, once
   for each of the actions' prefixes.

No text is padded; logits are kept at the deciding token and at the action's own
tokens only. The two checkpoints are of one architecture. Models are left bit by
bit as they were.

Both maps of a deep network: layers first, then the few places that matter.

Every site, position and module of a network of 30 layers are some 800 hybrids, and
nearly all of them say nothing. Here:

1. The residual behind every `n`-th layer, `MOST_STEPS` of them at most, is patched into before
   at the deciding and at all positions.
2. Around the layer that half of the tasks chose (`choose_site`) the layers in between; at
   the one that is then chosen what its attention and MLP add, and the other
   positions and direction of its residual.
3. Groups of consecutive layers, `MOST_STEPS` at most, are grafted, both ways, with the
   embedding and the output; then the large modules of the group that moves most.

The choice is told on the other half of the tasks, as in the full maps. What was not measured
has no row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.patching.decisions import Behaviour, Decision, Tokens
from crosscoders.patching.hybrids import (
    EMBED,
    FINAL_NORM,
    UNEMBED,
    Outlying,
    Pieces,
    all_sites,
    grafted,
    outlying,
    outputs_kept,
    part_of,
    patched,
    pieces_of,
    relative_change,
    replayed,
    require_same_shape,
)
from crosscoders.patching.results import (
    Change,
    ChangeMap,
    Direction,
    Positions,
    Readings,
    choose_site,
    coarse_changes,
    fine_changes,
    halves,
    steps,
    summed,
    untouched,
)
from forensics.errors import UserError
from forensics.policies import decoder_layers, kl_divergence, last_logprobs, recorded
from forensics.progress import Progress, silent, ticking
from forensics.protocols import Policy

SIDES = ("before", "after")
VALUES_AT_ONCE = 2**26  # numbers that the activations, or the logits, of a batch may be


def patch_map(
    before: Policy,
    after: Policy,
    prefixes: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    sites: Sequence[str] | None = None,
    positions: Sequence[Positions] = ("deciding", "earlier", "all"),
    directions: Sequence[Direction] = ("into-before", "into-after"),
    keep_outliers: bool = False,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by site and position. `sites`: TransformerLens names (default:
    every one). `keep_outliers`: patch attention sinks too.

    Raises `UserError` where the two are not of one architecture, a site is
    unknown, or nothing is to be read.
    """
    require_same_shape(before, after)
    changes = [
        Change(place=site, positions=where, direction=direction)
        for site in (all_sites(before.model) if sites is None else sites)
        for where in positions
        for direction in directions
    ]
    readings = read_decisions(
        before, after, prefixes, behaviour, changes, progress, keep_outliers=keep_outliers
    )
    name = behaviour.name if behaviour else None
    return summed("patch", readings, changes, name, len(decoder_layers(before.model)))


def graft_map(
    before: Policy,
    after: Policy,
    prefixes: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    modules: Sequence[str] | None = None,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by module. `modules`: names of pieces, several joined by `+`
    (default: `default_modules`).

    Raises `UserError` where the two are not of one architecture, a module is
    unknown, or nothing is to be read.
    """
    require_same_shape(before, after)
    pieces = pieces_of(before.model), pieces_of(after.model)
    changes: list[Change] = []
    for module in default_modules(before.model) if modules is None else modules:
        own, other = (side.of(module) for side in pieces)
        into, back = relative_change(own, other), relative_change(other, own)
        changes += [
            Change(place=module, direction="into-before", relative_change=into),
            Change(place=module, direction="into-after", relative_change=back),
        ]
    readings = read_decisions(before, after, prefixes, behaviour, changes, progress)
    # after with before's module in it is also after with all but this module
    at, told = [], []
    for number, change in enumerate(changes):
        at.append(number)
        told.append(change)
        if change.direction == "into-after":
            at.append(number)
            told.append(replace(change, direction="all-but"))
    name = behaviour.name if behaviour else None
    layers = len(decoder_layers(before.model))
    return summed("graft", readings.repeated(at), told, name, layers)


def default_modules(model: Any) -> tuple[str, ...]:
    """Each piece of a model; both sides of the embedding as one; and its output
    as one: the last MLP and what follows it.
    """
    names = pieces_of(model).names
    both = (f"{EMBED}+{UNEMBED}",) if {EMBED, UNEMBED} <= set(names) else ()
    last = f"blocks.{len(decoder_layers(model)) - 1}.mlp"
    output = "+".join(name for name in names if name in (last, FINAL_NORM, UNEMBED))
    return (*names, *both, output)


@torch.inference_mode()
def read_decisions(
    before: Policy,
    after: Policy,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    changes: Sequence[Change],
    progress: Progress = silent,
    *,
    keep_outliers: bool = False,
) -> Readings:
    """Read every decision under both checkpoints and every hybrid that `changes`
    name. Patches leave outliers of the norm as they are, unless `keep_outliers`.

    Raises `UserError` where there is nothing to read, where a text does not fit a
    model, or where a checkpoint's logits are not finite.
    """
    models: tuple[Any, Any] = (before.model, after.model)
    # the empty prefix comes first and is always there: the KL is read at it
    prefixes: dict[Tokens, Tokens] = {(): ()} | (behaviour.by_prefix if behaviour else {})
    longest = max(map(len, prefixes))
    _require_fitting((before, after), decisions, behaviour, longest)
    pieces = [pieces_of(model) for model in models]
    number = len(decisions)
    between, kl = np.zeros((2, number)), np.zeros((len(changes), 2, number))
    chance, hybrid_chance = np.zeros((2, number)), np.zeros((len(changes), number))
    sites = {change.place for change in changes if change.positions}
    batches = list(_batches(decisions, _rows_at_once(before, len(sites), longest)))
    tick = ticking(progress, "reading decisions", number * len(prefixes) * (2 + len(changes)))
    outliers = Outlying() if keep_outliers else outlying(models, decisions, sites, batches)
    for members in batches:
        texts = torch.tensor([decisions[i].token_ids for i in members])
        for prefix, last in prefixes.items():
            more = torch.tensor(prefix, dtype=texts.dtype).expand(len(texts), -1)
            tokens = torch.cat([texts, more], 1)
            kept = [outliers.kept(one.place, members, tokens.shape[1]) for one in changes]
            read = _read_all((before, after), pieces, changes, kept, tokens, 1 + len(prefix))
            ends = next(read), next(read)
            chance[:, members] += [chance_of(logs, prefix, last) for logs in ends]
            if not prefix:
                between[:, members] = _kl(ends[1], ends[0]), _kl(ends[0], ends[1])
            tick(2 * len(members))
            for at, logs in enumerate(read):
                hybrid_chance[at, members] += chance_of(logs, prefix, last)
                if not prefix:
                    kl[at][:, members] = _kl(ends[1], logs), _kl(ends[0], logs)
                tick(len(members))
    return Readings(
        tasks=tuple(decision.task for decision in decisions),
        between=between,
        hybrid_kl=kl,
        chance=chance if behaviour else None,
        hybrid_chance=hybrid_chance if behaviour else None,
        outliers=outliers.sentence(),
    )


def _rows_at_once(policy: Policy, sites: int, longest: int) -> Callable[[int], int]:
    """How many texts of a length fit: what passes the sites and the layers of both
    models, and the logits, stay in memory.
    """
    table = policy.model.get_input_embeddings()
    width = table.embedding_dim * (max(1, sites) + 2 * len(decoder_layers(policy.model)))

    def rows(length: int) -> int:
        values = max((length + longest) * width, (1 + longest) * table.num_embeddings)
        return min(policy.batch_rows, VALUES_AT_ONCE // int(values))

    return rows


def _read_all(
    policies: tuple[Policy, Policy],
    pieces: Sequence[Pieces],
    changes: Sequence[Change],
    kept: Sequence[Tensor | None],
    tokens: Tensor,
    keep: int,
) -> Iterator[Tensor]:
    """Log-probabilities `[rows, keep, vocabulary]` of the last `keep` positions, the
    deciding token's first: of before, of after, and of each hybrid. `kept`: where
    each change may patch (`Outlying`).
    """
    receivers = [0 if change.direction == "into-before" else 1 for change in changes]
    models = [policy.model for policy in policies]
    layers = [list(decoder_layers(model)) for model in models]
    passed, outputs = [], []
    for side, model in enumerate(models):
        donated = zip(changes, receivers, strict=True)
        sites = {change.place for change, to in donated if change.positions and to != side}
        with recorded(model, sites) as seen, outputs_kept(layers[side]) as given:
            logs = last_logprobs(policies[side], tokens, keep)
        passed.append(seen)
        outputs.append(given)
        if bool(logs.isnan().any()):
            raise UserError(
                f"the {SIDES[side]} checkpoint gives logits that are not numbers; check its weights"
            )
        yield logs
    for change, to, allowed in zip(changes, receivers, kept, strict=True):
        if change.positions:
            where = part_of(change.positions, tokens.shape[1] - keep)
            hybrid = patched(models[to], change.place, passed[1 - to], where, allowed)
        else:
            hybrid = grafted(*(pieces[side].of(change.place) for side in (to, 1 - to)))
        same = untouched(change, len(layers[to]))
        with hybrid, replayed(layers[to], outputs[to], same):
            logs = last_logprobs(policies[to], tokens, keep)
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


def chance_of(logs: Tensor, prefix: Tokens, last: Tokens) -> np.ndarray:
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
    `[rows, positions, vocabulary]`.
    """
    divergence: np.ndarray = kl_divergence(p[:, 0], q[:, 0].to(p.device)).clamp_min(0).cpu().numpy()
    return divergence


LARGE: Final = 0.05  # a module's share of its layer's weights


def layered_patch_map(
    before: Policy,
    after: Policy,
    decisions: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    keep_outliers: bool = False,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by site and position, where it matters; see the module's text."""
    layers, name = len(decoder_layers(before.model)), behaviour.name if behaviour else None

    def measured(changes: Sequence[Change], what: str) -> ChangeMap:
        readings = read_decisions(
            before,
            after,
            decisions,
            behaviour,
            changes,
            lambda _, done, of: progress(what, done, of),
            keep_outliers=keep_outliers,
        )
        return summed("patch", readings, changes, name, layers)

    first = steps(layers)
    found = measured(coarse_changes(first), "patching every few layers")
    at = first.index(_chosen_layer(found))  # between its neighbours
    below = first[at - 1] + 1 if at else 0
    above = first[at + 1] if at + 1 < len(first) else first[at] + 1
    between = [one for one in range(below, above) if one not in first]
    if between:
        found = joined([found, measured(coarse_changes(between), "patching the layers between")])
    chosen = _chosen_layer(found)
    return joined([found, measured(fine_changes(chosen), f"patching at layer {chosen}")])


def _chosen_layer(found: ChangeMap) -> int:
    """That of the site; where none stands out, of the residual that moves most."""
    choice = choose_site(found)
    place = choice.site or choice.inside_site
    row = next((row for row in found.rows if row.change.place == place), None)
    return row.change.layer or 0 if row else (found.layers - 1) // 2


def groups(model: Any) -> tuple[tuple[str, ...], ...]:
    """Modules of consecutive layers, together."""
    layers, names = len(decoder_layers(model)), pieces_of(model).names
    ends = steps(layers)
    starts = (0, *(end + 1 for end in ends[:-1]))
    found = []
    for start, end in zip(starts, ends, strict=True):
        heads = tuple(f"blocks.{layer}." for layer in range(start, end + 1))
        found.append(tuple(name for name in names if name.startswith(heads)))
    return tuple(found)


def layered_graft_map(
    before: Policy,
    after: Policy,
    decisions: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by groups of layers, and by module in the one that moves most."""

    def measured(modules: Sequence[str], what: str) -> ChangeMap:
        return graft_map(
            before,
            after,
            decisions,
            behaviour=behaviour,
            modules=modules,
            progress=lambda _, done, of: progress(what, done, of),
        )

    together = {"+".join(group): group for group in groups(before.model)}
    outside = [one for one in default_modules(before.model) if "blocks." not in one or "+" in one]
    found = measured([*together, *outside], "grafting groups of layers")
    several = {name: group for name, group in together.items() if len(group) > 1}
    if not several:
        return found
    best = _best(found.only(halves(found.readings.tasks)[0]), tuple(several))
    inside = _large(pieces_of(before.model), several[best])
    return joined([found, measured(inside, "grafting the modules of the group that moves most")])


def _best(found: ChangeMap, among: Sequence[str]) -> str:
    rows = [found.row(place, "into-before") for place in among]
    shares = [row.behaviour_moved.estimate for row in rows]
    if None in shares:
        shares = [row.kl_moved.estimate for row in rows]
    known = [-np.inf if share is None else share for share in shares]
    return among[int(np.argmax(known))]


def _large(pieces: Pieces, names: Sequence[str]) -> list[str]:
    """Those with a share of the weights that could matter."""
    sizes = {
        name: sum(getattr(module, key).numel() for module, key in pieces.of(name)) for name in names
    }
    layers = len({name.split(".")[1] for name in names})
    return [name for name in names if sizes[name] >= LARGE * sum(sizes.values()) / layers]


def joined(maps: Sequence[ChangeMap]) -> ChangeMap:
    """Maps of one kind of the same decisions as one."""
    first = maps[0].readings
    chances = [one.readings.hybrid_chance for one in maps]
    readings = Readings(
        tasks=first.tasks,
        between=first.between,
        hybrid_kl=np.concatenate([one.readings.hybrid_kl for one in maps]),
        chance=first.chance,
        hybrid_chance=None
        if first.chance is None
        else np.concatenate([one for one in chances if one is not None]),
        outliers=next((one.outliers for one in maps if one.outliers), None),
    )
    rows = tuple(row for one in maps for row in one.rows)
    return replace(maps[0], rows=rows, readings=readings, outliers=readings.outliers)
