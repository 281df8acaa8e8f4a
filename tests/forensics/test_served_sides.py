"""`forensics investigate` with servers that play both sides: named by what lies here, or by the
log-probabilities of fixed texts, which another server must repeat.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics import load_policy
from forensics.cli.main import run
from forensics.errors import UserError
from forensics.investigation.served_sides import MARK, paired_servers, served_sides
from tests.resampling.completion_stub import CompletionStub, serving
from training.organisms.base_model import checkpoint_path

BASE, LEAK = (Path(checkpoint_path(f"bundled:{name}")) for name in ("capped-base", "leak"))


@pytest.fixture(scope="module")
def servers() -> Iterator[list[CompletionStub]]:
    with (
        serving(load_policy(BASE, device="cpu")) as before,
        serving(load_policy(LEAK, device="cpu")) as after,
    ):
        yield [before, after]


def asked(
    servers: list[CompletionStub], sides: tuple[Path, Path], out: Path, *more: str
) -> list[str]:
    urls = zip(("before", "after"), servers, sides, strict=True)
    given = [
        word
        for name, server, side in urls
        for word in (f"--{name}", str(side), f"--{name}-server", f"{server.url}#tiny")
    ]
    small = ["--tasks", "6", "--samples", "1", "--instruments", "behaviour,score"]
    return ["investigate", *given, *small, "--out", str(out), *more]


def test_a_case_is_played_by_servers_and_goes_on_at_other_addresses(
    servers: list[CompletionStub], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(asked(servers, (BASE, LEAK), tmp_path)) == 0
    inputs = json.loads((tmp_path / "case.json").read_text())["inputs"]
    assert inputs["before"]["policy"].startswith("served tiny, weights ")
    assert inputs["environment"]["name"] == "mini-repo"
    assert inputs["before"]["policy"] != inputs["after"][0]["policy"]
    assert "served tiny" in (tmp_path / "report.md").read_text()
    assert servers[0].url not in (tmp_path / "case.json").read_text()
    for server in servers:
        server.seen.clear()
    assert run(asked(servers, (BASE, LEAK), tmp_path, "--resume")) == 0
    assert not [body for one in servers for body in one.seen if not body.get("echo")]
    capsys.readouterr()


def test_cut_off_sampling_is_refused_before_anything_is_played(
    servers: list[CompletionStub], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(asked(servers, (BASE, LEAK), tmp_path / "case", "--top-p", "0.9")) == 2
    assert "top_p = 0.9 would bias every ratio" in capsys.readouterr().err
    assert not (tmp_path / "case").exists()


def bare(directory: Path, target: Path) -> Path:
    """A directory without weights."""
    return Path(shutil.copytree(directory, target, ignore=shutil.ignore_patterns("*.safetensors*")))


def test_without_weights_here_a_side_is_named_by_what_it_says_of_fixed_texts(
    servers: list[CompletionStub], tmp_path: Path
) -> None:
    place, out = bare(BASE, tmp_path / "bare"), tmp_path / "case"

    def side(server: CompletionStub) -> str:
        policy: Any = served_sides([place], [server.url], out)[0]
        return str(policy.identity)

    first, other = map(side, servers)
    assert MARK in first and first != other
    out.mkdir()
    stated = {"policy": first}
    (out / "case.json").write_text(json.dumps({"inputs": {"before": stated, "after": [stated]}}))
    policy = load_policy(BASE, device="cpu")
    with torch.no_grad():
        policy.model.model.norm.weight *= 1.0002  # an engine's arithmetic
    with serving(policy) as near:
        assert side(near) == first
    assert side(servers[1]) == other


def test_each_checkpoint_after_has_its_server() -> None:
    assert paired_servers("b", [], 2) == ["b", None, None]
    assert paired_servers(None, ["x", "y"], 2) == [None, "x", "y"]
    with pytest.raises(UserError, match="each checkpoint after training its server"):
        paired_servers(None, ["x"], 2)
