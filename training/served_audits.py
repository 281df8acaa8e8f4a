"""An audit through a server: before it plays, a few answers must show that the server draws
with the very weights that are trained.

1. `TEXTS` prompts of held-out tasks are answered once each, with the audit's settings, and
   the model in memory says how probable each drawn token was.
2. The mean absolute difference is judged by the rule of `sampler_gap`; its first gap is
   that of the start. A server that kept older weights is beyond it, and no audit is made.
3. What plays is the server, under the identity of the weights in memory. A request that
   stays unanswered ends the audit: it is made whole, or not at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import ServerPolicy
from forensics.protocols import Environment, Policy, Renderer, SamplingSettings
from forensics.records import Trajectory
from training.sampler_gap import GapWatch
from training.server_section import NotServed

TEXTS: Final = 8
TOKENS: Final = 64  # drawn behind each, at most


class PlayedByServer:
    """`server` as the policy of an audit: under the `identity` of the model in memory, and an
    unanswered request is raised as `NotServed`.
    """

    capabilities = frozenset({"play"})

    def __init__(self, server: ServerPolicy, identity: str) -> None:
        self._server, self.identity = copy(server), identity
        self._server.identity, self._server.strict = identity, True

    def play(self, *given: Any) -> Iterator[Trajectory]:
        """As `ServerPolicy.play`."""
        with as_not_served():
            yield from self._server.play(*given)


@contextmanager
def as_not_served() -> Iterator[None]:
    """What a server cannot do, as the failure of an audit."""
    try:
        yield
    except UserError as error:
        raise NotServed(str(error)) from error


def gap_shown(
    server: ServerPolicy,
    live: Policy,
    environment: Environment,
    settings: SamplingSettings,
    seed: int,
) -> float:
    """Mean absolute difference of log-probabilities, nats, between server and model about
    tokens that the server draws. Raises `UserError` where it draws none.
    """
    room = settings.max_turn_tokens
    few = replace(settings, max_turn_tokens=min(TOKENS, room))
    prompts = _prompts(server.renderer, environment)
    drawn = [one for [one] in server.sample(prompts, 1, few, seed)]
    rows = [[*prompt, *one.token_ids] for prompt, one in zip(prompts, drawn, strict=True)]
    told = np.concatenate([[], *(one.logprobs for one in drawn)])
    if not len(told):
        raise NotServed("the server drew no token behind the prompts of the held-out tasks")
    own = live.logprobs(rows, few)
    mine = [row[len(p) - 1 :] for row, p in zip(own, prompts, strict=True)]
    return float(np.abs(np.concatenate(mine) - told).mean())


def require_served(gap: float, largest: float, first: float | None) -> None:
    """Raise `NotServed` unless a gap may be that of the weights in memory."""
    if (said := GapWatch(largest=largest, first=first).excess(gap)) is not None:
        raise NotServed(
            f"{said}, so it serves other weights than those in memory, or draws otherwise; see"
            " whether it has loaded what it was told to"
        )


def _prompts(renderer: Renderer, environment: Environment) -> list[list[int]]:
    found = []
    for task in environment.tasks("held-out", TEXTS, 0)[:TEXTS]:
        start = environment.spawn().reset(task, 0)
        found.append(renderer.prompt(start.text, start.system))
    return found
