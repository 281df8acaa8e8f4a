"""What is asked of a sampler, and what it gives back: the seam between sampling again and reading it.

Everything in this room that samples (a model here, a server over HTTP, many workers, an exactly solvable world)
is a `Sampler`; everything that reads (potentials, cliffs, delete and keep, the truncation curve) sees only
`Request` and `Rollout`. A rollout is a function of its request and its number alone, so it can be made anywhere, in
any order, and stored.

Positions count the *sampled* tokens of a trace from 0: `kept = k` keeps the first k of them and what the environment
said in between, so k = 0 is the prompt and `p[k]` is the probability of success from there. The token that leads from
`p[k]` to `p[k + 1]` has position k.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from forensics.records.trajectory import Ending


@dataclass(frozen=True, kw_only=True)
class Request:
    """`n` continuations of a trace after its first `kept` sampled tokens, numbers `first` to `first + n - 1`.

    `append`: tokens that are put after what was kept before sampling goes on (an alternative token, an enforced
    answer). `avoid`: the first token is drawn from the sampler's distribution without the trace's own next token.
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
            raise ValueError("a request either appends tokens or avoids one, since what is appended is not drawn")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One continuation to the end of the run.

    `tokens`: the sampled tokens, in order (what the environment said is not among them). `followed`: how many of
    them, from the first, repeat the trace's own and are still inside one run with it, so that the rollout is an exact
    draw for `p[kept]` to `p[kept + followed]`; 0 where something was appended. `outcome`: the score, `None` where it
    is missing (a failed request, a broken environment), which is never a failure of the policy; `end_reason` says why.
    """

    trace: str
    kept: int
    number: int
    append: tuple[int, ...] = ()
    avoid: bool = False
    tokens: tuple[int, ...]
    followed: int
    outcome: float | None
    end: Ending
    end_reason: str | None = None
    submission: str | None = None


class Sampler(Protocol):
    """Anything that can continue traces."""

    @property
    def identity(self) -> str:
        """A content hash of what the rollouts depend on: policy, environment, settings, seed."""
        ...

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish: the order is not promised."""
        ...
