"""One continuation of a trace while it runs: the driver of one fork."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from forensics.policies.episodes import how_it_ended
from forensics.policies.refusals import Refusals
from forensics.policies.rendering import Rendering
from forensics.policies.sampling import row_stream, uniforms
from forensics.protocols import Environment, StepResult
from forensics.records import content_hash
from forensics.records.trajectory import TOKEN_LIMIT, Ending
from resampling.engine.replaying import Replay
from resampling.rollouts import Request, Rollout
from resampling.traces import Trace

NO_OTHER_TOKEN = "the sampler gives no other token there"
LUCK = 1  # the random stream of an environment's luck, apart from that of the tokens


@dataclass(frozen=True, kw_only=True)
class Place:
    """What all continuations of a request share.

    `action`: the number of the action that the prefix ends in. `known`: how many tokens of it nobody draws.
    """

    request: Request
    trace: Trace
    replay: Replay
    action: int
    known: int
    rendering: Rendering
    seed: int

    @cached_property
    def number(self) -> int:
        """What tells this place from others in a random stream."""
        request = self.request
        return int(content_hash([request.trace, request.kept, list(request.append), request.avoid], 15), 16)

    @cached_property
    def own(self) -> tuple[int, ...]:
        """The trace's sampled tokens."""
        return self.trace.tokens

    def world(self, number: int) -> Environment:
        """The environment before the running action, with the luck of continuation `number` where it has any."""
        luck = row_stream(self.seed, self.number, number, LUCK) if self.replay.fresh_luck else None
        return self.replay.before(self.action, 0 if luck is None else int(luck.integers(2**31)))


class Continuing:
    """A driver (see `forensics.policies.rows.ForkDriver`); its rollout goes to `finished`."""

    def __init__(self, place: Place, number: int, finished: deque[Rollout]) -> None:
        self._place, self._number, self._finished = place, number, finished
        self.uniforms: Iterator[float] = uniforms(row_stream(place.seed, place.number, number))
        self.refusals: Refusals | None = None
        self._environment: Environment | None = None
        self._known = place.known
        self._tokens: list[int] = []
        self._followed = 0
        self._following = not place.request.append

    def action_ended(self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str) -> Sequence[int] | None:
        place = self._place
        drawn, self._known = token_ids[self._known :], 0
        self._count(drawn)
        try:
            result = self._world().step(place.rendering.action_text(token_ids))
        except Exception as error:
            self._leave(bool(drawn))
            self._end(None, "errored", f"the environment raised {type(error).__name__}: {error}")
            return None
        over = result.terminated or result.truncated
        follow = [] if over else place.rendering.reply(result.observation, token_ids)
        if self._following and (place.replay.fresh_luck or not self._says_the_trace(follow, over)):
            self._leave(bool(drawn))
        if not over:
            return follow
        self._grade(result, stop)
        return None

    def out_of_room(self) -> None:
        self._end(0.0, "truncated", TOKEN_LIMIT)

    def no_other_token(self) -> None:
        self._end(None, "errored", NO_OTHER_TOKEN)

    def _world(self) -> Environment:
        if self._environment is None:
            self._environment = self._place.world(self._number)
        return self._environment

    def _count(self, drawn: Sequence[int]) -> None:
        """How far what was drawn repeats the trace."""
        own = self._place.own
        self._tokens += drawn
        for token in drawn if self._following else ():
            at = self._place.request.kept + self._followed
            self._following = at < len(own) and own[at] == token
            if not self._following:
                break
            self._followed += 1

    def _says_the_trace(self, follow: Sequence[int], over: bool) -> bool:
        """Whether the run is where the trace is after its next action: over, or behind the same words."""
        trace, at = self._place.trace, self._place.request.kept + self._followed
        if at == 0 or over != (at == len(trace) and not trace.ids[trace.positions[-1] + 1 :]):
            return False
        end = trace.positions[at] if at < len(trace) else len(trace.ids)
        return tuple(follow) == trace.ids[trace.positions[at - 1] + 1 : end]

    def _leave(self, drawn: bool) -> None:
        """The run parts from the trace in what the environment says: the action's last token leads elsewhere."""
        if self._following:
            self._following = False
            self._followed -= drawn

    def _grade(self, result: StepResult, stop: str) -> None:
        ending = how_it_ended(result, stop == "length")
        self._end(result.outcome, ending["end"], ending["end_reason"], result.submission)

    def _end(self, outcome: float | None, end: Ending, reason: str | None, submission: str | None = None) -> None:
        request = self._place.request
        self._finished.append(Rollout(
            trace=request.trace, kept=request.kept, number=self._number, append=request.append, avoid=request.avoid,
            tokens=tuple(self._tokens), followed=self._followed, outcome=outcome, end=end, end_reason=reason,
            submission=submission,
        ))
