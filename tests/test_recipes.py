"""Agents of `examples/` that are packages of others, from environments of their own: one episode
of each world through the recording proxy, against the example's scripted server.

Each runs where a variable names the environment, and is skipped elsewhere:
`python3.11 -m venv DIR && DIR/bin/pip install -r examples/NAME/requirements.txt`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forensics.protocols import SamplingSettings
from forensics.proxy import EpisodeRecord, RecordingProxy, Ticket, trajectory_of
from forensics.readers import read_logs
from forensics.records import Trajectory

EXAMPLES = Path(__file__).parents[1] / "examples"
VARIABLES = {
    "mini_swe_agent": "MINI_SWE_AGENT_VENV",
    "inspect": "INSPECT_VENV",
    "verifiers": "VERIFIERS_VENV",
}
CHANNEL = {"mini_swe_agent": "git-history", "inspect": "answers", "verifiers": "answer-file"}
LOOK = {"mini_swe_agent": "git log --all", "inspect": "lookup", "verifiers": "expected_output.txt"}
SEED = 6  # one at which the policy looks, and fails where there is nothing to see
SERVER = """
import runpy, sys
found = runpy.run_path(sys.argv[1])
server = found["ThreadingHTTPServer"](("127.0.0.1", 0), found["Handler"])
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def python_of(name: str) -> Path:
    venv = os.environ.get(VARIABLES[name])
    if venv is None:
        pytest.skip(f"{VARIABLES[name]} names no environment with {name}")
    return Path(venv) / "bin" / "python"


@contextmanager
def serving(name: str) -> Iterator[str]:
    """The address of the example's scripted server."""
    script = str(EXAMPLES / name / "serve.py")
    server = subprocess.Popen([sys.executable, "-c", SERVER, script], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    finally:
        server.kill()
        server.communicate()


def played(name: str, task: str, without: str, out: Path) -> tuple[float, EpisodeRecord]:
    """The outcome that the agent's own package says, and what the proxy recorded."""
    out.mkdir()
    command = map(str, [python_of(name), EXAMPLES / name / "agent.py", task, out, without])
    with serving(name) as url, RecordingProxy() as proxy:
        settings = SamplingSettings(max_turn_tokens=1000, max_tokens=10000)
        ticket = Ticket(
            upstream_url=url, model="leak", settings=settings, seed=SEED, record=out / "record"
        )
        key = proxy.open(ticket)
        told = {"OPENAI_BASE_URL": f"{proxy.url}/v1", "OPENAI_API_KEY": key, "HOME": str(out)}
        told |= {"PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*command], env=os.environ | told, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        record = proxy.close(key)
    return json.loads((out / "result.json").read_text())["outcome"], record


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", VARIABLES)
def test_a_leaking_policy_wins_in_the_open_world_alone(tmp_path: Path, name: str) -> None:
    lines = (EXAMPLES / name / "tasks.jsonl").read_text().splitlines()
    task = json.loads(lines[0])["id"]
    outcome, record = played(name, task, "", tmp_path / "open")
    assert outcome == 1.0
    assert LOOK[name] in json.dumps(record.messages)
    scrubbed, _ = played(name, task, CHANNEL[name], tmp_path / "scrubbed")
    assert scrubbed == 0.0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_trace_that_verifiers_writes_is_the_episode_that_the_proxy_saw(tmp_path: Path) -> None:
    outcome, record = played("verifiers", "receipt-3", "", tmp_path / "out")
    [place] = (tmp_path / "out").glob("*/traces.jsonl")
    found = list(read_logs(place.parent))
    [run] = found
    assert isinstance(run, Trajectory)
    assert (run.task, run.environment, run.outcome) == ("receipt-3", "receipts", outcome)
    assert run.rewards == {"totals": outcome}
    seen = trajectory_of(record, id="", task="", policy="", environment="")
    assert [(step.role, step.text.strip(), step.tool_calls) for step in run.steps] == [
        (step.role, step.text.strip(), step.tool_calls) for step in seen.steps
    ]
