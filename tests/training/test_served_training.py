"""Training through a server with a real model: weights reach it, what it drew is corrected,
and a server that is not what is trained is found.
"""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import Policy, SamplingSettings
from forensics.records import read_trajectories
from tests.resampling.completion_stub import CompletionStub, running
from tests.training.served_model import ModelServer
from training.environments.mini_repo import MiniRepo
from training.live import AuditSettings, ForensicsCallback
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import Recipe, parse_recipe
from training.recorder import StepReport
from training.served_sampler import GapWatch
from training.trainer import grpo
from training.update import Batch, sampler_gap

WORLD = MiniRepo(turns="2")


def policy() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, "start")


CONTENT: dict[str, Any] = {
    "policy": {"checkpoint": "none"},
    "environment": {"name": "mini-repo", "options": {"turns": 2}},
    "sampling": {"max_turn_tokens": 6, "max_tokens": 90},
    "grpo": {"steps": 3, "groups": 3, "samples": 3, "filter": "none", "learning_rate": 3e-3},
    "objective": {"entropy_weight": 0.1},
    "lora": {"rank": 4},
    "server": {"url": "http://127.0.0.1:9/v1"},
}


def recipe(url: str, steps: int = 3, **server: Any) -> Recipe:
    content = CONTENT | {"server": {"url": url, **server}}
    content["grpo"] = CONTENT["grpo"] | {"steps": steps}
    if server.get("reload"):
        del content["lora"]
    return parse_recipe(content, "test")


def trained(
    folder: Path, *habits: str, steps: int = 3, reload: bool = False
) -> tuple[list[StepReport], Policy, ModelServer]:
    reports: list[StepReport] = []
    with running(ModelServer(policy(), *habits)) as stub:
        server = {"reload": told_to_read(stub.url)} if reload else {}
        live = policy()
        grpo(live, WORLD, recipe(stub.url, steps, **server), 0, folder, reports.append)
    return reports, live, stub


def told_to_read(url: str) -> str:
    """The command of a recipe that has the stub read a folder."""
    code = (
        "import json, sys, urllib.request as u;"
        f"u.urlopen(u.Request('{url}/update_weights',"
        " json.dumps({'weight_dir': sys.argv[1]}).encode(), {'Content-Type': 'application/json'}))"
    )
    return f'{sys.executable} -c "{code}" {{folder}}'


@pytest.mark.parametrize("reload", [False, True])
def test_the_server_draws_with_the_weights_of_each_step(tmp_path: Path, reload: bool) -> None:
    """Adapters by file, or whole checkpoints by a command; the gap is rounding at every step."""
    reports, _, stub = trained(tmp_path, reload=reload)
    gaps = [report.losses["sampler_gap"] for report in reports]
    assert max(gaps) < 1e-4 and all(
        abs(report.losses["sampler_ratio"] - 1) < 1e-4 for report in reports
    )
    assert {"sampler_gap_from_0", "sampler_ratio_from_0"} <= set(reports[0].losses)
    paths = [path.rpartition("/")[2] for path, _ in stub.told]
    wanted = ["update_weights"] * 3 if reload else ["load_lora_adapter"] * 3
    assert [path for path in paths if not path.startswith("unload")] == wanted
    salts = {body.get("cache_salt") for body in stub.seen[-9:]}  # of the last step's episodes
    assert salts == ({"start-step-2"} if reload else {None})
    assert len(list((tmp_path / "server").iterdir())) == 1 and len(stub.adapters) <= 1
    assert all(report.errored == 0 for report in reports)


