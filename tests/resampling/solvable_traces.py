"""Exactly solvable policies: traces whose potentials are known, as an oracle
for everything that reads rollouts.

1. A `SolvableTrace` is one recorded run of N tokens. At token t the policy repeats the
   run with probability `pi_t`; otherwise it leaves it for good and succeeds
   with probability `others[t]`. Between two actions the environment answers as
   it did in the run with probability `answers[t]`; otherwise the run is left
   there, with success `other_answers[t]`.
2. The potentials follow by dynamic programming, backwards: after token t
   (before the environment speaks) `after[t] = answers[t] p[t + 1] + (1 -
   answers[t]) other_answers[t]`, and `p[t] = pi_t after[t] + (1 - pi_t)
   others[t]`. The drop of token t is `p[t] - after[t]`: what the environment's
   answer adds to it is luck, not the token's doing.
3. `SolvableSampler` draws from it through the seam of `resampling.trace_rollouts`. Every
   rollout has a block of random numbers of its own (a counter-based generator),
   so it depends on the seed, its request and its number alone. A rollout goes
   on to the end of the run: from prefix k it has N - k tokens.

Our own; the identity that it obeys, `drop = (1 - pi)(p_other - p_after)`, is
what the search rests on.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from resampling.trace_rollouts import Request, Rollout, Trace

OTHER_TOKEN = 1  # what a rollout writes once it has left the trace; no trace holds it
FIRST_TOKEN = 2


@dataclass(frozen=True, kw_only=True)
class SolvableTrace:
    """One recorded run with everything known about it; all arrays are `[N]`,
    all values probabilities.
    """

    trace: Trace
    others: np.ndarray
    final: float  # the potential once the whole run is repeated
    answers: np.ndarray
    other_answers: np.ndarray

    @cached_property
    def potentials(self) -> np.ndarray:
        """`p[k]` for every prefix `[N + 1]`."""
        pi, potentials = self.trace.probabilities, np.empty(len(self.trace) + 1)
        potentials[-1] = self.final
        for token in reversed(range(len(self.trace))):
            says = self.answers[token]
            after = says * potentials[token + 1] + (1 - says) * self.other_answers[token]
            potentials[token] = pi[token] * after + (1 - pi[token]) * self.others[token]
        return potentials

    @cached_property
    def after(self) -> np.ndarray:
        """The potential right after each token, before the environment answers `[N]`."""
        return np.asarray(
            self.answers * self.potentials[1:] + (1 - self.answers) * self.other_answers
        )

    @property
    def drops(self) -> np.ndarray:
        """What each token costs `[N]`; negative where it gains."""
        return np.asarray(self.potentials[:-1] - self.after)

    @property
    def contrasts(self) -> np.ndarray:
        """Other tokens at the same prefix minus this token `[N]`."""
        return np.asarray(self.others - self.after)

    def cliffs(self, delta: float) -> tuple[int, ...]:
        """Tokens whose drop is at least `delta`."""
        return tuple(int(token) for token in np.flatnonzero(self.drops >= delta - 1e-12))


def solvable_trace(
    identifier: str,
    probabilities: Sequence[float] | np.ndarray,
    potentials: Sequence[float] | np.ndarray,
    *,
    answers: Sequence[float] | np.ndarray | None = None,
    other_answers: Sequence[float] | np.ndarray | None = None,
    outcome: float | None = None,
) -> SolvableTrace:
    """The world with these `pi_t` `[N]` and potentials `[N + 1]`.

    `answers`: the environment speaks after the tokens where it is below 1, and
    a new action starts there. Raises `ValueError` where a potential asks for
    more than other tokens can make up for (`others` outside [0, 1]).
    """
    pi, p = np.asarray(probabilities, float), np.asarray(potentials, float)
    kept = np.ones_like(pi) if answers is None else np.asarray(answers, float)
    luck = p[1:] if other_answers is None else np.asarray(other_answers, float)
    after = kept * p[1:] + (1 - kept) * luck
    free = np.maximum(1 - pi, 1e-300)
    others = np.where(pi < 1, (p[:-1] - pi * after) / free, after)
    if not ((others >= -1e-9) & (others <= 1 + 1e-9)).all():
        raise ValueError(
            "these potentials break the bound |drop| <= 1 - pi: no other tokens could make up for"
            " them"
        )
    # a prompt of two ids, the run's tokens, and one id for each answer of the environment
    shift = np.concatenate([[0], np.cumsum(kept[:-1] < 1)]).astype(int)
    positions = 2 + np.arange(len(pi)) + shift
    ids = np.zeros(positions[-1] + 1, int)
    ids[positions] = FIRST_TOKEN + np.arange(len(pi)) % 97
    return SolvableTrace(
        trace=Trace(
            id=identifier,
            task=identifier,
            ids=tuple(ids.tolist()),
            positions=tuple(positions.tolist()),
            steps=tuple((1 + 2 * shift).tolist()),
            logprobs=np.log(pi),
            outcome=outcome,
        ),
        others=np.clip(others, 0, 1),
        final=float(p[-1]),
        answers=kept,
        other_answers=luck,
    )


class SolvableSampler:
    """Draws from solvable worlds.

    `missing`: the share of rollouts that come back without an outcome.
    `fractional`: the score is the mean of two graders instead of one, so that
    it may be one half. `cost`: rollouts and tokens so far (a meter, not a
    result).
    """

    def __init__(
        self,
        worlds: Iterable[SolvableTrace],
        seed: int = 0,
        missing: float = 0.0,
        fractional: bool = False,
    ) -> None:
        self.worlds = {world.trace.id: world for world in worlds}
        self.seed, self.missing, self.fractional = seed, missing, fractional
        self.cost = {"rollouts": 0, "tokens": 0}

    @cached_property
    def identity(self) -> str:
        digest = hashlib.sha256(repr((self.seed, self.missing, self.fractional)).encode())
        for name, world in sorted(self.worlds.items()):
            arrays = world.trace.logprobs.tobytes() + world.potentials.tobytes()
            digest.update(name.encode() + arrays)
        return digest.hexdigest()

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """The rollouts of each request in turn."""
        for request in requests:
            world, uniform = self.worlds[request.trace], self._uniform(request)
            events = leaving_events(world, request, uniform[:, 0])
            ways = np.stack([world.others, world.other_answers], 1).reshape(-1)
            success = np.append(ways, world.final)[events]  # of each way to leave `[2N + 1]`
            outcomes = (uniform[:, 1:3] < success[:, None]).astype(float)
            scores = outcomes.mean(1) if self.fractional else outcomes[:, 0]
            lost = uniform[:, 3] < self.missing
            self.cost["rollouts"] += request.n
            own, begin = world.trace.tokens, request.kept + len(request.append)
            for row, event in enumerate(events.tolist()):
                # a rollout that an answer parts has drawn the token before it
                repeated = min(max((event + 1) // 2, begin), len(own))
                tokens = own[begin:repeated] + (OTHER_TOKEN,) * (len(own) - repeated)
                self.cost["tokens"] += len(tokens)
                yield Rollout(
                    **request.branch._asdict(),
                    number=request.first + row,
                    tokens=tokens,
                    followed=0 if request.append else event // 2 - request.kept,
                    outcome=None if lost[row] else float(scores[row]),
                    end="errored" if lost[row] else "terminated",
                    end_reason="lost" if lost[row] else None,
                )

    def _uniform(self, request: Request) -> np.ndarray:
        """Four uniform numbers for each rollout `[n, 4]`: one block of the
        generator's counter each.
        """
        trace, kept, avoid, append = request.branch
        name = repr((self.seed, trace, kept, append, avoid)).encode()
        bits = np.random.Philox(key=int.from_bytes(hashlib.sha256(name).digest()[:16], "big"))
        return np.random.Generator(bits.advance(request.first)).random((request.n, 4))


def leaving_events(world: SolvableTrace, request: Request, uniform: np.ndarray) -> np.ndarray:
    """The event at which each rollout leaves `[n]`: 2t at token t, 2t + 1 at
    the answer after it, 2N at the end.
    """
    follow = np.stack([world.trace.probabilities, world.answers], 1).reshape(-1)
    kept = request.kept
    if request.avoid:
        if kept >= len(world.trace):
            raise ValueError(f"trace {request.trace} has no token {kept} to avoid")
        return np.full(request.n, 2 * kept)
    own = world.trace.tokens[kept : kept + len(request.append)]
    for offset, token in enumerate(request.append):
        if offset >= len(own) or token != own[offset]:
            return np.full(request.n, min(2 * (kept + offset), 2 * len(world.trace)))
    start = 2 * kept if not request.append else 2 * (kept + len(request.append)) - 1
    survival = np.cumprod(follow[start:])
    return np.asarray(start + np.searchsorted(-survival, -uniform, side="left"))
