"""One continuation as it grows: what is known, what may still be drawn, and the environment it plays in.

The episode's own rules decide how it ends (`forensics.policies.episodes.Episode`); here only tokens are counted. Token
budgets count from the start of the run, so a prefix has used up its part of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from forensics.policies.episodes import Episode
from forensics.protocols import SamplingSettings
from forensics.records.trajectory import Ending
from resampling.rollouts import Request, Rollout
from resampling.traces import Trace


@dataclass(eq=False, kw_only=True)
class Run:
    """`episode.ids`: every token so far but those of the running action, which are `action`. `drawn`: the sampled ones.

    `turn`: how many requests were answered, so that each has a seed of its own.
    """

    request: Request
    number: int
    trace: Trace
    episode: Episode
    settings: SamplingSettings
    stops: Collection[int]
    action: list[int]
    drawn: list[int] = field(default_factory=list)
    following: bool = True
    followed: int = 0
    turn: int = 0
    reason: str | None = None

    @property
    def prompt(self) -> list[int]:
        """What the next request continues."""
        return self.episode.ids + self.action

    @property
    def room(self) -> int:
        """Tokens that the running action may still have."""
        used = len(self.episode.ids) + len(self.action)
        return min(self.settings.max_turn_tokens - len(self.action), self.settings.max_tokens - used)

    @property
    def over(self) -> bool:
        return bool(self.episode.ending) or self.reason is not None

    def settle(self) -> None:
        """What follows from the tokens that are there: a full action is taken, a full text ends the run."""
        if self.over:
            return
        if self.action and (self.action[-1] in self.stops or self.room <= 0):
            self._act()
        elif not self.action and self.room <= 0:
            self.episode.out_of_room()

    def known(self, tokens: Sequence[int]) -> None:
        """Go on with tokens that nobody drew."""
        self.following = self.following and not tokens
        for token in tokens:
            if self.over:
                break
            self.action.append(token)
            self.settle()

    def draw(self, tokens: Sequence[int]) -> None:
        """Go on with drawn tokens of the running action."""
        own = self.trace.tokens[self.request.kept + len(self.drawn) :]
        for token, wanted in zip(tokens, own, strict=False):
            self.following = self.following and token == wanted
            self.followed += self.following
        self.following = self.following and len(tokens) <= len(own)
        self.drawn += tokens
        self.action += tokens
        self.turn += 1
        self.settle()

    def miss(self, reason: str) -> None:
        """The run cannot go on, and that is not the policy's doing."""
        self.reason = reason

    def _act(self) -> None:
        action, stop = tuple(self.action), "stop-token" if self.action[-1] in self.stops else "length"
        # the episode's record of log-probabilities is thrown away with it
        follow = self.episode.action_ended(action, (0.0,) * len(action), stop)
        self.action = []
        if follow is None:
            return
        self.following = self.following and self._trace_says(follow)
        self.settle()

    def _trace_says(self, follow: Sequence[int]) -> bool:
        """Whether the environment answered as it did in the trace."""
        kept = self.request.kept + len(self.drawn)
        if not 0 < kept < len(self.trace):
            return False
        begin, end = self.trace.positions[kept - 1] + 1, self.trace.positions[kept]
        return self.trace.ids[begin:end] == tuple(follow)

    def rollout(self) -> Rollout:
        """The finished run. An outcome is missing where a request or the environment failed."""
        ending = self.episode.ending
        end: Ending = "errored" if self.reason is not None else ending["end"]
        request = self.request
        return Rollout(
            trace=request.trace, kept=request.kept, number=self.number, append=request.append, avoid=request.avoid,
            tokens=tuple(self.drawn), followed=self.followed,
            outcome=None if self.reason is not None else ending["outcome"], end=end,
            end_reason=self.reason or ending["end_reason"], submission=ending.get("submission"),
        )
