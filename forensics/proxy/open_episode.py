"""An episode that is open: what it draws, refuses and keeps (`OpenEpisode`).

Draws that are handed on in order, and some asked for ahead of the one that is waited for.

A policy that is nearly sure of what is refused has to be asked often: 150 times an answer on
the leak pair. One by one that is 150 times the server's latency; a server that draws many at once
answers them in about a fifth of the rounds. Each draw has the seed of its place, so which one is
handed on does not depend on how many were ahead.

The kinds of the actions in an answer, read by the parser that reads logs.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

from forensics.actions import Action, actions_of
from forensics.actions.command_heads import FAMILIES, subcommand
from forensics.errors import outside_failure
from forensics.policies.completions import Declined, Unanswered
from forensics.proxy.call_record import Recorder, Ticket
from forensics.proxy.chat_calls import Answer, Asked, Delta, Lineage, Refused
from forensics.proxy.upstream import Upstream
from forensics.readers.messages import steps_of
from forensics.readers.values import run_of

T = TypeVar("T")
MOST_AHEAD: Final = 16  # requests at once
BAD_GATEWAY: Final = 502
OURS: Final = frozenset({400, 413, 422})  # statuses of a server that say something of the request
MOST_DRAWS: Final = 256  # of one answer, of which some had been refused before
_WRONG: Final = {
    **dict.fromkeys((401, 403), "its key or address is wrong"),
    404: "its address is wrong, or it serves no model of this name",
}
TOO_LONG: Final = "this conversation is at the token limit of its episode; end the episode"


class OpenEpisode:
    """Used in one event loop. `failure`: why the episode is errored."""

    def __init__(self, ticket: Ticket, upstream: Upstream) -> None:
        self.ticket, self._upstream = ticket, upstream
        self.failure: str | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._recorder = Recorder(ticket.record, ticket)
        self._lineage = Lineage()
        self._calls = self._refused = 0
        self._lengths: dict[int, int] = {}  # tokens of a call's text and answer

    def begin(self) -> int:
        """The number of a new call."""
        self._calls += 1
        return self._calls - 1

    async def deltas(self, number: int, asked: Asked) -> AsyncGenerator[Delta]:
        """The pieces of the answer to a request; everything is recorded. Raises `Refused`."""
        if self.failure is not None:
            raise Refused(BAD_GATEWAY, self.failure, "errored_episode")
        descent = self._lineage.begin(number, asked.messages)
        answer = Answer()
        try:
            self._recorder.asked(number, asked, descent)
            most = self._room(number, descent.extends)
            draw = self._straight if self.ticket.constraint is None else self._allowed
            async with aclosing(draw(number, asked, most, answer)) as pieces:
                async for delta in pieces:
                    yield delta
        except Declined as error:
            raise self._declined(number, error) from None
        except Unanswered as error:
            raise self.fail(str(error)) from None
        except (asyncio.CancelledError, GeneratorExit):
            self._hung_up(number, answer)
            raise
        except Refused:
            raise
        except Exception as error:
            told = outside_failure(error) or f"the proxy failed: {type(error).__name__}"
            raise self.fail(str(told)) from error

    def fail(self, words: str) -> Refused:
        """Mark the episode as errored, which is never a failure of the policy."""
        if self.failure is None:
            self.failure = words
            self._recorder.errored(words)
        return Refused(BAD_GATEWAY, words, "errored_episode")

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """While the running task works for this episode, which ends it when it closes."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End what is under way, and the record."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._recorder.closed()
        self.failure = self.failure or "the episode is closed"

    def _room(self, number: int, extends: int | None) -> int:
        settings = self.ticket.settings
        room = settings.max_tokens - self._lengths.get(-1 if extends is None else extends, 0)
        if room <= 0:
            self._recorder.declined(number, 400, TOO_LONG, cut=True)
            raise Refused(400, TOO_LONG, "context_length_exceeded")
        return min(settings.max_turn_tokens, room)

    async def _straight(
        self, number: int, asked: Asked, most: int, answer: Answer
    ) -> AsyncGenerator[Delta]:
        seed = self.ticket.draw_seed(number, 0)
        body = _body(asked, asked.stream)
        async with aclosing(self._upstream.deltas(self.ticket, body, seed, most)) as pieces:
            async for delta in pieces:
                answer.take(delta)
                yield delta
        self._keep(number, 0, seed, answer)
        self._answered(number, answer)

    async def _allowed(
        self, number: int, asked: Asked, most: int, answer: Answer
    ) -> AsyncGenerator[Delta]:
        """Draws until the constraint allows one, which is then handed on. An answer that was
        refused before in this call is drawn once more and does not count, as in
        `policies.server_engine`: what comes has the distribution of the policy given that it is
        none of those refused. Draws behind the one that is handed on are left.
        """
        constraint, refused = self.ticket.constraint, set[Any]()
        assert constraint is not None

        async def draw(redraw: int) -> Answer:
            drawn, seed = Answer(), self.ticket.draw_seed(number, redraw)
            async for delta in self._upstream.deltas(self.ticket, _body(asked, False), seed, most):
                drawn.take(delta)
            return drawn

        async with aclosing(in_order(draw, MOST_DRAWS)) as draws:
            async for redraw, drawn in draws:
                if drawn.said in refused:
                    continue
                kinds, allowed = await asyncio.to_thread(self._judged, asked, drawn)
                seed = self.ticket.draw_seed(number, redraw)
                self._keep(number, redraw, seed, drawn, kinds=kinds, refused=not allowed)
                if allowed:
                    break
                self._refused += 1
                refused.add(drawn.said)
                if self._refused > constraint.max_redraws:
                    raise self.fail(f"every draw was refused by {constraint.name}")
            else:
                raise self.fail(f"every draw was refused by {constraint.name}")
        self._answered(number, drawn)
        yield Delta(
            drawn.content, drawn.reasoning, tuple(drawn.called()), drawn.finish, usage=drawn.usage
        )

    def _judged(self, asked: Asked, drawn: Answer) -> tuple[tuple[str, ...], bool]:
        constraint = self.ticket.constraint
        assert constraint is not None
        kinds = answer_kinds([*asked.messages, drawn.message], self.ticket.environment)
        calls = [f"{call.name} {call.arguments}" for call in drawn.called()]
        return kinds, constraint.allows("\n".join([drawn.content, *calls]), kinds)

    def _keep(self, number: int, redraw: int, seed: int, answer: Answer, **more: Any) -> None:
        declined = self._upstream.declined(self.ticket)
        self._recorder.drawn(number, redraw, seed, answer, declined, **more)

    def _hung_up(self, number: int, answer: Answer) -> None:
        """The agent is gone; what it had whole counts as answered."""
        if not self._lineage.waits(number):
            return
        if answer.finish is None:
            self._recorder.left(number, answer)
        else:
            self._keep(number, 0, self.ticket.draw_seed(number, 0), answer)
            self._answered(number, answer)

    def _answered(self, number: int, answer: Answer) -> None:
        self._lineage.answered(number, answer.message)
        if answer.usage is not None:
            self._lengths[number] = sum(answer.usage.values())

    def _declined(self, number: int, error: Declined) -> Refused:
        """A refusal that is about the request is the agent's to hear; another ends the episode."""
        if error.status not in OURS:
            told = _WRONG.get(error.status, error.words)  # whose own words may hold the key
            return self.fail(
                f"the server declined the episode's calls: status {error.status}: {told}"
            )
        self._recorder.declined(number, error.status, error.words)
        return Refused(error.status, error.words)