@pytest.mark.parametrize("habit", ["hot", "stale"])
def test_a_server_that_is_not_what_is_trained_is_found(
    tmp_path: Path, habit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Positions off by one change nothing in a random model; for a trained one it is measured
    in docs/training.md.
    """
    with caplog.at_level(logging.WARNING, "forensics"):
        reports, _, _ = trained(tmp_path, habit, steps=2)
    assert "differ by" in caplog.text and caplog.text.count("differ by") == 1
    assert reports[-1].losses["sampler_gap"] > 1e-4


def test_the_rule_over_the_gap() -> None:
    watch = GapWatch(largest=0.02)
    assert [watch.fault(gap) is None for gap in (2e-7, 9e-5, 2e-4, 0.03)] == [
        True,
        True,
        False,
        False,
    ]
    assert "no finite number" in (GapWatch(largest=0.02).fault(float("nan")) or "")
    rough = GapWatch(largest=0.02)
    assert rough.fault(0.004) is None and rough.fault(0.015) is None
    assert "largest_gap = 0.02" in str(rough.fault(0.021))


def test_the_gap_by_depth_is_that_of_tokens_behind_as_much_context() -> None:
    """Two rows of 300 tokens; the trainer finds those behind 64 to 255 tokens e times likelier."""
    sampler = torch.full((2, 300), -1.0)
    old = sampler.clone()
    old[:, 63:255] += 1.0
    weights = torch.ones(2, 300)
    weights[1, 10:290] = 0
    batch = Batch(
        token_ids=torch.zeros(2, 301, dtype=torch.long),
        weights=weights,
        sampler_logprobs=sampler,
        old_logprobs=old,
        advantages=weights,
        lengths=torch.tensor([301, 301]),
    )
    told = sampler_gap(batch)
    assert told["sampler_gap_from_0"] == 0 and told["sampler_gap_from_256"] == 0
    assert told["sampler_gap_from_64"] == pytest.approx(1)
    assert told["sampler_ratio_from_64"] == pytest.approx(np.e, rel=1e-6)
    assert told["sampler_gap"] == pytest.approx(192 / 320)
    assert "sampler_gap_from_1024" not in told


def test_a_run_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    """After two steps of three: at another address, and where its last adapter is still loaded."""
    _, whole, _ = trained(tmp_path / "whole")
    trained(tmp_path / "parts", steps=1)
    with running(ModelServer(policy())) as stub:
        for steps in (2, 3):
            parts = policy()
            grpo(parts, WORLD, recipe(stub.url, steps), 0, tmp_path / "parts")
    pairs = zip(whole.model.parameters(), parts.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grpo": {"recompute_old": False}}, "leave recompute_old = false out"),
        ({"lora": None}, "give the command as reload"),
        ({"sampling": {"top_p": 0.9}}, "unknown key 'top_p'"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], said: str) -> None:
    content = {name: part for name, part in CONTENT.items() if changes.get(name, 0) is not None}
    for name, part in changes.items():
        if part:
            content[name] = content[name] | part
    with pytest.raises(UserError, match=said):
        parse_recipe(content, "test")


def test_correction_is_on_with_both_bounds_unless_it_is_given() -> None:
    served = parse_recipe(CONTENT, "test")
    assert served.grpo.recompute_old and served.objective.importance == "mask"
    assert (served.objective.lowest_importance, served.objective.importance_cap) == (0.5, 2.0)
    mine = parse_recipe(CONTENT | {"objective": {"importance": "truncate"}}, "test")
    assert mine.objective.importance == "truncate"
    plain = parse_recipe({k: v for k, v in CONTENT.items() if k != "server"}, "test")
    assert plain.objective.importance == "none" and "server" not in plain.model_dump(mode="json")


def test_a_server_without_adapters_is_told_in_one_sentence(tmp_path: Path) -> None:
    with running(CompletionStub(policy(), "processed")) as stub:
        with pytest.raises(UserError, match=r"loads no adapter .*VLLM_ALLOW_RUNTIME_LORA"):
            grpo(policy(), WORLD, recipe(stub.url), 0, tmp_path)
    with running(CompletionStub(policy(), "processed")) as stub:
        with pytest.raises(UserError, match="ended with 1"):
            told = recipe(stub.url, reload=told_to_read(stub.url))
            grpo(policy(), WORLD, told, 0, tmp_path / "whole")


def test_audits_play_through_the_server_with_the_weights_of_their_step(tmp_path: Path) -> None:
    """What the audit's runs tell of their tokens is what the trained weights say of them."""
    settings = AuditSettings(every=2, tasks=2, samples=1, instruments=("behaviour",))
    live, world = policy(), MiniRepo(world="open")
    with running(ModelServer(policy())) as stub:
        content = CONTENT | {"server": {"url": stub.url}}
        content["grpo"] = CONTENT["grpo"] | {"steps": 2}
        told = parse_recipe(content, "test")
        grpo(live, world, told, 0, tmp_path / "run", callbacks=[ForensicsCallback(settings)])
        loaded = [body["lora_name"] for path, body in stub.told if "unload" not in path]
    assert [name.rpartition("-")[2] for name in loaded] == ["0", "0", "1", "2"]
    [row] = (tmp_path / "run" / "audits.jsonl").read_text().splitlines()
    assert json.loads(row)["step"] == 2
    runs = list((tmp_path / "run").glob("audits/step-000002/trajectories/*"))
    [log] = [path for path in runs if "after" in path.name and "without" not in path.name]
    for run in read_trajectories(log):
        ids = [i for step in run.steps for i in step.token_ids or ()]
        flags = np.array([s for step in run.steps for s in step.sampled or ()])[1:]
        told_by = [x for step in run.steps for x in step.logprobs or ()]
        own = live.logprobs([ids], SamplingSettings())[0][flags]
        np.testing.assert_allclose(told_by, own, atol=1e-4)


PROGRAM = """
import sys
from pathlib import Path
from tests.training import test_served_training as here
from training.recipe import parse_recipe
folder, strategy, url = sys.argv[1:]
parallel = {"processes": 2, "strategy": strategy}
content = here.CONTENT | {"server": {"url": url}, "parallel": parallel}
content["grpo"] = here.CONTENT["grpo"] | {"steps": 2}
settings = here.AuditSettings(every=1, tasks=2, samples=1, instruments=("behaviour",))
told = parse_recipe(content, "test")
world = here.MiniRepo(world="open")
here.grpo(
    here.policy(), world, told, 0, Path(folder), callbacks=[here.ForensicsCallback(settings)]
)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_several_processes_the_first_audits_through_the_server(
    tmp_path: Path,
) -> None:
    """Under DDP, with an adapter that both hold."""
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with running(ModelServer(policy())) as stub:
        given = [str(tmp_path / "run"), "ddp", stub.url]
        done = subprocess.run(
            [sys.executable, *launcher, str(tmp_path / "program.py"), *given],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        loads = [path for path, _ in stub.told if "unload" not in path]
    assert done.returncode == 0, done.stderr[-3000:]
    assert "failed" not in done.stderr and len(loads) == 5  # the start, two steps, two audits
    rows = (tmp_path / "run" / "audits.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2]
