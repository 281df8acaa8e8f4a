"""The proxy as a server on loopback in a thread of this process: `RecordingProxy`."""

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn

from forensics.proxy.call_record import EpisodeRecord, read_record
from forensics.proxy.endpoints import application
from forensics.proxy.open_episode import OpenEpisode
from forensics.proxy.ticket import Patience, Ticket
from forensics.proxy.upstream import Upstream

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
