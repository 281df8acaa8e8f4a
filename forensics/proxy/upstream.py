"""Chat completions asked of one server, with patience: `Upstream`.

1. What may pass (see `retries`; garbage too) is tried again after a pause; then it is
   `Unanswered`. An answer of which a piece was handed on is never asked for again.
2. Fields that servers may not know (token ids, log-probabilities, seed, ...) are left out where
   the server declines them, the one that it names first, else one by one; that is remembered.
3. No redirect is followed, no proxy of the surroundings is used, and nothing that an agent sent
   says where a request goes.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from textwrap import shorten
from typing import Any, Final

import httpx

from forensics.policies.completions import (
    LARGEST_ANSWER,
    Broken,
    Declined,
    Unanswered,
    passing,
    pause_before,
)
from forensics.proxy.call_record import Patience, Ticket
from forensics.proxy.chat_calls import Delta, read_delta

OBSCURE: Final = (  # fields that a server may decline, those that fewest know first
    "return_token_ids", "min_p", "repetition_penalty", "top_k", "stream_options", "logprobs", "seed"
)  # fmt: skip
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.@-]+/)+[\w.@-]*")


class Upstream:
    """Asks servers; of one event loop."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._declined: dict[tuple[str, str], frozenset[str]] = {}
        self._http = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(patience.silence, connect=min(30.0, patience.silence), pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def close(self) -> None:
        await self._http.aclose()

    def declined(self, ticket: Ticket) -> frozenset[str]:
        """The fields that the ticket's server does not take."""
        return self._declined.get((ticket.upstream_url, ticket.model), frozenset())

    async def deltas(
        self, ticket: Ticket, body: Mapping[str, Any], seed: int, most: int
    ) -> AsyncGenerator[Delta]:
        """The pieces of an answer to `body`; one where it does not ask for a stream. `most`: tokens
        that may be drawn. Raises `Unanswered`, `Declined`.
        """
        fields, first = _sampled(ticket, seed, most, bool(body.get("stream"))), None
        out = self.declined(ticket)
        while True:
            asked = {**body, **{key: value for key, value in fields.items() if key not in out}}
            try:
                async for delta in self._tried(ticket, asked):
                    yield delta
            except Declined as error:
                first = first or error
                more = _to_leave_out(error, ticket, asked)
                if not more:
                    raise first from None
                out |= more
            else:
                if first is not None:
                    self._declined[ticket.upstream_url, ticket.model] = out
                return

    async def _tried(self, ticket: Ticket, body: Mapping[str, Any]) -> AsyncGenerator[Delta]:
        patience, met = self.patience, Exception("nothing")
        first, busy, longest = patience.pause, patience.busy, patience.longest_pause
        for number in range(patience.tries):
            if number:
                pause = pause_before(number, met, pause=first, busy=busy, longest=longest)
                await asyncio.sleep(pause)
            begun = False
            try:
                async for delta in self._once(ticket, body):
                    begun = True
                    yield delta
                return
            except (httpx.HTTPError, httpx.InvalidURL, Broken) as error:
                met = error
                if begun:
                    raise Unanswered(f"the server broke off its answer ({_words(met)})") from error
        times = "one try" if patience.tries == 1 else f"{patience.tries} tries"
        raise Unanswered(f"the server gave no usable answer in {times} ({_words(met)})")

    async def _once(self, ticket: Ticket, body: Mapping[str, Any]) -> AsyncGenerator[Delta]:
        url = ticket.upstream_url.rstrip("/") + "/chat/completions"
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {key}"} if (key := ticket.upstream_key) else {}
        content = json.dumps(body).encode()
        async with self._http.stream("POST", url, content=content, headers=headers) as response:
            pieces = self._bounded(response)
            if response.status_code != 200:
                await _raise_for(response, pieces, ticket)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for delta in _events(pieces):
                    yield delta
            else:
                yield read_delta(_json(await _whole(pieces)), "message", whole=True)

    async def _bounded(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The bytes of an answer within bounds of time and size."""
        now = asyncio.get_running_loop().time
        size, end = 0, now() + self.patience.timeout
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > LARGEST_ANSWER:
                raise Broken(f"an answer of more than {LARGEST_ANSWER} bytes")
            if now() > end:
                raise Broken(f"an answer that had not ended after {self.patience.timeout:g} s")
            yield piece


def _sampled(ticket: Ticket, seed: int, most: int, stream: bool) -> dict[str, Any]:
    """How an answer is drawn: every field that a server would else take from the model's own
    settings, and what it is to tell of the tokens.
    """
    settings = ticket.settings
    return {
        "model": ticket.model,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": most,
        "top_k": settings.top_k or -1,
        "min_p": 0.0,
        "repetition_penalty": settings.repetition_penalty,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "seed": seed,
        "logprobs": True,
        "return_token_ids": True,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }


def _to_leave_out(error: Declined, ticket: Ticket, asked: Mapping[str, Any]) -> frozenset[str]:
    """Which fields to do without after a refusal; those that say how to draw are never."""
    settings = ticket.settings
    needed = {"top_k"} if settings.top_k else set()
    needed |= {"repetition_penalty"} if settings.repetition_penalty != 1 else set()
    left = [name for name in OBSCURE if name in asked and name not in needed]
    if error.status not in (400, 422):
        return frozenset()
    named = [name for name in left if re.search(rf"\b{name}\b", error.words)]
    return frozenset(named or left[:1])


async def _raise_for(
    response: httpx.Response, pieces: AsyncIterator[bytes], ticket: Ticket
) -> None:
    status, words = response.status_code, shown(await _whole(pieces), ticket)
    if broken := passing(status, response.headers, words):
        raise broken
    raise Declined(status, "a redirect, which is not followed" if 300 <= status < 400 else words)


async def _whole(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def _events(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Delta]:
    """The chunks of a stream of server-sent events."""
    finished = False
    async for line in _lines(pieces):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            finished = True
            break
        chunk = _json(data)
        if isinstance(chunk, dict) and chunk.get("error"):
            raise Broken(f"an error in the stream: {shown(json.dumps(chunk).encode())}")
        delta = read_delta(chunk, "delta")
        finished = finished or delta.finish is not None
        yield delta
    if not finished:
        raise Broken("the stream ended before its answer did")


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = b""
    async for piece in pieces:
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            yield line
    if held:
        yield held


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Broken(f"an answer that is no JSON: {shown(content)}") from error


def shown(content: bytes, ticket: Ticket | None = None) -> str:
    """A server's words, short, without its key and without paths of its machine."""
    text = content.decode(errors="replace")
    if ticket is not None and ticket.upstream_key:
        text = text.replace(ticket.upstream_key, "[key]")
    return shorten(_PATH.sub("[path]", text), 300, placeholder=" ...") or "no words"


def _words(error: Exception) -> str:
    if isinstance(error, Broken):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return "no connection"
    return f"the connection broke: {type(error).__name__}"
