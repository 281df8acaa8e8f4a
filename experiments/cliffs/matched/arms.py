"""The pairs of every arm, and how many tokens were sampled to get them."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cliffs.cliff_dpo import (
    Pairs,
    answer_pair,
    cliff_arm,
    cut,
    random_arm,
    weighted_tokens,
)
from experiments.cliffs.collecting import SETTINGS, collect, start, world
from forensics.progress import Progress
from forensics.records import PreferencePair, Provenance, Trajectory
from forensics.records.files import read_json, write_json, write_json_lines
from forensics.records.train_rows import read_pairs

ARMS = ("cliff", "random", "whole", "whole-tokens", "whole-budget")
TASKS, RUNS = 200, 16  # played at a time for whole answers, and runs of each
STREAM = 30_000  # apart from the streams of the search
Bill = dict[str, int]
Row = dict[str, Any]


def pairs_of(
    arm: str, seed: int, folder: Path, progress: Progress
) -> tuple[list[PreferencePair], int]:
    """The pairs of an arm and the tokens that were sampled for them.

    `cliff`: all at the confirmed cliffs. `random`: as many single tokens at
    unsure positions. `whole`: as many won against lost runs, each of another
    task. `whole-tokens`: those of them that fit into the weighted tokens of
    `cliff`.
    `whole-budget`: as many whole answers as can be had for the tokens that
    `cliff` was sampled with.
    """
    cliff, random, bill = single_tokens(seed, folder, progress)
    if arm in ("cliff", "random"):
        return (
            (cliff, bill["runs"] + bill["rollouts"]) if arm == "cliff" else (random, bill["runs"])
        )
    rows = whole_answers(seed, folder / "whole", progress)
    budget = bill["runs"] + bill["rollouts"]
    whole, spent = affordable(rows, budget, None if arm == "whole-budget" else len(cliff))
    if arm == "whole-tokens":
        whole = cut(whole, weighted_tokens(cliff), np.random.default_rng([seed, 6]))
    return whole, spent


def single_tokens(
    seed: int, folder: Path, progress: Progress
) -> tuple[list[PreferencePair], list[PreferencePair], Bill]:
    """Pairs at cliffs, as many at random positions, and the bill: tokens of the
    first runs and of all rollouts.
    """
    cliff, random, bill = folder / "cliff.jsonl", folder / "random.jsonl", folder / "bill.json"
    if not bill.exists():
        found = collect(seed, folder, progress, delete_keep=0)
        pairs = list(cliff_arm(found))
        _write_pairs(cliff, pairs)
        _write_pairs(random, list(random_arm(found, len(pairs), np.random.default_rng([seed, 5]))))
        write_json(
            bill,
            {
                "runs": sum(run.sampled_tokens or 0 for run in found.runs),
                "rollouts": stored_tokens(folder / "rollouts"),
            },
        )
    return read_pairs(cliff), read_pairs(random), read_json(bill)


def stored_tokens(folder: Path) -> int:
    """Tokens of all rollouts that a store holds: for the search, its
    confirmation, and the alternatives.
    """
    return sum(
        len(json.loads(line)["tokens"])
        for part in sorted(folder.glob("*/part-*.jsonl"))
        for line in part.read_text().splitlines()
    )


def whole_answers(seed: int, folder: Path, progress: Progress) -> Iterator[Row]:
    """Task after task without end: its name, the tokens of its runs, and a pair
    if some were won and some lost.
    """
    for number in count():
        path = folder / f"{number:03d}.json"
        if not path.exists():
            progress(f"seed {seed}, whole answers", number, number + 1)
            write_json(path, _play(seed, number))
        yield from read_json(path)


def _play(seed: int, number: int) -> list[Row]:
    policy, place = start(), world()
    tasks = place.tasks("train", (number + 1) * TASKS, seed)[number * TASKS :]
    by_task: dict[str, list[Trajectory]] = {task: [] for task in tasks}
    for run in policy.play(place, tasks, RUNS, SETTINGS, seed + STREAM):
        by_task[run.task].append(run)
    return [task_row(task, runs, policy.identity) for task, runs in by_task.items()]


def task_row(task: str, runs: Sequence[Trajectory], policy: str) -> Row:
    """The first won and the first lost run of a task as a pair, and what all its runs cost."""
    won = next((run for run in runs if run.outcome is not None and run.outcome > 0), None)
    lost = next((run for run in runs if run.outcome == 0 and run.sampled_tokens), None)
    pair = None
    if won and lost:
        provenance = Provenance(instrument="whole answers", config={"runs": len(runs)})
        pair = answer_pair(won, lost, policy=policy, provenance=provenance).model_dump(mode="json")
    return {"task": task, "tokens": sum(run.sampled_tokens or 0 for run in runs), "pair": pair}


def affordable(
    rows: Iterator[Row], budget: int, most: int | None
) -> tuple[list[PreferencePair], int]:
    """The first `most` pairs (`None`: all) of the tasks that `budget` tokens
    pay for, and what those tasks cost.
    """
    pairs, spent = list[PreferencePair](), 0
    for row in rows:
        if spent + row["tokens"] > budget or len(pairs) == most:
            break
        spent += row["tokens"]
        pairs += [PreferencePair.model_validate(row["pair"])] if row["pair"] else []
    return pairs, spent


def _write_pairs(path: Path, pairs: Pairs) -> None:
    write_json_lines(path, (pair.model_dump(mode="json") for pair in pairs))
