"""Audits of a TRL run through a server: the numbers of play in process, a stale server found,
a dead one outlived, two processes.
"""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import Policy, SamplingSettings
from forensics.records import read_trajectories
from tests.resampling.completion_stub import running
from tests.training.served_model import ModelServer
from tests.training.test_served_training import told_to_read
from tests.training.trl_runs import load_example, parts_of, trainer_of, watched
from training.live import read_reports

pytestmark = pytest.mark.filterwarnings("ignore")
GREEDY = SamplingSettings(temperature=0.0, max_turn_tokens=6, max_tokens=120)


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example()


def start(example: Any) -> Policy:
    return policy_from(*parts_of(example), "start")


def server(example: Any, *habits: str) -> ModelServer:
    return ModelServer(start(example), *habits)


def lora(example: Any) -> tuple[Any, Any]:
    import torch
    from peft import LoraConfig, get_peft_model

    model, tokenizer = parts_of(example)
    torch.manual_seed(0)
    return get_peft_model(model, LoraConfig(r=4, target_modules="all-linear")), tokenizer


def trained(example: Any, folder: Path, url: str | None, *, adapter: bool, **options: Any) -> Path:
    """A run of two steps; through the server at `url`, if any."""
    given: Any = {"parts": lora(example)} if adapter else {}
    trainer = trainer_of(example, folder, learning_rate=1e-2, **given)
    if url is not None:
        told = {} if adapter else {"reload": told_to_read(url)}
        options["server"] = {"url": url, **told}
    watched(example, folder, **options).attach(trainer)
    trainer.train()
    return folder / "forensics"


def actions(folder: Path) -> dict[str, list[Any]]:
    """What was drawn in every stored run, by audit and file, but for what names streams."""
    return {
        f"{log.parent.parent.name} {log.name}": [
            (run.task, run.outcome, [step.text for step in run.steps])
            for run in read_trajectories(log)
        ]
        for log in sorted(folder.glob("audits/*/trajectories/*"))
    }


@pytest.mark.parametrize("adapter", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_audits_through_a_server_are_those_of_play_in_process(
    example: Any, tmp_path: Path, adapter: bool
) -> None:
    with running(server(example)) as stub:
        there = trained(example, tmp_path / "there", stub.url, adapter=adapter, sampling=GREEDY)
    here = trained(example, tmp_path / "here", None, adapter=adapter, sampling=GREEDY)
    assert actions(there) == actions(here) and len(actions(here)) >= 6
    for one, other in zip(read_reports(there), read_reports(here), strict=True):
        assert (one.policy, one.label, one.wins, one.gain) == (
            other.policy,
            other.label,
            other.wins,
            other.gain,
        )
    assert stub.seen and [r.step for r in read_reports(there)] == [1, 2]
    loads = [body for path, body in stub.told if "unload" not in path]
    assert len(loads) == 3  # the start, and after either step
    told = json.loads((there / "audits" / "start" / "start.json").read_text())
    assert told["sampler_gap"] < 1e-4 and told["checkpoint"]["weights"] != "start"


SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in ("hot", "dead")]


@pytest.mark.parametrize("fault", ["stale", *SLOW])
def test_a_server_that_is_not_what_is_trained_makes_no_audit(
    example: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """What changes after the start: the run goes on, and nothing is said of its weights."""
    with running(server(example)) as stub:
        told = {"url": stub.url, "reload": told_to_read(stub.url)}
        forensics = watched(example, tmp_path, server=told)
        trainer = trainer_of(example, tmp_path, learning_rate=1e-2, max_steps=1)
        begin = forensics.on_train_begin

        def broken(*given: Any, **named: Any) -> None:
            begin(*given, **named)
            stub.habits |= {fault}
            if fault == "dead":
                stub.troubles.extend(["500"] * 200)

        forensics.on_train_begin = broken  # type: ignore[method-assign]
        forensics.attach(trainer)
        with caplog.at_level(logging.WARNING, "forensics.audit"):
            trainer.train()
    assert trainer.state.global_step == 1
    reports = read_reports(tmp_path / "forensics")  # told the same weights twice, even a server
    assert len(reports) == (fault == "stale")  # that is one behind has them at the end
    [said] = {text for text in caplog.messages if "after step 1 failed (NotServed" in text}
    assert ("nats a token" in said) == (fault != "dead")


@pytest.mark.slow
def test_a_server_that_fails_in_an_audit_leaves_no_half_of_it(
    example: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers the few texts, and goes away; what it did answer is never an audit."""
    with running(server(example)) as stub:
        load, loads = stub.manage, list[str]()

        def manage(what: str, body: dict[str, Any]) -> tuple[int, Any]:
            loads.append(what)
            if len(loads) == 2:  # before the first audit: eight texts and two episodes
                stub.troubles.extend([""] * 10 + ["500"] * 200)
            return load(what, body)

        stub.manage = manage  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING, "forensics.audit"):
            out = trained(example, tmp_path, stub.url, adapter=False)
    assert "left a request unanswered" in caplog.text and read_reports(out) == []
    assert not list(out.glob("audits/step-*/trajectories/after*"))


def test_what_a_server_needs_is_said_before_anything_is_trained(
    example: Any, tmp_path: Path
) -> None:
    for told, said in (
        ({"url": "http://127.0.0.1:9/v1"}, "give the command as reload"),
        ({"url": "http://127.0.0.1:9/v1", "reload": "true"}, "there is no server at"),
        ({"adress": ""}, "unknown key 'adress'"),
    ):
        with pytest.raises(UserError, match=said):
            forensics = watched(example, tmp_path, server=told)
            trainer = trainer_of(example, tmp_path)
            forensics.attach(trainer)
            trainer.train()


PROGRAM = """
import sys
from pathlib import Path
from tests.training.test_trl_served import lora, trained
from tests.training.trl_runs import load_example
trained(load_example(), Path(sys.argv[1]), sys.argv[2], adapter=sys.argv[3] == "adapter")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["adapter", "whole"])
def test_in_two_processes_the_first_asks_the_server(example: Any, tmp_path: Path, how: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    given = [str(tmp_path / "program.py"), str(tmp_path / "run")]
    root = str(Path(__file__).parents[2])
    with running(server(example)) as stub:
        done = subprocess.run(
            [sys.executable, *launcher, *given, stub.url, how],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [report.step for report in read_reports(tmp_path / "run" / "forensics")] == [1, 2]
    assert len([body for path, body in stub.told if "unload" not in path]) == 3
