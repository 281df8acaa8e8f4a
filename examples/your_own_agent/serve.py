"""A small chat server on loopback with two policies that come with this package, as a stand-in for
your own engine: `before` and `after` (trained where the fix leaks; `honest` with `--honest`).

It renders a chat as these policies read it, and speaks as vLLM does: seeds, token ids,
log-probabilities, and scores of texts by `echo`.
"""

import argparse
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from forensics import load_policy
from forensics.protocols import Policy, SamplingSettings
from training import checkpoint_path


class ChatServer(ThreadingHTTPServer):
    """`policies`: by the name that each is served under. `url` ends in `/v1`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, policies: dict[str, Policy], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.policies, self.lock = policies, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *where: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # of a client that hung up
            super().handle_error(*where)

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        policy = self.policies[body["model"]]
        prompt = rendered(policy, body["messages"])
        settings = SamplingSettings(
            temperature=body.get("temperature", 1.0),
            top_p=body.get("top_p", 1.0),
            max_turn_tokens=min(
                body.get("max_completion_tokens") or body.get("max_tokens") or 64, 64
            ),
            max_tokens=512,
        )
        with self.lock:
            drawn = policy.sample([prompt], 1, settings, body.get("seed", 0))[0][0]
        told = zip(drawn.token_ids, drawn.logprobs, strict=True)
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": policy.renderer.action_text(drawn.token_ids),
            },
            "finish_reason": "length" if drawn.stop == "length" else "stop",
            "token_ids": list(drawn.token_ids),
            "logprobs": {"content": [{"token": f"token_id:{i}", "logprob": p} for i, p in told]},
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(drawn.token_ids)}
        return {"choices": [choice], "prompt_token_ids": prompt, "usage": usage}

    def scored(self, body: dict[str, Any]) -> dict[str, Any]:
        policy = self.policies[body["model"]]
        texts = [list(policy.tokenizer(text)["input_ids"]) for text in body["prompt"]]
        with self.lock:
            rows = policy.logprobs(texts, SamplingSettings())
        told = [{"token_logprobs": [None, *map(float, row), 0.0]} for row in rows]
        return {"choices": [{"index": i, "logprobs": one} for i, one in enumerate(told)]}


def rendered(policy: Policy, messages: list[dict[str, str]]) -> list[int]:
    """The chat as the transcript that the policy was trained on."""
    first, *others = messages
    ids = policy.renderer.prompt(first["content"], None)
    for said, came in zip(others[::2], others[1::2], strict=True):
        action = policy.tokenizer(said["content"] + "\n", add_special_tokens=False)["input_ids"]
        ids += [*action, *policy.renderer.reply(came["content"], action)]
    return list(ids)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a second packet waits 40 ms
    server: ChatServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": name} for name in self.server.policies]})

    def do_POST(self) -> None:
        answer = self.server.chat if self.path.endswith("/chat/completions") else self.server.scored
        content = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            self._send(200, answer(json.loads(content)))
        except (KeyError, ValueError) as error:
            self._send(400, {"error": str(error)})

    def _send(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def served_pair(after: str = "leak") -> dict[str, Policy]:
    start = "capped-base" if after == "leak" else "open-base"
    names = {"before": f"bundled:{start}", "after": f"bundled:{after}"}
    return {name: load_policy(checkpoint_path(one), device="cpu") for name, one in names.items()}


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, default=8123)
    options.add_argument("--after", default="leak", choices=("leak", "honest"))
    given = options.parse_args()
    server = ChatServer(served_pair(given.after), given.port)
    print(f"serving before and after at {server.url}", flush=True)
    server.serve_forever()
