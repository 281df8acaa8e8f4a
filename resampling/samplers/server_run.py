"""One continuation that a server draws, request by request."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forensics.protocols import SamplingSettings
from resampling.samplers.branches import BranchPoint, BranchRun
from resampling.trace_rollouts import Rollout


@dataclass(eq=False)
class ServerRun:
    """One continuation; its rollout goes to `finished`. `drawn`: the sampled
    tokens. `turn`: how many requests were answered, so that each has a seed of
    its own.
    """

    point: BranchPoint
    number: int
    settings: SamplingSettings
    stops: Collection[int]
    finished: deque[Rollout]
    drawn: list[int] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        self.driver = BranchRun(self.point, self.number, self.finished)
        self.before, self.action = list(self.point.before), list(self.point.action)
        self._settle()

    @property
    def prompt(self) -> list[int]:
        """What the next request continues."""
        return self.before + self.action

    @property
    def room(self) -> int:
        """Tokens that the running action may still have."""
        action, whole = len(self.action), len(self.before) + len(self.action)
        return min(self.settings.max_turn_tokens - action, self.settings.max_tokens - whole)

    @property
    def own_token(self) -> int:
        """What the trace has next."""
        return self.point.trace.tokens[self.point.request.kept]

    def draw(self, tokens: Sequence[int]) -> None:
        """Go on with drawn tokens of the running action."""
        self.drawn += tokens
        self.action += tokens
        self.turn += 1
        self._settle()

    def miss(self, reason: str) -> None:
        """The run cannot go on, and that is not the policy's doing."""
        self.driver.over, place = True, self.point.request.branch._asdict()
        self.finished.append(
            Rollout(**place, number=self.number, tokens=tuple(self.drawn), end_reason=reason)
        )

    def _settle(self) -> None:
        """What follows from the tokens that are there: a whole action is taken,
        a full text ends the run.
        """
        ended = bool(self.action) and self.action[-1] in self.stops
        if ended or (self.action and self.room <= 0):
            action = tuple(self.action)
            follow = self.driver.action_ended(action, (), "stop-token" if ended else "length")
            self.before += (*action, *(follow or ()))
            self.action = []
        if not self.driver.over and not self.action and self.room <= 0:
            self.driver.out_of_room()
