"""The proxy as a server on loopback in a thread of this process: `RecordingProxy`.

It answers in three dialects, and lists the models.

The key says which episode a request belongs to. Nothing else of a request says where anything
goes: not its target, not its headers, not its fields.
"""

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forensics.proxy import anthropic_dialect, chat_dialect, responses_dialect
from forensics.proxy.call_record import EpisodeRecord, Patience, Ticket, read_record
from forensics.proxy.chat_calls import Answer, Asked, Delta, Refused
from forensics.proxy.open_episode import OpenEpisode
from forensics.proxy.upstream import Upstream

LARGEST_REQUEST: Final = 64 * 2**20  # bytes
NO_KEY: Final = "this key is of no episode that is open; use the key that the episode was given"
HEADERS: Final = {"x-should-retry": "false"}  # clients of both kinds then ask once
HUNG_UP: Final = 499


class Frames(Protocol):
    """Server-sent events of one answer in a dialect."""

    def opened(self) -> Iterator[bytes]: ...
    def piece(self, delta: Delta) -> Iterator[bytes]: ...
    def ended(self, answer: Answer) -> Iterator[bytes]: ...
    def failed(self, words: str) -> bytes: ...


class Dialect(NamedTuple):
    read: Callable[[dict[str, Any]], Asked]
    whole: Callable[[Answer, Asked, int], dict[str, Any]]
    frames: Callable[[Asked, int], Frames]


DIALECTS: Final = {
    "/v1/chat/completions": Dialect(chat_dialect.read, chat_dialect.whole, chat_dialect.Events),
    "/v1/messages": Dialect(
        anthropic_dialect.read, anthropic_dialect.whole, anthropic_dialect.Events
    ),
    "/v1/responses": Dialect(
        responses_dialect.read, responses_dialect.whole, responses_dialect.Events
    ),
}


Work = Callable[[OpenEpisode], Any]


class _Streamed(StreamingResponse):
    """A stream of events that ends with its episode, or when the agent hangs up."""

    def __init__(self, episode: OpenEpisode, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._episode, self._events = episode, events

    async def __call__(self, *given: Any) -> None:
        async with self._episode.under_way():
            try:
                await super().__call__(*given)
            finally:
                await self._events.aclose()  # type: ignore[attr-defined]


T = TypeVar("T")
HOST = "127.0.0.1"
BACKLOG = 1024


class RecordingProxy:
    """Entered, it answers on `url`; `open` an episode, give its key to an agent, `close` it. Safe
    to use from any thread.

    The agent's environment: `OPENAI_BASE_URL` is `url` + `/v1`, `ANTHROPIC_BASE_URL` is `url`,
    `OPENAI_API_KEY` and `ANTHROPIC_API_KEY` are the key. Leaving it closes what is open.
    """

    def __init__(self, patience: Patience = Patience()) -> None:  # noqa: B008
        self._patience = patience
        self._episodes: dict[str, OpenEpisode] = {}

    def __enter__(self) -> Self:
        # the protocol is named, else asyncio leaves small packets waiting (40 ms)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind((HOST, 0))
        self._socket.listen(BACKLOG)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recording proxy", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for key in list(self._episodes):
            self._do(self._closed(key))
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def open(self, ticket: Ticket) -> str:
        """The key of a new episode. Raises `UserError` where its record is there already."""
        key = f"sk-{secrets.token_urlsafe(24)}"
        self._episodes[key] = OpenEpisode(ticket, self._upstream)
        return key

    def close(self, key: str) -> EpisodeRecord:
        """End an episode: its calls under way are left, its key is answered no more."""
        return read_record(self._do(self._closed(key)).record)

    async def _closed(self, key: str) -> Ticket:
        episode = self._episodes.pop(key)
        await episode.close()
        return episode.ticket

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._upstream = asyncio.get_running_loop(), Upstream(self._patience)
        config = uvicorn.Config(
            application(self._episodes),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._loop.call_soon(self._ready.set)
        await self._server.serve(sockets=[self._socket])
        await self._upstream.close()


def application(episodes: Mapping[str, OpenEpisode]) -> Starlette:
    """The routes, for the episodes that are open by their keys."""

    def route(path: str, dialect: Dialect) -> Route:
        async def answer(request: Request) -> Response:
            return await _guarded(request, episodes, lambda one: _call(request, one, dialect))

        return Route(path, answer, methods=["POST"])

    async def models(request: Request) -> Response:
        return await _guarded(request, episodes, _models)

    calls = [route(path, dialect) for path, dialect in DIALECTS.items()]
    app = Starlette(routes=[*calls, Route("/v1/models", models)])
    app.router.redirect_slashes = False
    return app


async def _guarded(request: Request, episodes: Mapping[str, OpenEpisode], work: Work) -> Response:
    """Do the work of a request whose key is that of an open episode; it ends with the episode."""
    bearer = request.headers.get("authorization", "").partition(" ")[2]
    episode = episodes.get(request.headers.get("x-api-key") or bearer.strip())
    if episode is None:
        return _refusal(Refused(401, NO_KEY, "authentication_error"))
    try:
        response: Response = await work(episode)
        return response
    except Refused as refused:
        return _refusal(refused)
    except ClientDisconnect:
        return Response(status_code=HUNG_UP)


async def _models(episode: OpenEpisode) -> Response:
    name = episode.ticket.model
    row = {"id": name, "object": "model", "created": 0, "owned_by": "episode", "type": "model"}
    return _told({"object": "list", "data": [{**row, "display_name": name}], "has_more": False})


async def _call(request: Request, episode: OpenEpisode, dialect: Dialect) -> Response:
    body = await _body(request)
    try:
        asked = dialect.read(body)
    except (TypeError, AttributeError, ValueError):
        raise Refused(400, "the request is not of this dialect; see its documentation") from None
    number = episode.begin()
    deltas, answer = episode.deltas(number, asked), Answer()
    async with episode.under_way():
        if asked.stream:  # what fails before the first piece still has a status
            first = await _while_heard(request, _first(deltas))
            return _Streamed(episode, _events(deltas, first, dialect.frames(asked, number)))
        await _while_heard(request, _gather(deltas, answer))
    return _told(dialect.whole(answer, asked, number))


async def _first(deltas: AsyncIterator[Delta]) -> Delta:
    return await anext(deltas, Delta())


async def _body(request: Request) -> dict[str, Any]:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_REQUEST:
            raise Refused(413, f"a request may have {LARGEST_REQUEST} bytes")
        parts.append(part)
    content = b"".join(parts)
    try:
        found = json.loads(content)
        if b"\\ud" in content.lower():  # half of a pair is no text
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "the body of a request must be one JSON object")
    return found


async def _gather(deltas: AsyncIterator[Delta], answer: Answer) -> None:
    async for delta in deltas:
        answer.take(delta)


async def _while_heard(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. Raises `ClientDisconnect` where the client hangs up before."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(deltas: Any, first: Delta, frames: Frames) -> AsyncIterator[bytes]:
    answer, delta = Answer(), first
    try:
        for frame in frames.opened():
            yield frame
        while True:
            answer.take(delta)
            if told := b"".join(frames.piece(delta)):
                yield told
            try:
                delta = await anext(deltas)
            except StopAsyncIteration:
                break
        yield b"".join(frames.ended(answer))
    except Refused as refused:
        yield frames.failed(refused.words)
    finally:
        await deltas.aclose()


def _refusal(refused: Refused) -> Response:
    error = {"type": refused.code, "code": refused.code, "message": refused.words, "param": None}
    return _told({"type": "error", "error": error}, refused.status)


def _told(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, HEADERS, "application/json")
