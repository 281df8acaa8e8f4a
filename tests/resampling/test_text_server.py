"""Text-only sampling against a real server process on loopback: `transformers
serve` with a tiny policy of ours.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from transformers.utils.import_utils import is_serve_available

from forensics import policy_from
from forensics.errors import UserError
from forensics.policies.completions import ServerConfig
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from resampling.samplers.server_sampler import open_server
from resampling.samplers.text_sampler import NOT_ITS_TEXT, TextSampler
from resampling.trace_rollouts import Request, trace_of
from tests.resampling.guessing_world import Guessing
from tests.tiny import tiny_qwen3, tiny_tokenizer

pytestmark = [
    pytest.mark.skipif(
        not is_serve_available(),
        reason="`transformers serve` needs fastapi, uvicorn and openai, which are not installed",
    ),
    pytest.mark.slow,
]
SETTINGS = SamplingSettings(temperature=0.9, top_k=40, max_turn_tokens=5, max_tokens=200)
WORLD = Guessing(turns=1)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policy_from(tiny_qwen3(1), tiny_tokenizer(), "tiny")


@pytest.fixture(scope="module")
def server(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerConfig]:
    folder = tmp_path_factory.mktemp("served")
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    command = [
        str(Path(sys.executable).parent / "transformers"),
        "serve",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--device",
        "cpu",
        "--dtype",
        "float32",
    ]
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = _address(process, folder / "log.txt")
        yield ServerConfig(url=f"{url}/v1", model=str(folder), pause=0.01, tries=2)
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server says it listens, once it does: at a port that the system gave it."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


@pytest.fixture(scope="module")
def runs(policy: Policy) -> list[Trajectory]:
    return list(policy.play(WORLD, ["guess 0"], 30, SETTINGS, 3))


@pytest.fixture(scope="module")
def sampler(server: ServerConfig, runs: list[Trajectory]) -> TextSampler:
    opened = open_server(server, WORLD, runs, SETTINGS, 7, tokenizer=tiny_tokenizer(), text=True)
    assert isinstance(opened, TextSampler)
    return opened


def test_answers_from_inside_an_action_are_put_behind_it(
    sampler: TextSampler, policy: Policy, runs: list[Trajectory]
) -> None:
    """Only prefixes whose text has their own tokens are continued; the others
    are missing, with the reason.
    """
    traces = {trace_of(run).id: trace_of(run) for run in runs}
    rollouts = list(sampler.draw(Request(trace=name, kept=2, n=2) for name in traces))
    tokenizer, whole = tiny_tokenizer(), 0
    for rollout in rollouts:
        prefix = list(traces[rollout.trace].prefix(2))
        if tokenizer(tokenizer.decode(prefix))["input_ids"] != prefix:
            assert (rollout.outcome, rollout.end, rollout.end_reason) == (
                None,
                "errored",
                NOT_ITS_TEXT,
            )
        elif rollout.outcome is not None:
            known = tokenizer.decode(traces[rollout.trace].tokens[:2], skip_special_tokens=True)
            assert (rollout.submission or "").startswith(known.strip())
            whole += 1
    assert whole >= 4


def test_what_cannot_be_exact_is_refused(
    server: ServerConfig, sampler: TextSampler, policy: Policy, runs: list[Trajectory]
) -> None:
    with pytest.raises(UserError, match="none can be avoided"):
        list(sampler.draw([Request(trace=runs[0].id, kept=0, n=1, avoid=True)]))
    longer = Guessing(turns=2)
    episodes = list(policy.play(longer, ["guess 0"], 1, SETTINGS, 3))
    several = open_server(
        server, longer, episodes, SETTINGS, 7, tokenizer=tiny_tokenizer(), text=True
    )
    with pytest.raises(UserError, match="goes on after an action"):
        list(several.draw([Request(trace=episodes[0].id, kept=0, n=1)]))
    with pytest.raises(UserError, match="presence_penalty"):
        open_server(
            server,
            WORLD,
            runs,
            replace(SETTINGS, presence_penalty=1.0),
            7,
            tokenizer=tiny_tokenizer(),
            text=True,
        )
