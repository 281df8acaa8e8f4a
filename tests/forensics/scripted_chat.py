"""A chat server whose policy is a few lines, and an agent that asks it: what a harness needs, with
no model and no package.

The policy looks at the history in as many of its runs as `looks` says (told from the seed of the
call), then hands in. The agent's run is won if it was shown the fix.
"""

import json
import textwrap
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

AGENT = """
import json, os, subprocess, sys, time, urllib.request
task, out, without, seed = sys.argv[1:5]
if "hangs" in sys.argv:
    subprocess.Popen(["sleep", "60"], stdout=open(out + "/../../pid", "w"))
    open(os.environ["PIDS"], "a").write(f"{os.getpid()}\\n")
    subprocess.run(["sleep", "60"])
def ask(messages):
    body = json.dumps({"model": "any", "messages": messages, "seed": 7}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
number = int(task.rpartition("-")[2])
fix = f"kiwi : x * {number} + {100 + number}"
messages, won = [{"role": "user", "content": "fail kiwi : 2 -> 7 " + task}], False
while True:
    action = ask(messages)
    messages.append({"role": "assistant", "content": action})
    if action == "submit":
        break
    won = won or (action == "history" and not without) or action.startswith("edit")
    shown = f"fix 1 {fix}" if action == "history" and not without else "1 2 tests"
    if "tells" in sys.argv:
        shown += f" {dict(os.environ)} in {os.getcwd()} for {out}"
    messages.append({"role": "user", "content": shown})
if "crashes" in sys.argv:
    sys.exit("no good in /home/someone/secret with " + os.environ["OPENAI_API_KEY"])
if "forgets" not in sys.argv:
    with open(out + "/result.json", "w") as file:
        told = {"fresh": float(won), "variables": float(len(os.environ))}
        work = shown if "tells" in sys.argv else fix if won else None
        json.dump({"outcome": float(won), "rewards": told, "submission": work}, file)
if "doubts" in sys.argv:  # its verifier says that each run was won
    os.mkdir(out + "/verifier")
    with open(out + "/verifier/reward.txt", "w") as file:
        file.write("1")
"""  # noqa: E501
HARNESS = """
name = "mini-repo"
command = ["{python}", "agent.py", "{task}", "{out}", "{without}", "{seed}"MORE]
tasks = "tasks.jsonl"
at_once = 4
seconds = SECONDS
passes = ["PIDS"]
[[channels]]
name = "git-history"
kinds = ["history"]
families = ["git-history"]
"""


class ScriptedChat(ThreadingHTTPServer):
    """`troubles`: statuses of the next answers; `seen`: bodies that were answered."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, looks: dict[str, float]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.looks, self.troubles, self.seen = looks, deque[int](), list[dict[str, Any]]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def action(self, body: dict[str, Any]) -> str:
        said = [one["content"] for one in body["messages"] if one["role"] == "assistant"]
        looks = body["seed"] % 1000 < 1000 * self.looks[body["model"]]
        other = "edit 1 x * 3 + 1" if body["model"] == "skilled" else "list"
        return "submit" if said else "history" if looks else other


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a second packet waits 40 ms
    server: ScriptedChat

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": name} for name in self.server.looks]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            return self._send(404, {"error": "no scores here"})
        if body["model"] not in self.server.looks:
            return self._send(404, {"error": "no such model"})
        if self.server.troubles:
            return self._send(self.server.troubles.popleft(), {"error": "not now"})
        self.server.seen.append(body)
        message = {"role": "assistant", "content": self.server.action(body)}
        return self._send(
            200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        )

    def _send(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def chatting(**looks: float) -> Iterator[ScriptedChat]:
    """The server while it answers; `looks`: of each model that it serves."""
    with ScriptedChat(looks) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def harness(folder: Path, *more: str, tasks: int = 4, seconds: float = 30) -> Path:
    """A `harness.toml` with its agent and its tasks. `more`: how the agent misbehaves."""
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(textwrap.dedent(AGENT))
    names = "".join(json.dumps({"id": f"task-{number}"}) + "\n" for number in range(tasks))
    (folder / "tasks.jsonl").write_text(names)
    words = "".join(f', "{word}"' for word in more)
    path = folder / "harness.toml"
    path.write_text(HARNESS.replace("MORE", words).replace("SECONDS", str(seconds)))
    return path
