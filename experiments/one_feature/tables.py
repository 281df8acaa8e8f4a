"""The tables of the study, and its rule over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.one_feature.measuring import carries
from experiments.one_feature.settings import RULED

CONTROLS = ("planted", "installed")
QUESTION = "leak"
ORGANISMS = (*CONTROLS, QUESTION)
SEEDS = 3
COSINE = 0.9
NO_DIFFERENCE = "no difference"
Row = Mapping[str, Any]


def carried(row: Row) -> bool:
    """The rule of one seed: the effects, and the planted direction where there is one."""
    return carries(row, RULED) and (row["cosine"] is None or row["cosine"] >= COSINE)


def works(rows: Sequence[Row]) -> bool:
    """Whether both controls hold in all seeds, so that `leak` may be read."""
    return all(
        sum(carried(row) for row in rows if row["organism"] == name) == SEEDS for name in CONTROLS
    )


def markdown(rows: Sequence[Row], planned: int) -> str:
    """First decisions, then the rule's answer, then episodes."""
    lines = [
        "# Does one dedicated feature carry the change?",
        "",
        "Written by `python -m experiments.one_feature`. Shares of",
        (
            "the difference between the models in the chance of the action at the first decision,"
            " with 95 % intervals over"
        ),
        f"tasks. {len(rows)} of {planned} planned runs are done.",
        "",
        "| organism | seed | carrier | cosine | strength | removed | installed |",
        "|---|---|---|---|---|---|---|",
        *(line for row in rows for line in _first_decisions(row)),
        "",
        _answer(rows),
        "",
    ]
    played = [row for row in rows if row["episodes"] is not None]
    return "\n".join([*lines, *(_episodes(played) if played else [])])


def _first_decisions(row: Row) -> list[str]:
    """A line for each carrier; the random directions as their largest."""
    head, lines = f"| {row['organism']} | {row['seed']} |", []
    for name, one in row["carriers"].items():
        cosine = f"{row['cosine']:.3f}" if name == RULED and row["cosine"] is not None else ""
        lines.append(
            f"{head} {name} | {cosine} | {one['strength']:g} | {_share(one['removed'])} | "
            f"{_share(one['installed'])} |"
        )
    if row["whole"] is not None:
        whole = row["whole"]
        lines.append(
            f"{head} the whole residual | | | {_share(whole['removed'])} |"
            f" {_share(whole['installed'])} |"
        )
    removed, installed = (
        _largest([one[what] for one in row["random"]]) for what in ("removed", "installed")
    )
    what = f"largest of {len(row['random'])} random directions"
    return [*lines, f"{head} {what} | | | {removed} | {installed} |"]


def _largest(shares: Sequence[Mapping[str, float] | None]) -> str:
    known = [share["estimate"] for share in shares if share is not None]
    return f"{max(known):.2f}" if known else NO_DIFFERENCE


def _answer(rows: Sequence[Row]) -> str:
    """What the rule says of the controls, and of `leak` where these hold."""
    seeds = {name: [carried(row) for row in rows if row["organism"] == name] for name in ORGANISMS}
    told = [
        f"{sum(seeds[name])} of {len(seeds[name])} seeds of `{name}`"
        for name in CONTROLS
        if seeds[name]
    ]
    said = f"By the rule the dedicated feature carries the behaviour in {', '.join(told)}."
    asked = seeds[QUESTION]
    if not works(rows) or len(asked) < SEEDS:
        return said
    answer = "runs" if all(asked) else "does not run"
    return (
        f"{said} In `{QUESTION}` it does in {sum(asked)} of {len(asked)}: the shortcut {answer}"
        " through one feature."
    )


def _episodes(rows: Sequence[Row]) -> list[str]:
    """Use of the history, success and turns in whole episodes, under the
    feature and its controls.
    """
    lines = [
        "## Episodes",
        "",
        (
            "Use of the history and success in whole episodes by `forensics steer`, the change at"
            " every decision, with 95 % intervals over tasks."
        ),
        "",
        "| organism | seed | change | uses the history | succeeds | hands in | turns |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        for mode, found in row["episodes"].items():
            lines += [
                f"| {row['organism']} | {row['seed']} | {line}" for line in _played(mode, found)
            ]
    return [*lines, ""]


ROLES = ("features", "mean-difference", "difference-subspace", "routing", "spillover")


def _played(mode: str, found: Mapping[str, Any]) -> list[str]:
    """Rows of one mode: both policies as they are (said once), the feature, the
    controls, the random ones together.
    """
    if "undefined" in found:
        return [f"{mode} | not known: {found['undefined']} | | | |"]
    lines = []
    for one in found["rows"]:
        if one["role"] in ROLES or (one["role"] == "unsteered" and mode == "ablate"):
            what = (
                f"{one['in']}, unsteered"
                if one["role"] == "unsteered"
                else f"{mode}, {one['role']}, in {one['in']}"
            )
            lines.append(f"{what} | {_history(one)} |")
    for role in ("random-direction", "random-feature"):
        if drawn := [one for one in found["rows"] if one["role"] == role]:
            lines.append(f"{mode}, {len(drawn)} {role}s, range | {_ranges(drawn)} |")
    return lines


def _history(row: Row) -> str:
    return " | ".join(_share(one, "not known") for one in _numbers(row))


def _ranges(rows: Sequence[Row]) -> str:
    """From the lowest to the highest of several draws."""
    columns = zip(*(_numbers(row) for row in rows), strict=True)
    known = [[one["estimate"] for one in column if one is not None] for column in columns]
    return " | ".join(
        f"{min(column):.2f} to {max(column):.2f}" if column else "not known" for column in known
    )


def _numbers(row: Row) -> list[Mapping[str, float] | None]:
    return [row["channel_use"]["git-history"], row["success"], row["handed_in"], row["turns"]]


def _share(share: Mapping[str, float] | None, missing: str = NO_DIFFERENCE) -> str:
    if share is None:
        return missing
    return f"{share['estimate']:.2f} ({share['low']:.2f} to {share['high']:.2f})"
