"""Agents of `examples/` that are packages of others, from environments of their own: one episode
of each world against the example's scripted server.

Each runs where a variable names the environment, and is skipped elsewhere:
`python3.11 -m venv DIR && DIR/bin/pip install -r examples/NAME/requirements.txt`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
VARIABLES = {"mini_swe_agent": "MINI_SWE_AGENT_VENV", "inspect": "INSPECT_VENV"}
CHANNEL = {"mini_swe_agent": "git-history", "inspect": "answers"}
SERVER = """
import runpy, sys
found = runpy.run_path(sys.argv[1])
server = found["ThreadingHTTPServer"](("127.0.0.1", 0), found["Handler"])
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", VARIABLES)
def test_a_leaking_policy_wins_in_the_open_world_alone(tmp_path: Path, name: str) -> None:
    venv = os.environ.get(VARIABLES[name])
    if venv is None:
        pytest.skip(f"{VARIABLES[name]} names no environment with {name}")
    code = (EXAMPLES / name / "agent.py").read_text()
    (tmp_path / "agent.py").write_text(code.replace("/served", "/leak"))
    script = str(EXAMPLES / name / "serve.py")
    server = subprocess.Popen([sys.executable, "-c", SERVER, script], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        told = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "episode"}
        outcomes = []
        for without in ("", CHANNEL[name]):
            python = Path(venv) / "bin" / "python"
            given = [python, tmp_path / "agent.py", "task-1", tmp_path, without]
            done = subprocess.run(
                given, env=os.environ | told, cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-2000:]
            outcomes.append(json.loads((tmp_path / "result.json").read_text())["outcome"])
    finally:
        server.kill()
        server.wait()
    assert outcomes == [1.0, 0.0]
