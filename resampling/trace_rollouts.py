"""What is asked of a sampler, and what it gives back: the seam between sampling
again and reading it.

1. A `Trace` is one recorded run as tokens, with the probability of each under
   the sampler.
2. Everything in this room that samples (a model here, a server over HTTP, many
   workers, exactly solvable traces) is a `Sampler`; everything that reads
   (potentials, cliffs, delete and keep, the truncation curve) sees only
   `Request` and `Rollout`. A rollout is a function of its request and its
   number alone, so it can be made anywhere, in any order, and stored.
3. Outcomes of one `Branch` are kept together, by the number of their rollout.

Positions count the *sampled* tokens of a trace from 0: `kept = k` keeps the
first k of them and what the environment said in between, so k = 0 is the prompt
and `p[k]` is the probability of success from there. The token that leads from
`p[k]` to `p[k + 1]` has position k.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from typing import Any, NamedTuple, Protocol

import numpy as np

from forensics.errors import UserError
from forensics.records import Ending, Trajectory, content_hash
from forensics.statistics import Estimate, binomial


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One run.

    `ids`: all token ids of the run, the prompt and the environment's words
    included. `positions` `[N]`: where in `ids` the sampled tokens stand.
    `steps` `[N]`: the step of the trajectory that each belongs to.
    `logprobs` `[N]`: nats under the very settings that continuations are
    sampled with (`pi_t = exp(logprobs[t])`).
    `outcome`: the score of the recorded run itself, which is never counted as a
    rollout.
    """

    id: str
    task: str
    ids: tuple[int, ...]
    positions: tuple[int, ...]
    steps: tuple[int, ...]
    logprobs: np.ndarray
    outcome: float | None

    def __len__(self) -> int:
        """N, the number of sampled tokens; prefixes are `kept` = 0 to N."""
        return len(self.positions)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The sampled tokens `[N]`."""
        return tuple(self.ids[position] for position in self.positions)

    @property
    def probabilities(self) -> np.ndarray:
        """`pi_t` `[N]`."""
        return np.asarray(np.exp(self.logprobs))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each action starts in `ids`."""
        return tuple(
            p for i, p in enumerate(self.positions) if i == 0 or self.steps[i] != self.steps[i - 1]
        )

    @property
    def fingerprint(self) -> str:
        """A content hash of the text: a run's id does not say under which
        settings it was drawn.
        """
        return content_hash([self.ids, self.positions])

    def prefix(self, kept: int) -> tuple[int, ...]:
        """The token ids up to the first `kept` sampled tokens.

        Where the next sampled token opens a later action, the environment's
        words before it are part of the prefix.
        """
        if not 0 <= kept <= len(self):
            raise ValueError(f"kept must be in 0..{len(self)}, not {kept}")
        end = self.positions[kept] if kept < len(self) else self.positions[-1] + 1
        return self.ids[:end]


def trace_of(trajectory: Trajectory, logprobs: Sequence[float] | None = None) -> Trace:
    """A trajectory with token ids as a trace; `logprobs` `[N]` replace the
    recorded ones.

    Raises `UserError` where the trajectory has no token ids or no
    log-probabilities.
    """
    ids: list[int] = []
    positions: list[int] = []
    steps: list[int] = []
    recorded: list[float] = []
    for number, step in enumerate(trajectory.steps):
        if step.token_ids is None or step.sampled is None:
            raise UserError(
                f"step {number} of trajectory {trajectory.id} has no token ids, so it cannot be"
                " continued; record the runs with their tokens"
            )
        positions += [len(ids) + i for i, drawn in enumerate(step.sampled) if drawn]
        steps += [number] * sum(step.sampled)
        ids += step.token_ids
        recorded += step.logprobs or ()
    scores = np.asarray(recorded if logprobs is None else logprobs, dtype=np.float64)
    if scores.shape != (len(positions),):
        raise UserError(
            f"trajectory {trajectory.id} has {len(positions)} sampled tokens and {scores.size}"
            " log-probabilities; score it under the policy that continues it"
        )
    return Trace(
        id=trajectory.id,
        task=trajectory.task,
        ids=tuple(ids),
        positions=tuple(positions),
        steps=tuple(steps),
        logprobs=scores,
        outcome=trajectory.outcome,
    )


def unscored_trace(trajectory: Trajectory) -> Trace:
    """A trajectory with token ids as a trace whose log-probabilities nobody reads (NaN)."""
    return trace_of(trajectory, [nan] * (trajectory.sampled_tokens or 0))


