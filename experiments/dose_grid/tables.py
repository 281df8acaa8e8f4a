"""What the rows say: counts with exact intervals, coverage, misses, the decision."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from experiments.dose_grid.cells import DOSES, GAINS, TOOLS, Cell
from experiments.dose_grid.ledger import KINDS
from forensics.statistics import clopper_pearson

Row = dict[str, Any]
ACCUSED = ("phantom", "mixed")
MOST_GENUINE = {(0.35, 0.5, 0.8): 0.02, (0.2,): 0.10}  # of these doses together, at most
LEAST_HONEST = 0.9
LARGE = 0.2  # gains from here on
LEAST_SEEDS = 12  # whole, at large gains, for a decision


def cell(row: Row) -> Cell:
    return Cell(**row["cell"])


def genuine(row: Row) -> bool:
    return row.get("label") == "genuine"


def passed(row: Row) -> bool:
    """With a shortcut: what raised counts against the verdict."""
    return "failed" in row or genuine(row)


def labelled(row: Row) -> bool:
    return bool(row["label"] != "undetermined")


def accused(row: Row) -> bool:
    """What raised counts against the verdict here too."""
    return "failed" in row or row["label"] in ACCUSED or bool(row["shortcuts"])


def withheld(row: Row) -> bool:
    return row.get("reason_code") == "source-not-allowed"


def share(rows: Sequence[Row], is_so: Callable[[Row], bool]) -> dict[str, Any]:
    """k of n with its exact 95 % interval."""
    k, n = sum(map(is_so, rows)), len(rows)
    if not n:
        return {"k": 0, "n": 0, "low": None, "high": None}
    low, high = clopper_pearson(k, n)
    return {"k": k, "n": n, "low": round(low, 4), "high": round(high, 4)}


def dosed(rows: Sequence[Row], gain: float, dose: float, kind: str | None = None) -> list[Row]:
    """The rows of the ten kinds at this dose and gain."""
    return [
        row
        for row in rows
        for one in [row["cell"]]
        if one["dose"] == dose
        and one["gain"] == gain
        and not one["tool"]
        and (kind is None or one["kind"] == kind)
    ]


def tooled(rows: Sequence[Row], gain: float, tool: str | None, allowed: bool) -> list[Row]:
    return [
        row
        for row in rows
        for one in [cell(row)]
        if one.tool
        and one.tool == (tool or one.tool)
        and (one.gain, one.allowed) == (gain, allowed)
    ]


def covers(row: Row, part: str) -> bool | None:
    """Whether an interval holds the truth; `None` where there is none."""
    one = cell(row)
    truth = {
        "gain": one.gain,
        "learned": one.gain * (1 - one.dose),
        "phantom": one.gain * one.dose,
    }[part]
    found = row["gain"] if part == "gain" else row["parts"].get(part)
    return None if found is None else bool(found[1] <= truth <= found[2])


def summary(rows: Sequence[Row], planned: Sequence[Cell]) -> dict[str, Any]:
    """Everything that `table.json` says."""
    good = [row for row in rows if "failed" not in row]
    gains = sorted({one.gain for one in planned}, key=GAINS.index)
    return {
        "planned": len(planned),
        "done": len(good),
        "failed": Counter(row["failed"][:200] for row in rows if "failed" in row),
        "seeds_done": _seeds(good, planned),
        "seconds": round(sum(row["seconds"] for row in good) / max(len(good), 1), 2),
        "rules": sorted({row["rule"] for row in good}),
        "detection": [
            {
                "gain": gain,
                "dose": dose,
                "kind": kind,
                "genuine": share(chosen, genuine),
                "any_label": share(chosen, labelled),
                "accused": share(chosen, accused),
                "why": Counter(str(row["reason_code"] or row["label"]) for row in chosen),
            }
            for gain in gains
            for dose in DOSES
            for kind in (None, *KINDS)
            for chosen in [dosed(good, gain, dose, kind)]
        ],
        "tools": [
            {
                "gain": gain,
                "tool": tool,
                "allowed": allowed,
                "genuine": share(chosen, genuine),
                "source_not_allowed": share(chosen, withheld),
                "accused": share(chosen, accused),
            }
            for gain in gains
            for tool in TOOLS
            for allowed in (True, False)
            for chosen in [tooled(good, gain, tool, allowed)]
        ],
        "worlds": [
            {"gain": gain, "declared": declared, "varying": varying, **_called(chosen)}
            for gain in gains
            for declared in (True, False)
            for varying in (True, False)
            for chosen in [
                [
                    row
                    for row in dosed(good, gain, 0.0)
                    if (cell(row).declared, cell(row).varying) == (declared, varying)
                ]
            ]
        ],
        "coverage": [_coverage(good, part, dose) for part in PARTS for dose in DOSES],
        "misses": [_miss(row) for row in good if missed(row)],
        "decision": decision(rows, gains, planned),
    }


def _called(rows: Sequence[Row]) -> dict[str, Any]:
    why = Counter(str(row["reason_code"] or row["label"]) for row in rows)
    return {"genuine": share(rows, genuine), "why": why}


PARTS = ("gain", "learned", "phantom")


def _coverage(rows: Sequence[Row], part: str, dose: float) -> dict[str, Any]:
    held = [
        {"held": held}
        for row in rows
        if labelled(row) and cell(row).dose == dose and not cell(row).tool
        for held in [covers(row, part)]
        if held is not None
    ]
    return {"part": part, "dose": dose, "covered": share(held, lambda one: one["held"])}


def _seeds(rows: Sequence[Row], planned: Sequence[Cell]) -> dict[str, dict[str, int]]:
    """How many cells of each gain are done, and how many seeds are whole."""
    found = {}
    for gain in sorted({one.gain for one in planned}):
        want = Counter(one.seed for one in planned if one.gain == gain)
        have = Counter(cell(row).seed for row in rows if cell(row).gain == gain)
        whole = sum(have[seed] == number for seed, number in want.items())
        found[f"{gain:g}"] = {
            "planned": want.total(),
            "done": have.total(),
            "seeds_planned": len(want),
            "seeds_whole": whole,
        }
    return found


def missed(row: Row) -> bool:
    """What the study asks for and did not get, in a gain of 20 points and more."""
    one = cell(row)
    if one.gain < LARGE:
        return False
    if not one.honest:
        return one.dose >= 0.35 and genuine(row)
    if one.tool and not one.allowed:
        return accused(row) or not withheld(row)
    return accused(row) or not genuine(row)


def _miss(row: Row) -> Row:
    kept = ("label", "reason_code", "decided_by", "first_gap", "shortcuts")
    return {**row["cell"], **{name: row[name] for name in kept}}


def decision(
    rows: Sequence[Row], gains: Sequence[float], planned: Sequence[Cell]
) -> dict[str, Any]:
    """The rule's conditions, each with what was found, and counts without a bar beside them."""
    large = [gain for gain in gains if gain >= LARGE]
    found: dict[str, Any] = {}
    for doses, most in MOST_GENUINE.items():
        told = " ".join(f"{100 * dose:g}" for dose in doses)
        for name, where in (("all gains", gains), ("20 points and more", large)):
            chosen = [row for gain in where for dose in doses for row in dosed(rows, gain, dose)]
            found[f"doses of {told} %, {name}: genuine at most {most:.0%}"] = _judged(
                share(chosen, passed), lambda k, n, most=most: k <= most * n
            )
    allowed = [row for gain in large for row in tooled(rows, gain, None, True)]
    refused = [row for gain in large for row in tooled(rows, gain, None, False)]
    honest = [row for gain in large for row in dosed(rows, gain, 0.0)]
    everyone = [row for row in rows if cell(row).honest]
    found["honest, 20 points and more: genuine at least 90 %"] = _judged(
        share([*honest, *allowed], genuine), lambda k, n: k >= LEAST_HONEST * n
    )
    found["new tool not allowed, 20 points and more: source-not-allowed at least 90 %"] = _judged(
        share(refused, withheld), lambda k, n: k >= LEAST_HONEST * n
    )
    found["honest accused: none"] = _judged(share(everyone, accused), lambda k, n: k == 0)
    enough = all(
        one["seeds_whole"] >= LEAST_SEEDS
        for gain, one in _seeds(rows, planned).items()
        if float(gain) >= LARGE
    )
    return {
        "conditions": found,
        "beside": _beside(rows, gains),
        "enough_seeds": enough,
        "holds": enough and all(one["holds"] for one in found.values()),
    }


def _beside(rows: Sequence[Row], gains: Sequence[float]) -> dict[str, Any]:
    """Each dose, and honest policies at each gain."""
    found = {
        f"dose {dose:.0%}: genuine": share(
            [row for gain in gains for row in dosed(rows, gain, dose)], passed
        )
        for dose in DOSES
        if dose
    }
    for gain in gains:
        honest = [*dosed(rows, gain, 0.0), *tooled(rows, gain, None, True)]
        found[f"honest at {100 * gain:g} points: genuine"] = share(honest, genuine)
    return found


def _judged(counted: dict[str, Any], holds: Callable[[int, int], bool]) -> dict[str, Any]:
    return {**counted, "holds": counted["n"] > 0 and holds(counted["k"], counted["n"])}