def _body(asked: Asked, stream: bool) -> dict[str, Any]:
    tools = {"tools": asked.tools} if asked.tools else {}
    return {"messages": asked.messages, **tools, **asked.more, "stream": stream}


async def in_order(
    draw: Callable[[int], Coroutine[Any, Any, T]], number: int
) -> AsyncGenerator[tuple[int, T]]:
    """`draw(0)` to `draw(number - 1)`, each with its place. A quarter as many as were handed on
    are under way at once, so that what is drawn in vain stays a quarter; left are those under way
    where nobody asks on.
    """
    under_way, asked = deque[asyncio.Task[T]](), 0
    try:
        for place in range(number):
            ahead = min(max(place // 4, 1), MOST_AHEAD, number - place)
            while asked < place + ahead:
                under_way.append(asyncio.create_task(draw(asked)))
                asked += 1
            yield place, await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def answer_kinds(messages: Sequence[Any], environment: str = "") -> tuple[str, ...]:
    """The kinds of the actions in the last answer of a conversation, in order: `edit`, `submit`,
    the name of a tool, the program of a command (`cat`), with its verb where it has some
    (`git log`). `environment`: whose language they are written in, where one is installed.
    """
    run = run_of(steps_of(list(messages)), id="", environment=environment)
    last = max((at for at, _ in run.actions), default=-1)
    return tuple(kind_of(action) for action in actions_of(run) if action.step == last)


def kind_of(action: Action) -> str:
    """The kind of one action."""
    if action.kind in ("edit", "submit"):
        return action.kind
    name = action.program.rpartition("/")[2] or action.program
    if action.kind != "command" or name not in FAMILIES:
        return name
    verb = subcommand(iter(action.arguments))
    return f"{name} {verb}" if verb.isidentifier() or "-" in verb else name