class Branch(NamedTuple):
    """Where rollouts branch off: a trace and how many of its sampled tokens are
    kept, then what is appended, or that its next token is avoided.
    """

    trace: str
    kept: int
    avoid: bool = False
    append: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """`n` continuations of a trace after its first `kept` sampled tokens,
    numbers `first` to `first + n - 1`.

    `append`: tokens that are put after what was kept before sampling goes on
    (an alternative token, an enforced answer). `avoid`: the first token is
    drawn from the sampler's distribution without the trace's own next token.
    """

    trace: str
    kept: int
    n: int
    first: int = 0
    append: tuple[int, ...] = ()
    avoid: bool = False

    def __post_init__(self) -> None:
        if self.kept < 0 or self.n < 1 or self.first < 0:
            raise ValueError(f"a request needs kept >= 0, n >= 1 and first >= 0, not {self}")
        if self.avoid and self.append:
            raise ValueError(
                "a request either appends tokens or avoids one, since what is appended is not drawn"
            )

    @property
    def branch(self) -> Branch:
        return Branch(self.trace, self.kept, self.avoid, self.append)

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.n)


def by_trace(requests: Iterable[Request]) -> dict[str, list[Request]]:
    """Requests trace by trace, in the order of their prefixes."""
    traces: dict[str, list[Request]] = {}
    for request in requests:
        traces.setdefault(request.trace, []).append(request)
    return {name: sorted(of, key=lambda request: request.kept) for name, of in traces.items()}


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One continuation to the end of the run.

    `tokens`: the sampled tokens, in order (what the environment said is not
    among them). `followed`: how many of them, from the first, repeat the
    trace's own and are still inside one run with it, so that the rollout is an
    exact draw for `p[kept]` to `p[kept + followed]`; 0 where something was
    appended. `outcome`: the score, `None` where it is missing (a failed
    request, a broken environment), which is never a failure of the policy;
    `end_reason` says why. Without more than its place a rollout is a missing one.
    """

    trace: str
    kept: int
    number: int
    append: tuple[int, ...] = ()
    avoid: bool = False
    tokens: tuple[int, ...] = ()
    followed: int = 0
    outcome: float | None = None
    end: Ending = "errored"
    end_reason: str | None = None
    submission: str | None = None

    @property
    def branch(self) -> Branch:
        return Branch(self.trace, self.kept, self.avoid, self.append)


def rollout_of(row: Mapping[str, Any]) -> Rollout:
    """A rollout out of its JSON object."""
    return Rollout(**{**row, "append": tuple(row["append"]), "tokens": tuple(row["tokens"])})


class Sampler(Protocol):
    """Anything that can continue traces."""

    @property
    def identity(self) -> str:
        """A content hash of what the rollouts depend on: policy, environment, settings, seed."""
        ...

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish: the order is not promised."""
        ...


def fingerprint_of(source: Any, trace: str) -> str:
    """What a sampler, or whatever builds one, calls the text of a trace; nothing
    where it says nothing.
    """
    known = getattr(source, "fingerprint", None)
    return str(known(trace)) if known else ""


# Numbers of rollouts by purpose: what confirms or replays must never be what was searched with.
DELETE_KEEP, ALTERNATIVES, TRUNCATION, READER = (n << 21 for n in (2, 3, 4, 5))

SUCCESS = 0.5  # the score from which a run is a success


@dataclass
class BranchOutcomes:
    """Outcomes of one branch, by the number of their rollout; `missing` counts
    rollouts without a score.
    """

    outcomes: dict[int, float] = field(default_factory=dict)
    missing: int = 0

    @property
    def scores(self) -> np.ndarray:
        """`[n]` in the order of their numbers, whatever the order in which they came."""
        return np.array([self.outcomes[number] for number in sorted(self.outcomes)])

    @property
    def successes(self) -> int:
        return int((self.scores >= SUCCESS).sum())

    @property
    def share(self) -> Estimate | None:
        """Of successes, with its exact 95 % interval; `None` where no score came."""
        return binomial(self.successes, len(self.outcomes)) if self.outcomes else None

    def row(self) -> dict[str, Any]:
        """As one JSON object."""
        estimate, low, high = self.share.ends if self.share else (None,) * 3
        return {
            "successes": self.successes,
            "n": len(self.outcomes),
            "missing": self.missing,
            "estimate": estimate,
            "low": low,
            "high": high,
        }


def draw_branches(sampler: Sampler, requests: Iterable[Request]) -> dict[Branch, BranchOutcomes]:
    """Every request drawn, by branch; what was asked twice is drawn once."""
    unique = list(dict.fromkeys(requests))
    branches = {request.branch: BranchOutcomes() for request in unique}
    for rollout in sampler.draw(unique):
        branch = branches[rollout.branch]
        if rollout.outcome is None:
            branch.missing += 1
        else:
            branch.outcomes[rollout.number] = rollout.outcome
    return branches


def pass_at(k: int, scores: np.ndarray) -> float | None:
    """The unbiased chance that one of k draws succeeds (2107.03374); `None`
    with fewer than k draws.

    `scores` `[n]`; a success is a score of at least one half.
    """
    n, failures = len(scores), int((scores < SUCCESS).sum())
    if n < k:
        return None
    # without a success the product is empty
    return float(1 - np.prod(np.maximum(1 - k / np.arange(failures + 1, n + 1), 0)))
