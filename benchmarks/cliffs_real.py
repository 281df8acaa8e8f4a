"""What cliffs cost on a real policy: a Hugging Face model on the engine, whose
potentials are known all the same.

The worlds of `benchmarks.cliffs` as the weights of one Llama
(`benchmarks.markov_policy`), sampled by `LocalSampler`. Ours on all traces
side by side; the published rule, 64 continuations at every token, on a few of
them, since it costs each trace the same. Both have the engine's tree: a prompt
is read once, and rollouts share what they have in common. Seconds are of
everything: reading, sampling, and what the search itself computes
(`own_seconds`); those of the processor do not hang on what else the machine
does. A token of this model costs little beside its handling, and the search
draws in smaller batches than the published rule does: with more traces side by
side ours takes fewer seconds a trace.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.cliffs import TARGETS, judged
from benchmarks.markov_policy import environment_of, policy_of, recorded, settings_of
from benchmarks.spread import spread
from experiments.cliffs.random_traces import Found, published_rule, random_traces
from forensics.protocols import Policy
from resampling import LocalSampler, Request, Rollout, SolvableTrace, Trace, find_cliffs, traces

SEED = 104


class Metered:
    """A sampler of our own for each side, that knows how long it took; it reads
    its texts and replays its runs.
    """

    def __init__(self, planted: Sequence[SolvableTrace], policy: Policy, seed: int) -> None:
        runs, self.seconds = recorded(planted, policy), 0.0
        self.sampler = LocalSampler(
            policy, environment_of(planted), runs, settings_of(planted), seed
        )
        self.traces = {trace.id: trace for trace in traces(policy, runs, settings_of(planted))}
        self.identity = self.sampler.identity

    def draw(self, requests: Sequence[Request]) -> Iterator[Rollout]:
        began = time.perf_counter()
        rollouts = list(self.sampler.draw(requests))
        self.seconds += time.perf_counter() - began
        return iter(rollouts)


def ours(chosen: Sequence[Trace], sampler: Metered) -> Found:
    """Search and confirmation with their defaults."""
    report = find_cliffs(chosen, sampler)
    cliffs = frozenset((cliff.trace, cliff.token) for cliff in report.cliffs)
    return Found(cliffs=cliffs, rollouts=report.rollouts, tokens=report.tokens)


def measured(
    way: Callable[[Sequence[Trace], Metered], Found],
    planted: Sequence[SolvableTrace],
    sampler: Metered,
) -> dict[str, float]:
    """What a way finds on these worlds, and the cost of one trace."""
    began, used = time.perf_counter(), time.process_time()
    found = way([sampler.traces[world.trace.id] for world in planted], sampler)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    costs = {
        "seconds": seconds,
        "own_seconds": seconds - sampler.seconds,
        "processor_seconds": processor,
    }
    each = {name: value / len(planted) for name, value in costs.items()}
    return {**judged(found, planted), **each, "tokens_per_second": found.tokens / sampler.seconds}


def run(
    device: str = "cpu", count: int = 20, published: int = 3, repeats: int = 2, seed: int = SEED
) -> dict[str, Any]:
    """Ours on `count` traces, `repeats` times; the published rule on the first
    `published` of them, one by one.
    """
    planted = random_traces("long", count, seed)
    policy = policy_of(planted, device)
    mine = [measured(ours, planted, Metered(planted, policy, repeat)) for repeat in range(repeats)]
    theirs = [
        measured(published_rule, [world], Metered(planted, policy, 0))
        for world in planted[:published]
    ]
    return {
        "benchmark": f"cliffs of {count} long traces of a Hugging Face policy, exactly solvable",
        "targets": TARGETS,
        "seed": seed,
        "parameters": policy.model.num_parameters(),
        "ours": {name: spread([row[name] for row in mine]) for name in mine[0]},
        "published": {name: spread([row[name] for row in theirs]) for name in theirs[0]},
        **{
            f"published_{unit}_over_ours": spread(
                [row[unit] / other[unit] for row in theirs for other in mine]
            )
            for unit in ("rollouts", "tokens", "seconds", "processor_seconds")
        },
        "device": device,
    }
