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

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from crosscoders.patching.decisions import Behaviour, Decision
from crosscoders.patching.kl_readout import AFTER, BEFORE, Hybrid, Pair, Passed, read
from crosscoders.patching.moved import Direction, Readings
from crosscoders.patching.places import (
    EMBED,
    FINAL_NORM,
    UNEMBED,
    Pieces,
    all_sites,
    grafted,
    part_of,
    patched,
    pieces_of,
    relative_change,
    require_same_shape,
)
from crosscoders.patching.results import Change, ChangeMap, MapConfig, Positions, summed
from forensics.policies.sites import decoder_layers
from forensics.progress import Progress
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
    progress: Progress = lambda what, done, of: None,
) -> ChangeMap:
    """The map by site and position. `sites`: TransformerLens names (default:
    every one).

    Raises `UserError` where the two are not of one architecture, a site is
    unknown, or nothing is to be read.
    """
    pair = _pair(before, after, config)
    hybrids = [
        Hybrid(
            change=Change(place=site, positions=where, direction=direction),
            site=site,
            enter=partial(
                _patch, pair.models[BEFORE if direction == "into-before" else AFTER], site, where
            ),
        )
        for site in (all_sites(before.model) if sites is None else sites)
        for where in positions
        for direction in directions
    ]
    readings = read(pair, prefixes, behaviour, hybrids, progress)
    return _map("patch", before, readings, [hybrid.change for hybrid in hybrids], behaviour, config)


def graft_map(
    before: Policy,
    after: Policy,
    prefixes: Sequence[Decision],
    *,
    behaviour: Behaviour | None = None,
    modules: Sequence[str] | None = None,
    config: MapConfig | None = None,
    progress: Progress = lambda what, done, of: None,
) -> ChangeMap:
    """The map by module. `modules`: names of pieces, several joined by `+`
    (default: `default_modules`).

    Raises `UserError` where the two are not of one architecture, a module is
    unknown, or nothing is to be read.
    """
    pair = _pair(before, after, config)
    pieces = (pieces_of(before.model), pieces_of(after.model))
    names = default_modules(before.model) if modules is None else modules
    hybrids = [hybrid for name in names for hybrid in _grafts(pieces, name)]
    readings = read(pair, prefixes, behaviour, hybrids, progress)
    ends = [
        (at, change) for at, hybrid in enumerate(hybrids) for change in _both_ends(hybrid.change)
    ]
    changes = [change for _, change in ends]
    return _map(
        "graft", before, readings.repeated([at for at, _ in ends]), changes, behaviour, config
    )


def default_modules(model: Any) -> tuple[str, ...]:
    """Each piece of a model; both sides of the embedding as one; and its output as one."""
    names = pieces_of(model).names
    both = (f"{EMBED}+{UNEMBED}",) if {EMBED, UNEMBED} <= set(names) else ()
    return (*names, *both, output_of(model))


def output_of(model: Any) -> str:
    """The last MLP and what follows it, joined by `+`."""
    last = f"blocks.{len(decoder_layers(model)) - 1}.mlp"
    return "+".join(name for name in pieces_of(model).names if name in (last, FINAL_NORM, UNEMBED))


def _pair(before: Policy, after: Policy, config: MapConfig | None) -> Pair:
    pair = Pair(before=before, after=after, values_at_once=(config or MapConfig()).values_at_once)
    require_same_shape(*pair.models)
    return pair


def _map(
    kind: Any,
    before: Policy,
    readings: Readings,
    changes: Sequence[Change],
    behaviour: Behaviour | None,
    config: MapConfig | None,
) -> ChangeMap:
    layers, tied = len(decoder_layers(before.model)), pieces_of(before.model).tied
    name = behaviour.name if behaviour else None
    return summed(kind, readings, changes, name, layers, tied, config or MapConfig())


def _patch(
    receiver: Any, site: str, where: Positions, passed: Passed, deciding: int
) -> AbstractContextManager[None]:
    return patched(receiver, site, passed, part_of(where, deciding))


def _grafts(pieces: tuple[Pieces, Pieces], name: str) -> Iterator[Hybrid]:
    """The module of after in before, and of before in after."""
    before, after = (side.of(name) for side in pieces)
    for direction in BOTH_WAYS:
        receiver, donor = (before, after) if direction == "into-before" else (after, before)
        change = Change(
            place=name, direction=direction, relative_change=relative_change(receiver, donor)
        )
        yield Hybrid(change=change, enter=partial(_graft, receiver, donor))


def _graft(
    receiver: Any, donor: Any, _passed: Passed, _deciding: int
) -> AbstractContextManager[None]:
    return grafted(receiver, donor)


def _both_ends(change: Change) -> Iterator[Change]:
    """After with before's module in it is also after with all but this module."""
    yield change
    if change.direction == "into-after":
        yield Change(
            place=change.place, direction="all-but", relative_change=change.relative_change
        )
