"""One continuation over HTTP as it grows: what is known, and what may still be drawn.

What the environment says, how a run ends and how far it follows its trace are those of a local continuation
(`continuing`); here only tokens are counted. Budgets count from the start of the run, so a prefix has used up its part.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forensics.protocols import SamplingSettings
from resampling.engine.continuing import Continuing, Place
from resampling.rollouts import Request, Rollout


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where the continuations of a request begin: behind `before`, with the running action's tokens so far."""

    place: Place
    before: tuple[int, ...]
    action: tuple[int, ...]


@dataclass(eq=False)
class Run:
    """`drawn`: the sampled tokens. `turn`: how many requests were answered, so that each has a seed of its own."""

    start: Start
    number: int
    settings: SamplingSettings
    stops: Collection[int]
    drawn: list[int] = field(default_factory=list)
    turn: int = 0
    reason: str | None = None

    def __post_init__(self) -> None:
        self._finished: deque[Rollout] = deque()
        self.driver = Continuing(self.start.place, self.number, self._finished)
        self.before, self.action = list(self.start.before), list(self.start.action)
        self._settle()

    @property
    def request(self) -> Request:
        return self.start.place.request

    @property
    def prompt(self) -> list[int]:
        """What the next request continues."""
        return self.before + self.action

    @property
    def room(self) -> int:
        """Tokens that the running action may still have."""
        used = len(self.before) + len(self.action)
        return min(self.settings.max_turn_tokens - len(self.action), self.settings.max_tokens - used)

    @property
    def over(self) -> bool:
        return bool(self._finished) or self.reason is not None

    @property
    def own_token(self) -> int:
        """What the trace has next."""
        return self.start.place.trace.tokens[self.request.kept]

    def draw(self, tokens: Sequence[int]) -> None:
        """Go on with drawn tokens of the running action."""
        self.drawn += tokens
        self.action += tokens
        self.turn += 1
        self._settle()

    def miss(self, reason: str) -> None:
        """The run cannot go on, and that is not the policy's doing."""
        self.reason = reason

    def _settle(self) -> None:
        """What follows from the tokens that are there: a whole action is taken, a full text ends the run."""
        if self.action and (self.action[-1] in self.stops or self.room <= 0):
            self._act()
        if not self.over and not self.action and self.room <= 0:
            self.driver.out_of_room()

    def _act(self) -> None:
        action, stop = tuple(self.action), "stop-token" if self.action[-1] in self.stops else "length"
        follow = self.driver.action_ended(action, (), stop)
        self.before += (*action, *(follow or ()))
        self.action = []

    def rollout(self) -> Rollout:
        """The finished run. Its outcome is missing where a request or the environment failed."""
        if self._finished:
            return self._finished[0]
        request = self.request
        return Rollout(
            trace=request.trace, kept=request.kept, number=self.number, append=request.append, avoid=request.avoid,
            tokens=tuple(self.drawn), followed=0, outcome=None, end="errored", end_reason=self.reason,
        )
