"""Bets that a policy draws otherwise than it is claimed to, priced at each token.

1. A *departure* is a distribution `q` made of the claimed one, `p`: another temperature, a cut
   tail (top-k, top-p), the likeliest token too often (what a drafter that accepts too much
   does), another checkpoint's distribution mixed in, or what earlier texts taught. It is held
   as its ratio `r = q / p` over the vocabulary, so `sum p r = 1`.
2. Who bets one unit on `q` at a token holds `r(x)` once `x` is drawn. If `x` comes from `p`,
   the expectation is 1 exactly, whatever stood before (a betting martingale: 2208.01416's
   testing by betting). If it comes from some `p'` with `chi2(p' || p) <= delta^2`, it is at
   most `1 + delta sigma`, `sigma^2 = chi2(q || p)`, by Cauchy and Schwarz.
3. So of each bet five numbers are kept: the log of what it holds, and its mean, variance,
   `sigma` and the total variation distance, all expected if `q` were drawn from. The last four
   say, at the very contexts of the test, how far a bet could see.
4. *Taught*: which tokens, by their place in the action, and which levels of probability came
   more often than expected. Only what stands out (`STANDS_OUT` standard deviations) moves a
   ratio, and only in texts that come later.

Cuts keep `KEPT` of themselves, the rest is `p`: one token outside of a cut costs a bet nearly
all, but does not end it. Ratios of another checkpoint are clipped at `LARGEST` and normed anew.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

TEMPERATURES: Final = (0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5)  # times the claimed one
TOP_P: Final = (0.5, 0.8, 0.9, 0.95, 0.98)
TOP_K: Final = (1, 5, 20, 50)
SURER: Final = (0.03, 0.1, 0.3)  # share of draws that are the likeliest token, whatever p says
SHARES: Final = (0.1, 0.5, 0.98)  # of another checkpoint
KEPT: Final = 0.98
LARGEST: Final = 20.0
PLACES: Final = 4  # in an action: the first tokens one by one, then all others
LEVELS: Final = (0.02, 0.1, 0.3, 0.7, 1.5, 3.0, 5.0, 8.0)  # -log p, nats
PRIOR: Final = 5.0  # tokens of each kind, as expected
STANDS_OUT: Final = 2.5
MOST_TAUGHT: Final = 1.0  # nats
NUMBERS: Final = ("log", "growth", "variance", "sigma", "distance")

Kind = Literal["temperature", "top-p", "top-k", "surer", "taught", "other"]


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A kind of departure and how far it goes. `other`: the name of the other checkpoint, or of
    what was taught.
    """

    kind: Kind
    size: float = 1.0
    other: str = ""

    @property
    def words(self) -> str:
        said = {
            "temperature": f"{self.size:g} times the temperature",
            "top-p": f"cut off at top-p {self.size:g}",
            "top-k": f"cut off at top-k {self.size:g}",
            "surer": f"the likeliest token in {self.size:.0%} of the draws, whatever its chance",
            "taught": f"other {self.other} than the policy's",
            "other": f"{self.size:.0%} of the draws from {self.other}",
        }
        return said[self.kind]


PLAIN: Final = (
    *(Departure(kind="temperature", size=size) for size in TEMPERATURES),
    *(Departure(kind="top-p", size=size) for size in TOP_P),
    *(Departure(kind="top-k", size=size) for size in TOP_K),
    *(Departure(kind="surer", size=size) for size in SURER),
    Departure(kind="taught", other="tokens"),
    Departure(kind="taught", other="levels of probability"),
)


def bets_on(other: str) -> tuple[Departure, ...]:
    """On another checkpoint of this name, whole and in part."""
    return tuple(Departure(kind="other", size=share, other=other) for share in SHARES)


@dataclass
class Taught:
    """How often each token came `[PLACES, vocabulary]`, each level of probability `[levels]`,
    and how often each was expected.
    """

    came: Any = None
    expected: Any = None
    came_at: Any = field(default_factory=lambda: torch.zeros(len(LEVELS) + 1))
    expected_at: Any = field(default_factory=lambda: torch.zeros(len(LEVELS) + 1))

    def add(self, p: Any, level: Any, token: Any, place: Any) -> None:
        if self.came is None:
            self.came, self.expected = (p.new_zeros(PLACES, p.shape[1]) for _ in range(2))
            self.came_at, self.expected_at = (p.new_zeros(len(LEVELS) + 1) for _ in range(2))
        rows = torch.arange(len(token), device=p.device)
        self.expected.index_add_(0, place, p)
        self.came.index_put_((place, token), torch.ones_like(token, dtype=p.dtype), True)
        self.expected_at.index_add_(0, level.flatten(), p.flatten())
        self.came_at += torch.bincount(level[rows, token], minlength=len(LEVELS) + 1)

    def tilts(self) -> tuple[Any, Any]:
        """Log-ratios of tokens and of levels, 0 where nothing stands out."""
        return _tilt(self.came, self.expected), _tilt(self.came_at, self.expected_at)


def _tilt(came: Any, expected: Any) -> Any:
    stands = (came - expected).abs() > STANDS_OUT * (expected + 1).sqrt()
    tilt = ((came + PRIOR) / (expected + PRIOR)).log().clamp(-MOST_TAUGHT, MOST_TAUGHT)
    return torch.where(stands, tilt, 0.0)


