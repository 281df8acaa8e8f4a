"""A real HTTP server in this process that speaks the completions of vLLM with a
tiny Hugging Face policy.

It can be told to misbehave: `habits` change what it is (it takes no ids, it
ignores `n`), `troubles` what happens to one request after another (a 500,
garbage, silence).
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import torch

from forensics.policies.distribution import draw, log_distribution, row_stream
from forensics.policies.kv_cache import new_cache
from forensics.protocols import Policy, SamplingSettings

FIELDS = {
    "model",
    "prompt",
    "max_tokens",
    "n",
    "seed",
    "temperature",
    "top_p",
    "logprobs",
    "echo",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "stop",
}


SEVERAL = 3  # requests under way, for which one "in company" waits
PATIENCE = 600  # seconds; only a client that is broken makes the server wait so long


class CompletionStub(ThreadingHTTPServer):
    """`url` ends in `/v1`. `seen` holds the bodies of all completions,
    `most_at_once` their largest overlap.
    """

    daemon_threads = (
        False  # joined at the end: no thread may be inside a model when the interpreter goes
    )
    request_queue_size = 128
    gathers = False  # whether `generate` may be called by several threads at once

    def __init__(self, policy: Policy, *habits: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.policy, self.habits, self.troubles = policy, frozenset(habits), deque[str]()
        self.seen: list[dict[str, Any]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.lock, self.calls, self.at_once, self.most_at_once = threading.Lock(), 0, 0, 0
        self.connections: set[socket.socket] = set()
        self.leaving, self.several = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def manage(self, what: str, body: dict[str, Any]) -> tuple[int, Any]:
        """The answer to a request that changes what is served; `told` keeps them all."""
        return 404, {"error": f"no route {what}"}

    def adapters_listed(self) -> list[dict[str, Any]]:
        """As vLLM lists them, beside the model that they are on."""
        return []

    def policy_of(self, model: str) -> Policy:
        """What is served under a name."""
        return self.policy

    def generate(
        self, policy: Policy, body: dict[str, Any], seeds: list[int]
    ) -> list[tuple[list[int], list[float | None], str]]:
        """The choices of one request."""
        return generate(policy, body, seeds, self.habits)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Take no further connection and close those that are open."""
        self.leaving.set()
        self.shutdown()
        self.socket.close()
        for connection in tuple(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


Stub = TypeVar("Stub", bound=CompletionStub)


@contextmanager
def serving(policy: Policy, *habits: str) -> Iterator[CompletionStub]:
    with running(CompletionStub(policy, *habits)) as server:
        yield server


@contextmanager
def running(stub: Stub) -> Iterator[Stub]:
    """A stub while it answers."""
    with stub as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.hang_up()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CompletionStub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        models = [{"id": "tiny", "max_model_len": 512}, *self.server.adapters_listed()]
        self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        if not self.path.endswith("/completions"):
            server.told.append((self.path, body))
            self._send(*server.manage(self.path.rpartition("/")[2], body))
            return
        with server.lock:
            server.seen.append(body)
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            if server.at_once >= SEVERAL:
                server.several.set()
            trouble = server.troubles.popleft() if server.troubles else ""
        try:
            if not self._trouble(trouble):
                self._send(*_answer(server, body, trouble))
        finally:
            with server.lock:
                server.at_once -= 1

    def _trouble(self, name: str) -> bool:
        """Whether the request was answered by misbehaving."""
        if name == "500":
            self._send(500, {"error": "out of memory"})
        elif name.startswith("429"):
            after = name.removeprefix("429").strip()  # "429 7": come back in 7 seconds
            headers = {"Retry-After": after} if after else {}
            self._send_bytes(429, b'{"error": "busy"}', headers)
        elif name == "garbage":
            self._send_bytes(200, b'{"choices": [{"text": "half')
        elif name == "close":
            self.close_connection = True
        elif name == "never":
            self.server.leaving.wait(PATIENCE)
            self.close_connection = True
        elif name == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            with suppress(OSError):  # until the client hangs up
                while not self.server.leaving.wait(0.05):
                    self.wfile.write(b" ")
        elif name == "slow":
            self.server.leaving.wait(0.2)
            return False
        elif name == "in company":
            self.server.several.wait(PATIENCE)
            self.server.several.set()
            return False
        else:
            return False
        return True

    def _send(self, status: int, answer: Any) -> None:
        self._send_bytes(status, json.dumps(answer).encode())

    def _send_bytes(
        self, status: int, content: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _answer(server: CompletionStub, body: dict[str, Any], trouble: str) -> tuple[int, Any]:
    habits = server.habits
    if "no ids in" in habits and not isinstance(body["prompt"], str):
        return 400, {"error": "prompt must be a string."}
    if "strict" in habits and (unknown := sorted(set(body) - FIELDS)):
        return 422, {"error": f"unexpected fields {unknown}"}
    if "no bias" in habits and "logit_bias" in body:
        return 400, {"error": "logit_bias is not supported"}
    n = 1 if "one choice" in habits else body.get("n", 1) - (trouble == "fewer")
    with server.lock:
        server.calls += 1
        policy = server.policy_of(body["model"])
        seeds = [_seed(server, body, i) for i in range(n)]
    with nullcontext() if server.gathers else server.lock:
        drawn = server.generate(policy, body, seeds)
    choices = [{"index": i, **_choice(body, *row, habits)} for i, row in enumerate(drawn)]
    usage = {
        "prompt_tokens": len(body["prompt"]) + ("adds a token" in habits),
        "completion_tokens": sum(len(ids) for ids, _, _ in drawn),
    }
    return 200, {"choices": choices[:: -1 if "backwards" in habits else 1], "usage": usage}


def _seed(server: CompletionStub, body: dict[str, Any], index: int) -> int:
    if "no seeds" in server.habits:
        return server.calls * 1000 + index
    if "one seed" in server.habits:
        return 7
    return int(body.get("seed", 0)) + (0 if "copies" in server.habits else index)


def _choice(
    body: dict[str, Any],
    ids: list[int],
    logprobs: list[float | None],
    finish: str,
    habits: frozenset[str],
) -> dict[str, Any]:
    told = [
        i
        for i in ids
        if "trims" not in habits or finish != "stop" or i not in body["stop_token_ids"]
    ]
    choice: dict[str, Any] = {"text": "", "finish_reason": finish}
    if "unnamed stop" not in habits:
        choice["stop_reason"] = ids[-1] if finish == "stop" else None
    if body.get("return_token_ids") and "no ids out" not in habits:
        choice["token_ids"] = told
    if body.get("logprobs") is not None and "no logprobs" not in habits:
        choice["logprobs"] = {"token_logprobs": logprobs, "top_logprobs": [{"?": -0.5}]}
    return choice


@torch.inference_mode()
def generate(
    policy: Policy, body: dict[str, Any], seeds: list[int], habits: frozenset[str]
) -> list[tuple[list[int], list[float | None], str]]:
    """For each seed: tokens, the model's log-probabilities of them (with
    `echo`: of the prompt's before), the end.
    """
    settings = SamplingSettings(
        temperature=0.0
        if "greedy" in habits
        else body.get("temperature", 1.0) * (1.2 if "hot" in habits else 1.0),
        top_k=0 if "no top-k" in habits else max(body.get("top_k", 0), 0),
        top_p=body.get("top_p", 1.0),
    )
    stops = set() if "no stops" in habits else set(body.get("stop_token_ids", ()))
    streams, cache = [row_stream(seed) for seed in seeds], new_cache(policy.model.config)
    new = torch.tensor([body["prompt"]]).repeat(len(seeds), 1)
    rows: list[list[int]] = [[] for _ in seeds]
    scores: list[list[float | None]] = [[] for _ in seeds]
    living = set(range(len(seeds)))
    for number in range(body["max_tokens"]):
        place = {}
        if "off by one" in habits and number:  # of every drawn token, not of the prompt
            place["position_ids"] = torch.full_like(new, len(body["prompt"]) + number)
        logits = policy.model(new, past_key_values=cache, use_cache=True, **place).logits
        own = logits.log_softmax(-1)
        if number == 0 and body.get("echo"):
            told = own[:, :-1].gather(-1, new[:, 1:, None])[..., 0].tolist()
            scores = [[None, *row] for row in told]
        last = logits[:, -1].clone()
        for token, bias in (
            body.get("logit_bias", {}).items() if "deaf to bias" not in habits else ()
        ):
            last[:, int(token)] += bias
        uniforms = [float(stream.random()) for stream in streams]
        drawn_from = log_distribution(last, settings)
        tokens = draw(drawn_from, range(len(seeds)), uniforms)
        for i in sorted(living):
            rows[i].append(int(tokens[i]))
            told = drawn_from if "processed" in habits else own[:, -1]
            scores[i].append(told[i, tokens[i]].item())
        living = {i for i in living if rows[i][-1] not in stops}
        if not living:
            break
        new = tokens[:, None]
    ends = ["length" if i in living else "stop" for i in range(len(seeds))]
    return list(zip(rows, scores, ends, strict=True))
