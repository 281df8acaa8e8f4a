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
   intervals over tasks (`moved`).

The two checkpoints are of one architecture. Models are left bit by bit as they
were.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from crosscoders.patching.decisions import Behaviour, Decision
from crosscoders.patching.hybrids import (
    EMBED,
    FINAL_NORM,
    UNEMBED,
    all_sites,
    pieces_of,
    relative_change,
    require_same_shape,
)
from crosscoders.patching.moved import Direction, Readings
from crosscoders.patching.patched_kl import read_decisions
from crosscoders.patching.results import Change, ChangeMap, Kind, MapConfig, Positions, summed
from forensics.policies.sites import decoder_layers
from forensics.progress import Progress, silent
from forensics.protocols import Policy

EVERY_POSITION: tuple[Positions, ...] = ("deciding", "earlier", "all")
BOTH_WAYS: tuple[Direction, ...] = ("into-before", "into-after")


def patch_map(
    before: Policy,
    after: Policy,
    prefixes: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    sites: Sequence[str] | None = None,
    positions: Sequence[Positions] = EVERY_POSITION,
    directions: Sequence[Direction] = BOTH_WAYS,
    config: MapConfig | None = None,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by site and position. `sites`: TransformerLens names (default:
    every one).

    Raises `UserError` where the two are not of one architecture, a site is
    unknown, or nothing is to be read.
    """
    config = config or MapConfig()
    require_same_shape(before, after)
    changes = [
        Change(place=site, positions=where, direction=direction)
        for site in (all_sites(before.model) if sites is None else sites)
        for where in positions
        for direction in directions
    ]
    readings = read_decisions(
        before,
        after,
        prefixes,
        behaviour,
        changes,
        values_at_once=config.values_at_once,
        progress=progress,
    )
    return _map("patch", before, readings, changes, behaviour, config)


def graft_map(
    before: Policy,
    after: Policy,
    prefixes: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    modules: Sequence[str] | None = None,
    config: MapConfig | None = None,
    progress: Progress = silent,
) -> ChangeMap:
    """The map by module. `modules`: names of pieces, several joined by `+`
    (default: `default_modules`).

    Raises `UserError` where the two are not of one architecture, a module is
    unknown, or nothing is to be read.
    """
    config = config or MapConfig()
    require_same_shape(before, after)
    pieces = pieces_of(before.model), pieces_of(after.model)
    changes: list[Change] = []
    for name in default_modules(before.model) if modules is None else modules:
        own, other = (side.of(name) for side in pieces)
        for direction, pair in zip(BOTH_WAYS, ((own, other), (other, own)), strict=True):
            change = relative_change(*pair)
            changes.append(Change(place=name, direction=direction, relative_change=change))
    readings = read_decisions(
        before,
        after,
        prefixes,
        behaviour,
        changes,
        values_at_once=config.values_at_once,
        progress=progress,
    )
    # after with before's module in it is also after with all but this module
    twice = [
        (at, seen)
        for at, change in enumerate(changes)
        for seen in (
            [change]
            if change.direction == "into-before"
            else [change, replace(change, direction="all-but")]
        )
    ]
    readings = readings.repeated([at for at, _ in twice])
    return _map("graft", before, readings, [change for _, change in twice], behaviour, config)


def default_modules(model: Any) -> tuple[str, ...]:
    """Each piece of a model; both sides of the embedding as one; and its output
    as one: the last MLP and what follows it.
    """
    names = pieces_of(model).names
    both = (f"{EMBED}+{UNEMBED}",) if {EMBED, UNEMBED} <= set(names) else ()
    last = f"blocks.{len(decoder_layers(model)) - 1}.mlp"
    output = "+".join(name for name in names if name in (last, FINAL_NORM, UNEMBED))
    return (*names, *both, output)


def _map(
    kind: Kind,
    before: Policy,
    readings: Readings,
    changes: Sequence[Change],
    behaviour: Behaviour | None,
    config: MapConfig,
) -> ChangeMap:
    layers, tied = len(decoder_layers(before.model)), pieces_of(before.model).tied
    name = behaviour.name if behaviour else None
    return summed(kind, readings, changes, name, layers, tied, config)
