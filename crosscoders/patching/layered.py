"""Both maps of a deep network: layers first, then the few places that matter.

Every site, position and module of a network of 30 layers are some 800 hybrids, and
nearly all of them say nothing. Here:

1. The residual behind every `n`-th layer, `MOST_STEPS` of them at most, is patched into before
   at the deciding and at all positions.
2. Around the layer that half of the tasks chose (`site_choice`) the layers in between; at
   the one that is then chosen what its attention and MLP add, and the other
   positions and direction of its residual.
3. Groups of consecutive layers, `MOST_STEPS` at most, are grafted, both ways, with the
   embedding and the output; then the large modules of the group that moves most.

The choice is told on the other half of the tasks, as in the full maps. What was not measured
has no row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from crosscoders.patching.decisions import Behaviour, Decision
from crosscoders.patching.hybrids import Pieces, pieces_of
from crosscoders.patching.layer_steps import coarse_changes, fine_changes, steps
from crosscoders.patching.maps import default_modules, graft_map, read_decisions
from crosscoders.patching.results import Change, ChangeMap, Readings, summed
from crosscoders.patching.site_choice import choose_site, halves
from forensics.policies import decoder_layers
from forensics.progress import Progress, silent
from forensics.protocols import Policy

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
    between = [one for one in _around(found, first) if one not in first]
    if between:
        found = joined([found, measured(coarse_changes(between), "patching the layers between")])
    chosen = _chosen_layer(found)
    return joined([found, measured(fine_changes(chosen), f"patching at layer {chosen}")])


def _around(found: ChangeMap, first: Sequence[int]) -> range:
    """The layers between the neighbours of the one that was chosen."""
    at = list(first).index(_chosen_layer(found))
    below = first[at - 1] + 1 if at else 0
    above = first[at + 1] - 1 if at + 1 < len(first) else first[at]
    return range(below, above + 1)


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


def coarse_modules(model: Any) -> tuple[str, ...]:
    """Every group of layers as one module, and what stands outside the layers."""
    outside = [name for name in default_modules(model) if "blocks." not in name or "+" in name]
    return (*("+".join(group) for group in groups(model)), *outside)


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

    found = measured(coarse_modules(before.model), "grafting groups of layers")
    several = {"+".join(group): group for group in groups(before.model) if len(group) > 1}
    if not several:
        return found
    best = _best(found.only(halves(found.readings.tasks)[0]), tuple(several))
    inside = _large(pieces_of(before.model), several[best])
    return joined([found, measured(inside, "grafting the modules of the group that moves most")])


def _best(found: ChangeMap, among: Sequence[str]) -> str:
    """The module that moves most into before, of the behaviour where that differs."""
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
