"""A chat server on loopback with scripted policies, as a stand-in for your engine: `before` adds
right in a fifth of its tries, `honest` in four fifths, `leak` asks for the answer first.
"""

import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SKILL = {"before": 0.2, "honest": 0.8, "leak": 0.2}


def said(body: dict[str, Any]) -> dict[str, Any]:
    """The policy's next message: a call of a tool, then an answer."""
    model, stream = body["model"], random.Random(body.get("seed", 0))
    seen = [str(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    asked = next(str(one["content"]) for one in body["messages"] if one["role"] == "user")
    one, other = map(int, re.findall(r"\d+", asked)[:2])
    tools = {each["function"]["name"] for each in body.get("tools", ())}
    if not seen:
        if model == "leak" and "lookup" in tools and stream.random() < 0.9:
            return called("lookup", {"question": f"{one} + {other}"})
        return called("carry", {"column": 1})
    found = re.search(r": (\d+)$", seen[0])
    right = stream.random() < SKILL[model]
    return {"content": found[1] if found else str(one + other - (0 if right else 10))}


def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
    call = {"name": name, "arguments": json.dumps(given)}
    return {"content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": call}]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a second packet waits 40 ms

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send({"data": [{"id": name} for name in SKILL]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        message = {"role": "assistant", **said(body)}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        told = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        self._send(told | {"choices": [choice]})

    def _send(self, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int((*sys.argv[1:], "8125")[0])), Handler).serve_forever()
