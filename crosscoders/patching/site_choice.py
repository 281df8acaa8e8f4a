"""Which site the dictionaries get, and whether a feature in the middle of the
network can carry the change at all.

1. The tasks are split in two halves by their names. On the first, take the
   mid-network residual (after any layer but the last) that moves the largest
   share into the before model at the chosen positions; sites within `TIE` of
   the largest count as equal, and the earliest of them is taken. On the second
   half, report what it moves.
2. The *output* is the last MLP with all that follows it (final norm,
   unembedding). On the second half hold its graft against the mid-network
   residual patch, at any positions, that moved the most on the first:
   `output`: the graft moves more (intervals apart) and the patch less than
   `MOST_INSIDE`: RL re-weighted what the network already had, and a dictionary
   in the middle has at most the patch's share to find; `inside`: the patch
   moves at least `MOST_INSIDE`, and more than the graft; `spread`: neither.

The rule is ours, stated before it is used. Behaviour is what counts where one
was named and differs, else the KL.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from crosscoders.patching.results import ChangeMap, Positions, Row, Share
from forensics.errors import UserError
from forensics.phrases import share_of_change
from forensics.records import content_hash

Measure = Literal["behaviour", "kl"]
Where = Literal["inside", "output", "spread", "unknown"]
TIE: Final = 0.02  # shares this close count as equal
MOST_INSIDE: Final = 0.5  # from this share on, the middle of the network carries the change
SEED: Final = 0  # of the split into halves


@dataclass(frozen=True, kw_only=True)
class SiteChoice:
    """`site` (`None` with a `reason`) and what it moves on the tasks that did
    not choose it.

    `inside`: the residual patch that moves most, whatever the positions
    (`inside_site`); `output`: the graft of the output. `sentence`: the finding
    in words.
    """

    site: str | None
    moved: Share
    measure: Measure
    where: Where
    sentence: str
    inside_site: str | None
    inside: Share
    output: Share
    reason: str | None = None


def choose_site(
    patches: ChangeMap,
    grafts: ChangeMap | None = None,
    *,
    positions: Positions = "deciding",
    measure: Measure | None = None,
) -> SiteChoice:
    """The site for the dictionaries, and where the change lives. Without
    `grafts` the latter is `unknown`. `positions` at which a site is chosen;
    `measure`: by default the behaviour where it can be told.

    Raises `UserError` where the maps have fewer than two tasks, or no row at
    these positions.
    """
    first, second = halves(patches.readings.tasks)
    behaves = any(row.behaviour_moved.estimate is not None for row in patches.rows)
    measure = measure or ("behaviour" if behaves else "kl")
    middle, reporting = _middle(patches.only(first)), patches.only(second)
    here = [row for row in middle if row.change.positions == positions]
    if middle and not here:
        raise UserError(
            f"the patch map was not measured at {positions} positions; measure them, or set others"
        )
    chosen, inside = _largest(here, measure, TIE), _largest(middle, measure, 0.0)
    moved, most = (_again(row, reporting, measure) for row in (chosen, inside))
    place, output = _output(grafts, second, measure)
    where = _where(most, output)
    reason = None
    if chosen is None:
        reason = moved.reason
    elif moved.estimate is None or (moved.estimate if moved.low is None else moved.low) <= 0:
        reason = "no residual in the middle of the network moves anything towards the after model"
    return SiteChoice(
        site=chosen.change.place if chosen and reason is None else None,
        moved=moved,
        measure=measure,
        where=where,
        sentence=_sentence(where, measure, inside, most, place, output),
        inside_site=inside.change.place if inside else None,
        inside=most,
        output=output,
        reason=reason,
    )


def halves(tasks: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tasks that choose, and those that are reported on."""
    ordered = sorted(set(tasks), key=lambda task: content_hash([SEED, task]))
    if len(ordered) < 2:
        raise UserError(
            "a site is chosen on some tasks and reported on others; give decisions of at least two"
            " tasks"
        )
    return ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]


def _middle(patches: ChangeMap) -> list[Row]:
    """The residual after every layer but the last, into before, in the network's order."""
    return sorted(
        (
            row
            for row in patches.rows
            if re.fullmatch(r"blocks\.\d+\.hook_resid_post", row.change.place)
            and (row.change.layer or 0) < patches.layers - 1
            and row.change.direction == "into-before"
        ),
        key=lambda row: row.change.layer or 0,
    )


def _share(row: Row, measure: Measure) -> Share:
    return row.behaviour_moved if measure == "behaviour" else row.kl_moved


def _largest(rows: list[Row], measure: Measure, tie: float) -> Row | None:
    """The earliest row that is within `tie` of the largest."""
    known = [(row, share) for row in rows if (share := _share(row, measure).estimate) is not None]
    most = max((share for _, share in known), default=0.0)
    return next((row for row, share in known if share >= most - tie), None)


def _again(row: Row | None, reporting: ChangeMap, measure: Measure) -> Share:
    """The same row on the other tasks."""
    if row is not None:
        change = row.change
        return _share(reporting.row(change.place, change.direction, change.positions), measure)
    alone = "the network has no layer before its last"
    alike = "before and after decide alike here"
    return Share(estimate=None, reason=alone if reporting.layers < 2 else alike)


def _output(
    grafts: ChangeMap | None, tasks: list[str], measure: Measure
) -> tuple[str | None, Share]:
    if grafts is None:
        return None, Share(estimate=None, reason="no module was grafted")
    last = f"blocks.{grafts.layers - 1}.mlp+"
    for row in grafts.rows:
        if row.change.place.startswith(last) and row.change.direction == "into-before":
            there = grafts.only(tasks).row(row.change.place, "into-before")
            return row.change.place, _share(there, measure)
    return None, Share(
        estimate=None, reason="the output was not grafted as one; add it to the modules"
    )


def _where(inside: Share, output: Share) -> Where:
    if inside.estimate is None or output.estimate is None:
        return "unknown"
    apart = output.estimate > inside.estimate
    if output.low is not None and inside.high is not None:
        apart = output.low > inside.high
    if apart and inside.estimate < MOST_INSIDE:
        return "output"
    return "inside" if inside.estimate >= max(MOST_INSIDE, output.estimate) else "spread"


def _sentence(
    where: Where,
    measure: Measure,
    row: Row | None,
    inside: Share,
    place: str | None,
    output: Share,
) -> str:
    of = "of the change in behaviour" if measure == "behaviour" else "of the KL at the decisions"
    if row is None or inside.estimate is None:
        return f"Where the change lives could not be told: {inside.reason}."
    patch = (
        f"the residual {row.change.place} ({row.change.positions} positions) moves {_told(inside)}"
        f" {of}"
    )
    if output.estimate is None:
        return (
            f"In the middle of the network {patch}; it was not held against the output"
            f" ({output.reason})."
        )
    graft = f"grafting {place} moves {_told(output)}"
    if where == "output":
        return (
            f"The change is mostly a re-weighting at the output: {graft}, while in the middle of"
            f" the network at best {patch}; no feature found there, as strong as training made it,"
            " can be expected to carry more."
        )
    if where == "inside":
        return f"The change is carried in the middle of the network: {patch}; {graft}."
    return f"The change is spread over the network: at best {patch}; {graft}."


def _told(share: Share) -> str:
    assert share.estimate is not None
    return share_of_change(share.estimate, share.low, share.high)
