"""Runs with a kind of action refused, and which kinds are worth refusing.

1. A stated number of the case's tasks, evenly spread over them.
2. A kind is a candidate if *after* uses it in more runs than half of the gain: refusing it changes only runs that
   would have used it, so no other kind can carry half of the gain. A bound, not a choice.
3. A pilot on few tasks refuses each candidate to *before*: a kind that it shows to be needed (handing in, editing)
   fails condition (b) and is not played out, and one that leaves too few scored runs cannot be judged.
4. Every policy plays all of its constraints before the next is loaded.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.case import Case, Rollouts
from forensics.layers.decomposition import COLUMNS, Runs, read_runs
from forensics.protocols import Constraint
from resampling.kinds import action_kinds

Kinds = tuple[str, ...]  # refused together, sorted
STEP = "steps.list.element."
READ = (*COLUMNS, f"{STEP}text", f"{STEP}kinds", f"{STEP}tool_calls")
EVERY_DRAW = "every draw was refused"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One policy in one world: its scores by task, and of all runs the share that used each kind.

    `missing`: share of the runs that ended because every draw was refused.
    """

    runs: Runs
    usage: Mapping[str, float]
    missing: float


@dataclass(frozen=True, kw_only=True)
class Played:
    """Both sides with some kinds refused (none: `()`)."""

    before: Side
    afters: tuple[Side, ...]

    @property
    def pair(self) -> tuple[Runs, tuple[Runs, ...]]:
        return self.before.runs, tuple(side.runs for side in self.afters)

    @property
    def missing(self) -> float:
        """The largest share of runs without a score among the sides."""
        return max(side.missing for side in (self.before, *self.afters))

    def after_usage(self, kind: str) -> float:
        """Share of the runs after training that use a kind, the mean over training seeds."""
        return sum(side.usage.get(kind, 0.0) for side in self.afters) / len(self.afters)

    @property
    def after_kinds(self) -> Kinds:
        return tuple(sorted({kind for side in self.afters for kind in side.usage}))


def chosen_tasks(tasks: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many tasks, evenly spread."""
    if len(tasks) <= most:
        return tuple(tasks)
    return tuple(tasks[number * len(tasks) // most] for number in range(most))


def refusal(kinds: Kinds, max_redraws: int) -> Constraint:
    """The constraint that refuses every action with one of these kinds in it."""
    refused = frozenset(kinds)
    return Constraint(
        name=f"refuse:{'+'.join(kinds)} redraws:{max_redraws}", max_redraws=max_redraws,
        allows=lambda text, named: refused.isdisjoint(action_kinds(text, named)),
    )


def read_side(log: Rollouts, tasks: Iterable[str] | None = None) -> Side:
    """One side's runs, or those of some tasks."""
    wanted = None if tasks is None else frozenset(tasks)
    rows = [row for row in log.rows(*READ) if wanted is None or row["task"] in wanted]
    used = Counter(kind for row in rows for kind in _kinds_of(row))
    missing = sum((row["end_reason"] or "").startswith(EVERY_DRAW) for row in rows)
    total = max(len(rows), 1)
    return Side(
        runs=read_runs(rows), usage={kind: count / total for kind, count in sorted(used.items())},
        missing=missing / total,
    )


def _kinds_of(row: Mapping[str, Any]) -> set[str]:
    """The kinds that a run used."""
    found: set[str] = set()
    for step in row["steps"]:
        if step["role"] == "assistant":
            named = step["kinds"] or [call["name"] for call in step["tool_calls"] or ()]
            found.update(action_kinds(step["text"], named))
    return found


def played_plainly(case: Case, tasks: Sequence[str]) -> Played:
    """The case's own open-world runs on these tasks."""
    before, *afters = (read_side(case.rollouts(side), tasks) for side in ("before", *case.afters))
    return Played(before=before, afters=tuple(afters))


def played_without(
    case: Case, refused: Sequence[Kinds], tasks: Sequence[str], max_redraws: int
) -> dict[Kinds, Played]:
    """Both policies with each set of kinds refused, policy by policy."""
    sides = {
        side: [read_side(case.rollouts(side, constraint=refusal(kinds, max_redraws), tasks=tasks)) for kinds in refused]
        for side in ("before", *case.afters)
    }
    return {
        kinds: Played(before=sides["before"][i], afters=tuple(sides[after][i] for after in case.afters))
        for i, kinds in enumerate(refused)
    }


def candidates(plain: Played, least: float, most: int) -> tuple[str, ...]:
    """The kinds that *after* uses in more than `least` of its runs, at most the `most` most used, by name.

    None in a world of one action: there is nothing that could take its place.
    """
    if len({*plain.before.usage, *plain.after_kinds}) < 2:
        return ()
    used = [(-share, kind) for kind in plain.after_kinds if (share := plain.after_usage(kind)) > least]
    return tuple(sorted(kind for _, kind in sorted(used)[:most]))


def substitutes(
    played: Mapping[Kinds, Played], plain: Played, least: float, most: int, excluded: Iterable[str]
) -> list[Kinds]:
    """Pairs of a refused kind and one that *after* then turned to, the strongest turn first.

    A pair can carry half of the gain only if the second kind is used in more than `least` of the runs in which the
    first is refused; without a turn towards it, refusing the first alone says as much.
    """
    barred = frozenset(excluded)
    turns: dict[Kinds, float] = {}
    for kinds, without in played.items():
        for other in without.after_kinds:
            turn = without.after_usage(other) - plain.after_usage(other)
            if len(kinds) == 1 and other not in barred and without.after_usage(other) > least and turn > least / 2:
                pair = tuple(sorted((*kinds, other)))
                turns[pair] = max(turn, turns.get(pair, 0.0))
    return sorted(turns, key=lambda pair: (-turns[pair], pair))[:most]
