"""What follows from the rows by `rule_2/rule.md`: each reader's score, who leads, who lists
features; and the tables. What was not measured says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

from experiments.readers_of_the_difference.difference_readers import READERS
from experiments.readers_of_the_difference.study_pieces import (
    ANSWERED,
    ANSWERS,
    BLACK_BOX,
    GRAFT,
    PAIRS,
    PLANTED,
    REAL_SEEDS,
    SEEDS,
)
from forensics.records import write_atomically, write_json

Row = dict[str, Any]
Rows = Mapping[str, Row]
DECIDING: Final = ("leak", "installed", "real")
TIE, BACK, FALSE, LOST = 0.05, 0.9, 0.10, 0.05
SPARSE: Final = ("difference-SAE", "crosscoder", "crosscoder-stable")
PLANTED_ANSWERS: Final = {
    "leak": ("kind history", "word history", "first history"),
    "installed": ("first test",),
    "real": ("copied from user",),
}
NONE: Final = "not measured"
HEADS: Final = (
    "reader",
    "seeds",
    "explained",
    "comes back",
    "removed",
    "its rotations: median, most",
    "removed, teacher-forced",
    "its rotations",
    "success",
    "its rotations",
    "success elsewhere",
    "KL elsewhere, nats",
    "as a share of undoing all",
    "right elsewhere",
)


def cases(rows: Rows, world: str, reader: str) -> list[Row]:
    """The rows of a reader in a world, by seed."""
    seeds = REAL_SEEDS if world == "real" else SEEDS
    return [rows[name] for seed in seeds if (name := f"{world}/{seed}/{reader}") in rows]


def removed(row: Row) -> tuple[float, list[float]] | None:
    """What ablation removes, and what its rotations do: of the played runs where there are any."""
    played = row.get("played")
    if played is None:
        if row.get("removed") is None:
            return None
        return row["removed"], [one["removed"] for one in row["rotations"]]
    before, after = (played[side]["used"] for side in ("before", "after"))
    if before is None or before == after:
        return None
    told = [
        (after - one["used"]) / (after - before)
        for one in (played["ablated"], *played["rotations"])
    ]
    return told[0], told[1:]


def net(row: Row) -> float | None:
    """What is removed beyond the median rotation, each held within 0 and 1."""
    found = removed(row)
    if found is None:
        return None
    return _held(found[0]) - _held(median(found[1]))


def causes(row: Row) -> bool:
    """Whether it removes more than every rotation."""
    found = removed(row)
    return found is not None and found[0] > max(found[1])


def _held(value: float) -> float:
    return min(1.0, max(0.0, value))


def score(rows: Rows, reader: str) -> Row:
    """Of a reader over the deciding pairs that are measured; `None` where none is."""
    by_pair = {world: cases(rows, world, reader) for world in DECIDING}
    by_pair = {world: some for world, some in by_pair.items() if some}
    every = [row for some in by_pair.values() for row in some]
    if not every:
        return dict.fromkeys(("score", "causes", "back", "lost", "kl")) | {"pairs": []}
    return {
        "score": mean(mean(net(row) or 0.0 for row in some) for some in by_pair.values()),
        "pairs": list(by_pair),
        "causes": mean(causes(row) for row in every),
        "back": mean(row["comes_back"] or 0.0 for row in every),
        "lost": _lost([row["played"] for row in every if "played" in row]),
        "kl": mean(row["told"]["kl"] / row["kl_undone"] for row in every),
    }


def _lost(played: Sequence[Row]) -> float | None:
    """Success elsewhere that an ablation costs."""
    gaps = [one["after"]["elsewhere"] - one["ablated"]["elsewhere"] for one in played]
    return mean(gaps) if gaps else None


def whole(rows: Rows) -> bool:
    """Whether every reader is measured on both played pairs at every seed."""
    return all(
        len(cases(rows, world, reader)) == len(SEEDS)
        for world in DECIDING[:2]
        for reader in READERS
    )


def leader(scores: Mapping[str, Row]) -> str | None:
    """The winner by the rule; `None` where no reader meets its conditions."""
    able = {
        name: scores[name]["score"]
        for name in READERS
        if scores[name]["score"] is not None
        and scores[name]["back"] >= BACK
        and scores[name]["causes"] > 0.5
        and (scores[name]["lost"] or 0.0) <= LOST
        and scores[name]["kl"] <= 1
    }
    if not able:
        return None
    best = max(able.values())
    return next(name for name, value in able.items() if value >= best - TIE)


def lister(rows: Rows) -> tuple[str | None, dict[str, Row]]:
    """Which sparse reader lists features, and what each finds in the planted worlds."""
    told = {}
    for reader in SPARSE:
        shares = [planted_shares(cases(rows, world, reader)) for world in PLANTED]
        known = [one for one in shares if one is not None]
        if len(known) == len(PLANTED):
            told[reader] = {"recall": mean(a for a, _ in known), "false": mean(b for _, b in known)}
    able = {name: one["recall"] for name, one in told.items() if one["false"] <= FALSE}
    if len(told) < len(SPARSE) or not able:
        return None, told
    best = max(able.values())
    return next(name for name, value in able.items() if value >= best - TIE), told


def planted_shares(some: Sequence[Row]) -> tuple[float, float] | None:
    """Recall and false share over the seeds of a world."""
    if not some:
        return None
    sums = _sums(some)
    return sums["found"] / sums["of"], sums["false"] / max(1, sums["called"])


def _sums(some: Sequence[Row]) -> dict[str, int]:
    names = ("found", "of", "false", "called")
    return {name: sum(row["recall"][name] for row in some) for name in names}


def blackly_named(rows: Rows) -> dict[str, list[int | None]]:
    """At which place the black box names the planted answer, by seed; `None`: not among its ten."""
    return {
        world: [_place(row["said"], answers) for row in cases(rows, world, BLACK_BOX)]
        for world, answers in PLANTED_ANSWERS.items()
    }


def _place(said: Sequence[Row], answers: Sequence[str]) -> int | None:
    places = [number for number, one in enumerate(said, 1) if one["feature"] in answers]
    return places[0] if places else None


def write_tables(rows: Rows, folder: Path) -> str:
    """`table.json` and `table.md`; the text of the second."""
    scores = {reader: score(rows, reader) for reader in (*READERS, GRAFT)}
    lists, found = lister(rows)
    write_json(
        folder / "table.json",
        {
            "leads": leader(scores) if whole(rows) else "open: pieces are missing",
            "lists_features": lists,
            "scores": scores,
            "planted": found,
            "black_box": blackly_named(rows),
            "pieces": len(rows),
        },
    )
    text = "\n".join(_markdown(rows, scores, lists)) + "\n"
    write_atomically(folder / "table.md", text)
    return text


def _markdown(rows: Rows, scores: Mapping[str, Row], lists: str | None) -> Iterator[str]:
    planned = len(SEEDS) * (len(PAIRS) * (len(READERS) + 2) + len(PLANTED) * len(READERS))
    small = sum(not name.startswith("real/") for name in rows)
    done = sum(bool(cases(rows, "real", one)) for one in (*READERS, GRAFT, BLACK_BOX))
    real = f"of the real pair {done} of {len(READERS) + 2}"
    yield f"{small} of {planned} pieces are done; {real}."
    yield ""
    leads = leader(scores) or "none" if whole(rows) else "open, pieces are missing"
    yield f"Leads: **{leads}**. Lists features: **{lists or 'none'}**."
    yield ""
    yield "| reader | score | causes | comes back | success lost elsewhere | KL elsewhere | pairs |"
    yield "|---|---|---|---|---|---|---|"
    for reader, one in scores.items():
        told = [_number(one[name]) for name in ("score", "causes", "back", "lost", "kl")]
        yield f"| {reader} | {' | '.join(told)} | {', '.join(one['pairs'])} |"
    for world in (*DECIDING, "honest"):
        yield from _pair_table(rows, world)
    yield from _answers(rows)
    yield from _planted_table(rows)
    yield ""
    yield "## Black box"
    yield ""
    for world in (*DECIDING, "honest"):
        for row in cases(rows, world, BLACK_BOX):
            said = "; ".join(
                f"{one['feature']} {one['before']:.2f} to {one['after']:.2f}"
                for one in row["said"][:5]
            )
            yield f"- {world}: {said or 'nothing rose'} (comes back: {_number(row['comes_back'])})"


def _answers(rows: Rows) -> Iterator[str]:
    """Drawn answers on the real pair."""
    for reader in ANSWERED:
        for row in cases(rows, "real", f"{reader}{ANSWERS}"):
            ends = f"before {row['before']:.2f}, after {row['after']:.2f}"
            drawn = ", ".join(f"{one:.2f}" for one in row["rotations"])
            yield ""
            yield (
                f"Answers drawn (success on the 40 tasks): {ends}; `{reader}` taken out"
                f" {row['ablated']:.2f}, rotations {drawn}."
            )


def _pair_table(rows: Rows, world: str) -> Iterator[str]:
    some = {reader: cases(rows, world, reader) for reader in (*READERS, GRAFT)}
    yield ""
    yield f"## {world}"
    yield ""
    if not any(some.values()):
        yield f"{NONE}: no row yet" + (
            ", or no folder was given with `--real`." if world == "real" else "."
        )
        return
    yield f"| {' | '.join(HEADS)} |"
    yield "|---" * len(HEADS) + "|"
    for reader, cells in some.items():
        if cells:
            yield f"| {reader} | {len(cells)} | {' | '.join(_cells(cells))} |"


def _cells(some: Sequence[Row]) -> Iterator[str]:
    """Means over the seeds."""
    played = [row["played"] for row in some if "played" in row]
    both = [one for row in some if (one := removed(row)) is not None]
    forced = [row for row in some if row["removed"] is not None]
    yield _mean(row.get("explained") for row in some)
    yield _mean(row["comes_back"] for row in some)
    yield _mean(one[0] for one in both)
    yield f"{_mean(median(one[1]) for one in both)}, {_mean(max(one[1]) for one in both)}"
    yield _mean(row["removed"] for row in forced)
    yield _mean(median(one["removed"] for one in row["rotations"]) for row in forced)
    yield _mean(one["ablated"]["success"] for one in played)
    yield _mean(median(draw["success"] for draw in one["rotations"]) for one in played)
    yield _mean(one["ablated"]["elsewhere"] for one in played)
    yield _mean(row["told"]["kl"] for row in some)
    yield _mean(row["told"]["kl"] / row["kl_undone"] for row in some)
    yield _mean(row["told"]["right"] for row in some)


def _planted_table(rows: Rows) -> Iterator[str]:
    yield ""
    yield "## Planted features"
    yield ""
    yield "| world | reader | seeds | found | false | explained | comes back |"
    yield "|---|---|---|---|---|---|---|"
    for world in PLANTED:
        for reader in READERS:
            some = cases(rows, world, reader)
            if not some:
                continue
            sums = _sums(some)
            told = [_mean(row[name] for row in some) for name in ("explained", "comes_back")]
            found = f"{sums['found']} of {sums['of']} | {sums['false']} of {sums['called']}"
            yield f"| {world} | {reader} | {len(some)} | {found} | {' | '.join(told)} |"


def _mean(values: Any) -> str:
    known = [value for value in values if value is not None]
    return _number(mean(known)) if known else NONE


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"
