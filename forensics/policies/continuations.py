"""Plain continuations: one action behind each of some texts, no environment."""

from collections.abc import Sequence

from forensics.errors import UserError
from forensics.policies.distribution import Refusals, row_stream, uniforms
from forensics.protocols import Constraint, Continuation, Renderer
from forensics.records import content_hash


class OneAction:
    """Drives one row from `ids` on for one action; `result` once it does not wait any more.

    `key`: of its random stream, the last part the number of the continuation.
    """

    result: Continuation

    def __init__(
        self,
        ids: Sequence[int],
        renderer: Renderer,
        key: tuple[int, ...],
        constraint: Constraint | None,
    ) -> None:
        self.ids, self.uniforms, self.waiting = ids, uniforms(row_stream(*key)), True
        self.refusals: Refusals | None = None
        self._renderer, self._constraint, self._refused = renderer, constraint, 0
        self._key = key

    def action_ended(self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str) -> None:
        constraint = self._constraint
        if constraint and not constraint.allows(self._renderer.action_text(token_ids), ()):
            self._refused += 1
            self.refusals = (self.refusals or Refusals()).also(token_ids, logprobs)
            self.waiting = self._refused <= constraint.max_redraws
            token_ids, logprobs, stop = (), (), "refused"
        self.result = Continuation(token_ids=tuple(token_ids), logprobs=tuple(logprobs), stop=stop)

    def out_of_room(self) -> None:
        self.result = Continuation(token_ids=(), logprobs=(), stop="length")

    def request_seed(self, turn: int, shared: bool) -> int:
        """Where a server draws: continuations of one text begin with seeds that follow each
        other, and share a request.
        """
        *start, number = self._key
        if shared:
            return int(content_hash(start, 12), 16) + number
        return int(content_hash([*start, number, turn], 12), 16)

    def missing(self, reason: str, action: Sequence[int]) -> None:
        raise UserError(f"a continuation could not be drawn: {reason}; see the server's log")


def start_actions(
    prefixes: Sequence[Sequence[int]],
    n: int,
    renderer: Renderer,
    seed: int,
    constraint: Constraint | None,
) -> list[OneAction]:
    """`n` of each text, in order, each with a random stream of its own."""
    numbers = [int(content_hash(list(prefix), 15), 16) for prefix in prefixes]
    return [
        OneAction(prefix, renderer, (seed, number, k), constraint)
        for prefix, number in zip(prefixes, numbers, strict=True)
        for k in range(n)
    ]
