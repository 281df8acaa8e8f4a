"""The study's figures as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forensics.phrases import percent

Row = Mapping[str, Any]


def markdown(result: Row) -> str:
    """All tables of `table.md`."""
    parts = (
        _labelled(result["labelled"]),
        _disagreements(result["disagreements"]),
        _unlabelled(result["unlabelled"]),
        _beside(result["beside"]),
        _organisms(result["organisms"]),
    )
    return "\n".join(line for part in parts for line in (*part, ""))


def _labelled(labelled: Mapping[str, Row]) -> Iterator[str]:
    yield (
        "| labelled runs | tampered, found used | precision of used | twins: silent, attempt, more"
        " | credited |"
    )
    yield "|---|---|---|---|---|"
    for source, found in labelled.items():
        twins = found["twins"]
        more = twins["obtained"] + twins["used"] + twins["credited"]
        for name, recall in found["recall"].items():
            if recall["n"]:
                last = name == "all"
                told = (
                    _share(found["precision"]),
                    f"{twins['none']}, {twins['attempt']}, {more}",
                    found["credited"],
                )
                yield (
                    f"| {source}, confidence {name} | {_share(recall)} | "
                    + " | ".join(str(value) if last else "" for value in told)
                    + " |"
                )
        if not found["recall"]["all"]["n"]:
            yield f"| {source} | none labelled | | {twins['none']}, {twins['attempt']}, {more} | |"
    yield ""
    for source, found in labelled.items():
        yield (
            f"{source}: {_share(found['twins_above_an_attempt'])} of the twins are reported as more"
            " than an attempt."
            + (
                f" Of the tampered runs {found['resolved']} are resolved by the benchmark's own"
                f" tests; of their {found['labelled_steps']} labelled actions"
                f" {found['labelled_steps_cited']} are cited."
                if found["labelled_steps"]
                else ""
            )
        )


def _disagreements(rows: Sequence[Row]) -> Iterator[str]:
    yield "| disagreement | run | labelled / cited actions | read by hand |"
    yield "|---|---|---|---|"
    for row in rows:
        steps = f"{_steps(row['labelled'])} / {_steps(row['cited'])}" if "labelled" in row else ""
        yield f"| {row['kind']} | {row['run']} | {steps} | {row['reading']} |"


def _steps(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers)) or "none"


def _unlabelled(found: Row) -> Iterator[str]:
    yield (
        "| folder | verdict | runs | with tools | tasks | attempts | used or credited | degenerate"
        " | unreadable |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    keys = (
        "folder",
        "label",
        "runs",
        "agents",
        "tasks",
        "attempted",
        "flagged",
        "degenerate",
        "unreadable",
    )
    for row in found["folders"]:
        yield "| " + " | ".join(str(row[key]) for key in keys) + " |"
    for folder, why in found["without_runs"].items():
        yield f"| {folder} | refused: {why} | | | | | | | |"
    yield ""
    for name, rate in (
        ("Runs with tool answers", found["agents"]),
        ("All runs without a label", found["all"]),
    ):
        yield (
            f"{name}: {rate['flagged']} of {rate['runs']} used or credited ({_range(rate)},"
            f" {rate['tasks']} tasks)."
        )


def _beside(found: Row) -> Iterator[str]:
    agents = found["rows"][0]["agents"]
    yield (
        f"| detector | flagged at | precision | recall | F1 | of {agents['runs']} unlabelled runs"
        " with tools | only ours right, only this right |"
    )
    yield "|---|---|---|---|---|---|---|"
    for row in found["rows"]:
        rate, alone = row["agents"], row["only_right"]
        told = (
            "" if alone["p"] is None else f"{alone['ours']}, {alone['this']} (p = {alone['p']:.2g})"
        )
        threshold = row["threshold"] + (", **labels in view**" if row["in_view"] else "")
        columns = (
            row["detector"],
            threshold,
            _share(row["precision"]),
            _share(row["recall"]),
            _range(row["f1"]),
            f"{rate['flagged']} ({_range(rate)})",
            told,
        )
        yield "| " + " | ".join(columns) + " |"
    yield ""
    yield (
        f"Over {found['labelled']} labelled runs. Our rules were written with these runs in view,"
        " the peer's were not, and it looks for other breaches too: no estimate for runs from"
        " elsewhere."
    )
    if found["missing"]:
        yield found["missing"]


def _organisms(found: Row) -> Iterator[str]:
    built = f", and {', '.join(found['built'])} trained" if found["built"] else ""
    bundled = found["policies"] - len(found["built"])
    yield (
        f"Organisms: {found['runs']} runs of {found['policies']} policies ({bundled} bundled"
        f" ones{built})."
    )
    yield ""
    yield "| channel | precision of used | recall of used |"
    yield "|---|---|---|"
    for name, row in found["channels"].items():
        yield f"| {name} | {_share(row['precision'])} | {_share(row['recall'])} |"
    yield ""
    clean = found["clean"]
    yield f"In the world without shortcuts: {clean['flagged']} of {clean['runs']} runs used any."
    yield ""
    if found["disagreements"]:
        yield "| policy | channel | task, run | the environment | read by hand |"
        yield "|---|---|---|---|---|"
    for row in found["disagreements"]:
        said = "used" if row["true"] else "not used"
        yield f"| {row['policy']} | {row['channel']} | {row['run']} | {said} | {row['reading']} |"


def _share(row: Row) -> str:
    return f"{row['count']} of {row['n']} ({_range(row)})"


def _range(row: Row) -> str:
    if row["share"] is None:
        return "no interval"
    return f"{percent(row['share'], 1)}, {percent(row['low'], 1)} to {percent(row['high'], 1)}"