class Bets:
    """A readout (`score_columns.Readout`) of five `NUMBERS` for each departure, in order, then
    the surprisal's excess over the entropy and its variance (nats).

    Texts are read in blocks: `learn` makes what the last ones taught count for the next. The
    bets on another checkpoint are on the scorer's `reference`.
    """

    def __init__(self, departures: Sequence[Departure]) -> None:
        self.departures = tuple(departures)
        self.names = [f"{i} {one}" for i in range(len(departures)) for one in NUMBERS]
        self.names += ["excess", "excess variance"]
        self._taught = Taught()
        self._tilts: tuple[Any, Any] | None = None

    def learn(self) -> None:
        if self._taught.came is not None:
            self._tilts = self._taught.tilts()

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        """`[n, names]` of log-probabilities `[n, vocabulary]`."""
        table = _Table(policy, reference, at.token, at.place.clamp(max=PLACES - 1), self._tilts)
        if any(one.kind == "taught" for one in self.departures):
            self._taught.add(table.p, table.level, at.token, table.place)
        parts = [number for one in self.departures for number in table.bet(one)]
        return torch.stack([*parts, *table.excess()], 1)


class _Table:
    """The claimed distribution at some positions, and what each departure makes of it."""

    def __init__(self, policy: Any, reference: Any, token: Any, place: Any, tilts: Any) -> None:
        self.log_p, self.other, self.token, self.place = policy, reference, token, place
        self.p, self.tilts = policy.exp(), tilts
        self.drawn = policy.gather(1, token[:, None])[:, 0]
        self.level = torch.bucketize(-policy, policy.new_tensor(LEVELS))
        self.ordered = self.p.sort(1, descending=True).values
        self.through = self.ordered.cumsum(1)

    def bet(self, departure: Departure) -> tuple[Any, ...]:
        ways: dict[str, Callable[[Departure], tuple[Any, ...]]] = {
            "temperature": self._tempered,
            "top-p": lambda one: self._cut((self.through - self.ordered < one.size).sum(1), KEPT),
            "top-k": lambda one: self._cut(self._first(int(one.size)), KEPT),
            "surer": lambda one: self._cut(self._first(1), one.size),
            "taught": self._as_taught,
            "other": self._mixed,
        }
        return ways[departure.kind](departure)

    def excess(self) -> tuple[Any, Any]:
        """-log p(x) - H(p), which has mean 0 if x comes from p, and its variance."""
        log_p = self.log_p.clamp(min=-1e4)
        mean = (self.p * log_p).sum(1)
        return mean - self.drawn, (self.p * (log_p - mean[:, None]).square()).sum(1)

    def _first(self, k: int) -> Any:
        return torch.full_like(self.token, min(k, self.p.shape[1]))

    def _cut(self, kept: Any, share: float) -> tuple[Any, ...]:
        """`share` of the draws from the `kept [n]` likeliest tokens: a ratio of two values."""
        last = (kept - 1)[:, None]
        inside = self.p.gather(1, self.token[:, None]) >= self.ordered.gather(1, last)
        mass = self.through.gather(1, last)[:, 0].clamp(max=1.0).double()
        r = torch.stack([1 - share + share / mass, torch.full_like(mass, 1 - share)], 1)
        p = torch.stack([mass, 1 - mass], 1)
        held = torch.where(inside[:, 0], r[:, 0], r[:, 1])
        return (held.log(), *_expected(p, r))

    def _tempered(self, one: Departure) -> tuple[Any, ...]:
        return self._tilted((1 / one.size - 1) * self.log_p.clamp(min=-1e4))

    def _as_taught(self, one: Departure) -> tuple[Any, ...]:
        if self.tilts is None:
            return self._tilted(torch.zeros_like(self.p))
        tokens, levels = self.tilts
        return self._tilted(tokens[self.place] if one.other == "tokens" else levels[self.level])

    def _tilted(self, tilt: Any) -> tuple[Any, ...]:
        """`q` in proportion to `p exp(tilt)`."""
        log_q = (self.log_p.clamp(min=-1e4) + tilt).log_softmax(1)
        return self._held((log_q - self.log_p.clamp(min=-1e4)).exp_())

    def _mixed(self, one: Departure) -> tuple[Any, ...]:
        ratio = (self.other - self.log_p.clamp(min=-1e4)).exp().clamp(max=LARGEST)
        ratio /= (self.p * ratio).sum(1, keepdim=True)
        return self._held(ratio.mul_(one.size).add_(1 - one.size))

    def _held(self, r: Any) -> tuple[Any, ...]:
        return (r.gather(1, self.token[:, None])[:, 0].log().double(), *_expected(self.p, r))


def _expected(p: Any, r: Any) -> Iterator[Any]:
    """What is expected if `q = p r` is drawn from, float64 `[n]` each."""
    q = p * r
    log = torch.where(q > 0, r.log(), 0.0)
    growth = (q * log).sum(1).double()
    yield growth
    yield ((q * log * log).sum(1) - growth.square()).clamp(min=0)
    yield ((q * r).sum(1).double() - 1).clamp(min=0).sqrt()
    yield ((p * (r - 1).abs()).sum(1) / 2).double()
