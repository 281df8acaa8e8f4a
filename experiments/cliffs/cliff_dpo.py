"""Part (c): DPO on single tokens at cliffs, against random tokens and whole
answers of the same size.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cliffs.collecting import SETTINGS, START, Collected, start, world
from forensics.policies.score_columns import top_tokens
from forensics.protocols import Policy
from forensics.records import PreferencePair, Provenance, Trajectory, content_hash
from forensics.records.files import read_json, write_json
from resampling.study import cliff_pairs, token_pair
from training import PreferenceStep, dpo, parse_preference_recipe

RATES = (1e-5, 3e-5, 1e-4, 3e-4)
CHOOSING, REPORTING, SAMPLES = 100, 400, 2
MINIBATCH = 16  # pairs an optimizer step
UNSURE = 0.2  # 1 - pi from which a position could have been another token
ARMS = ("cliff", "sampled-off", "uncertain", "random", "whole")
Pairs = Sequence[PreferencePair]


def all_pairs(found: Collected, seed: int) -> dict[str, list[PreferencePair]]:
    """The pairs of every arm, cut to the same number of weighted tokens."""
    rng = np.random.default_rng([seed, 5])
    arms: dict[str, list[PreferencePair]] = {"cliff": list(cliff_arm(found))}
    arms |= {kind: list(cliff_arm(found, kind)) for kind in ("sampled-off", "uncertain")}
    arms["random"] = list(random_arm(found, len(arms["cliff"]), rng))
    arms["whole"] = list(_whole(found))
    size = min(map(weighted_tokens, (arms["cliff"], arms["random"], arms["whole"])))
    return {name: cut(pairs, size, rng) for name, pairs in arms.items()}


def train_arm(pairs: Pairs, seed: int, rate: float, folder: Path) -> dict[str, Any]:
    """Train a fresh start and play both sets of held-out tasks; scores by task.
    Kept in the folder.
    """
    path = folder / f"{rate:g}.json"
    if not path.exists():
        policy, steps = trained(pairs, seed, rate)
        write_json(
            path,
            {
                "choosing": scores(policy, seed, False),
                "reporting": scores(policy, seed, True),
                "accuracy": steps[-1].losses["accuracy"] if steps else None,
            },
        )
    found: dict[str, Any] = read_json(path)
    return found


def trained(pairs: Pairs, seed: int, rate: float) -> tuple[Policy, list[PreferenceStep]]:
    """A fresh start after one pass over the pairs, and what each optimizer step did."""
    policy, steps = start(), list[PreferenceStep]()
    recipe = parse_preference_recipe(
        {
            "policy": {"checkpoint": START},
            "preference": {
                "pairs": "pairs.jsonl",
                "beta": 0.05,
                "minibatch": MINIBATCH,
                "learning_rate": rate,
            },
        },
        "the study",
    )
    dpo(policy, pairs, recipe, seed, report=steps.append)
    return policy, steps


def scores(policy: Any, seed: int, reporting: bool) -> dict[str, float]:
    """Mean outcome by held-out task; the tasks that choose and those that report are apart."""
    tasks = world().tasks("held-out", CHOOSING + REPORTING, 1000)
    return played(
        policy, tasks[CHOOSING:] if reporting else tasks[:CHOOSING], seed + 7000 * (1 + reporting)
    )


def played(policy: Any, tasks: Sequence[str], stream: int) -> dict[str, float]:
    """Mean outcome of `SAMPLES` runs by task, on a random stream."""
    found: dict[str, list[float]] = {}
    for run in policy.play(world(), tasks, SAMPLES, SETTINGS, stream):
        if run.outcome is None:
            raise RuntimeError(
                f"task {run.task} has a run without a score ({run.end_reason}); it is no failure"
            )
        found.setdefault(run.task, []).append(run.outcome)
    return {task: float(np.mean(found[task])) for task in tasks}


def cliff_arm(found: Collected, kind: str | None = None) -> Iterator[PreferencePair]:
    """Single-token pairs at the confirmed cliffs, of one kind or of all."""
    traces = {trace.id: trace for trace in found.opened.traces}
    for cliff, row in zip(found.study.report.cliffs, found.study.alternatives, strict=True):
        if kind in (None, cliff.kind):
            yield from cliff_pairs(
                traces[cliff.trace],
                cliff.token,
                row,
                policy=found.opened.policy.identity,
                provenance=found.study.provenance,
            )


def random_arm(found: Collected, number: int, rng: np.random.Generator) -> Iterator[PreferencePair]:
    """Single-token pairs at positions that are no cliffs, the chosen token
    drawn from the policy itself.
    """
    taken = {(cliff.trace, cliff.token) for cliff in found.study.report.cliffs}
    places = [
        (trace, token)
        for trace in found.opened.traces
        for token in np.flatnonzero(1 - trace.probabilities >= UNSURE)
        if (trace.id, int(token)) not in taken
    ]
    tops = {
        trace.id: top_tokens(found.opened.policy, trace.ids, 20, SETTINGS) for trace, _ in places
    }
    for place in rng.integers(len(places), size=number):
        trace, token = places[place]
        ids, logprobs = tops[trace.id].at(trace.positions[token])
        others = ids != trace.tokens[token]
        weights = np.exp(logprobs[others], dtype=float)
        choice = int(rng.choice(ids[others], p=weights / weights.sum()))
        yield token_pair(
            trace,
            int(token),
            choice,
            trace.tokens[token],
            found.opened.policy.identity,
            found.study.provenance,
        )


def _whole(found: Collected) -> Iterator[PreferencePair]:
    """A won against a lost run of one task."""
    by_task: dict[str, dict[bool, Trajectory]] = {}
    for run in found.runs:
        if run.outcome is not None:
            by_task.setdefault(run.task, {})[run.outcome > 0] = run
    for sides in by_task.values():
        if len(sides) == 2:
            yield answer_pair(
                sides[True],
                sides[False],
                policy=found.opened.policy.identity,
                provenance=found.study.provenance,
            )


def answer_pair(
    won: Trajectory, lost: Trajectory, *, policy: str, provenance: Provenance
) -> PreferencePair:
    """Two runs of one task as a pair; what was sampled has weight."""
    (prompt, chosen, first), (_, rejected, second) = map(_parts, (won, lost))
    return PreferencePair(
        id=content_hash(["whole", prompt, chosen, rejected, policy], 12),
        prefix=tuple(prompt),
        chosen=tuple(chosen),
        rejected=tuple(rejected),
        chosen_weights=first,
        rejected_weights=second,
        task=won.task,
        policy=policy,
        provenance=provenance,
    )


def _parts(run: Trajectory) -> tuple[list[int], list[int], tuple[float, ...]]:
    """The prompt, what follows it, and the weight of each token that follows: 1
    where it was sampled.
    """
    ids = [token for step in run.steps for token in step.token_ids or ()]
    sampled = [drawn for step in run.steps for drawn in step.sampled or ()]
    first = sampled.index(True)
    last = len(sampled) - sampled[::-1].index(True)
    return ids[:first], ids[first:last], tuple(float(drawn) for drawn in sampled[first:last])


def weighted_tokens(pairs: Pairs) -> int:
    return sum(_weight(pair) for pair in pairs)


def _weight(pair: PreferencePair) -> int:
    sides = ((pair.chosen, pair.chosen_weights), (pair.rejected, pair.rejected_weights))
    return sum(len(tokens) if weights is None else int(sum(weights)) for tokens, weights in sides)


def cut(pairs: Pairs, size: int, rng: np.random.Generator) -> list[PreferencePair]:
    """Pairs in a random order as long as their weighted tokens fit."""
    kept, spent = [], 0
    for place in rng.permutation(len(pairs)):
        if spent + _weight(pairs[place]) <= size:
            kept.append(pairs[place])
            spent += _weight(pairs[place])
    return kept


def chosen_rate(read: Callable[[float], dict[str, Any]]) -> float:
    """The learning rate with the best score on the tasks that choose; the smallest of equals."""
    return max(
        RATES, key=lambda rate: (float(np.mean(list(read(rate)["choosing"].values()))), -rate)
    )
