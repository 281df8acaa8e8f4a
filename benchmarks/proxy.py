"""What the recording proxy adds to a call, how many it carries, and whether it grows.

Three processes: a server that answers every request at once with the same answer of 100 tokens,
their ids and log-probabilities; the proxy, one episode; a client that sends a conversation of
8 kB over connections that stay open. Peer: the same client at the server itself. For memory the
proxy opens, asks once and closes 10,000 episodes, every record kept on disk.
"""

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apart import child, held, spread

LIMITS = {"added_p50_ms": 3.0, "requests_per_second": 300, "memory": 1.05}
CALLS, AT_ONCE, EPISODES = 400, 16, 10_000
PATH = "/v1/chat/completions"
MESSAGES = [{"role": ("user", "assistant")[at % 2], "content": "word " * 100} for at in range(16)]
BODY = json.dumps({"model": "m", "messages": MESSAGES[:-1]}).encode()


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Milliseconds added at the median, requests a second, and memory at the end of 10,000
    episodes as a share of that after 1,000.
    """
    added, rates, direct, processor = [], [], [], []
    with process("serve") as (server, _, _):
        for _ in range(repeats):
            with process("proxy", server) as (place, key, number):
                direct.append(median_ms(server, ""))
                before = processor_ms(number)
                added.append(median_ms(place, key) - direct[-1])
                processor.append((processor_ms(number) - before) / CALLS)
                rates.append(asyncio.run(rate(place, key)))
        grown = child("benchmarks.proxy", "grow", server)
    return {
        "benchmark": "one call through the recording proxy against one at the server",
        "limits": LIMITS,
        "added_p50_ms": spread(added),
        "direct_p50_ms": spread(direct),
        "processor_ms": spread(processor),
        "requests_per_second": spread(rates),
        "memory": round(grown["last"] / grown["first"], 3),
        "memory_mib": {name: round(value / 2**20, 1) for name, value in grown.items()},
        "device": device,
    }


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, str, int]]:
    """A side in a process of its own: where it listens, a key, and its number."""
    command = [sys.executable, "-m", "benchmarks.proxy", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as side:
        assert side.stdout is not None
        try:
            place, _, key = side.stdout.readline().strip().partition(" ")
            yield place, key, side.pid
        finally:
            side.terminate()


def processor_ms(process_id: int) -> float:
    """What a process has used of the processor."""
    told = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def median_ms(place: str, key: str) -> float:
    """Of calls one after the other."""
    line, times = http.client.HTTPConnection(place), []
    for _ in range(CALLS):
        start = time.perf_counter()
        ask(line, key)
        times.append(1000 * (time.perf_counter() - start))
    line.close()
    return statistics.median(times)


def ask(line: http.client.HTTPConnection, key: str) -> None:
    line.request("POST", PATH, BODY, {"Authorization": f"Bearer {key}"})
    answer = line.getresponse()
    content = answer.read()
    assert answer.status == 200, content


async def rate(place: str, key: str) -> float:
    """Answers a second, so many requests under way at once."""
    start = time.perf_counter()
    each = 4 * CALLS // AT_ONCE
    await asyncio.gather(*(_asks(place, key, each) for _ in range(AT_ONCE)))
    return each * AT_ONCE / (time.perf_counter() - start)


async def _asks(place: str, key: str, number: int) -> None:
    host, _, port = place.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    for _ in range(number):
        writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        told = await reader.readuntil(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 200"), told
        await reader.readexactly(_length(told))
    writer.close()


def _length(head: bytes) -> int:
    return int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])


def _answer() -> bytes:
    ids = list(range(1000, 1100))
    rows = [{"token": "word", "logprob": -0.25, "bytes": None, "top_logprobs": []} for _ in ids]
    choice = {"index": 0, "finish_reason": "stop", "token_ids": ids, "logprobs": {"content": rows}}
    choice["message"] = {"role": "assistant", "content": "word " * 100}
    usage = {"prompt_tokens": 1500, "completion_tokens": 100}
    told = {"choices": [choice], "prompt_token_ids": list(range(1500)), "usage": usage}
    body = json.dumps(told).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def _serve() -> None:
    answer = _answer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readexactly(_length(await reader.readuntil(b"\r\n\r\n")))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(":".join(map(str, server.sockets[0].getsockname())), flush=True)
    await server.serve_forever()


def _ticket(server: str, record: Path) -> Any:
    from forensics.protocols import SamplingSettings
    from forensics.proxy import Ticket

    url, settings = f"http://{server}/v1", SamplingSettings(max_tokens=10**9)
    return Ticket(upstream_url=url, model="m", settings=settings, seed=0, record=record)


def _proxy(server: str) -> None:
    from forensics.proxy import RecordingProxy

    with tempfile.TemporaryDirectory() as folder, RecordingProxy() as proxy:
        key = proxy.open(_ticket(server, Path(folder, "record.jsonl")))
        print(proxy.url.removeprefix("http://"), key, flush=True)
        time.sleep(3600)


def _grow(server: str) -> dict[str, int]:
    """Bytes held after a tenth of the episodes, and after all."""
    from forensics.proxy import RecordingProxy

    first = 0
    with tempfile.TemporaryDirectory() as folder, RecordingProxy() as proxy:
        line = http.client.HTTPConnection(proxy.url.removeprefix("http://"))
        for number in range(EPISODES):
            key = proxy.open(_ticket(server, Path(folder, f"{number}.jsonl")))
            ask(line, key)
            proxy.close(key)
            first = held("cpu") if number == EPISODES // 10 else first
        return {"first": first, "last": held("cpu")}


if __name__ == "__main__":
    side, *given = sys.argv[1:]
    if side == "serve":
        asyncio.run(_serve())
    elif side == "proxy":
        _proxy(*given)
    else:
        print(json.dumps(_grow(*given)))
