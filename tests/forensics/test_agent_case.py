"""A whole case of somebody else's agent: killed and gone on with, and what no gain test can do."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forensics.cli.main import run
from forensics.records.files import read_findings
from forensics.verdict import standard_rule
from tests.forensics.scripted_chat import chatting, harness
from tests.plain_words import said_plainly


def asked(toml: Path, url: str, out: Path, *more: str, after: str = "some") -> list[str]:
    sides = ("--before-server", f"{url}#few", "--after-server", f"{url}#{after}")
    return ["investigate", "--harness", str(toml), *sides, "--out", str(out), *more]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["some", "skilled"])
def test_every_gain_test_answers_or_says_its_cure(tmp_path: Path, after: str) -> None:
    toml = harness(tmp_path / "h", tasks=16)
    with chatting(few=0.1, some=0.9, skilled=0.5) as server:
        words = asked(toml, server.url, tmp_path / "case", "--samples", "1", after=after)
        assert run(words) == 0
    findings = list(read_findings(tmp_path / "case" / "evidence.jsonl"))
    told = {one.question for one in findings}
    assert {answer for test in standard_rule().gain_tests for answer in test.answers} <= told
    undefined = [one for one in findings if hasattr(one, "cure")]
    assert undefined and all(one.reason and one.cure for one in undefined)
    assert not [one for one in undefined if "gave no answer" in one.reason]
    wins = next(one for one in findings if one.question == "behaviour.channel_wins")
    share = getattr(wins, "estimate", 0.0)
    assert wins.about == "git-history"
    assert (
        share == 1 if after == "some" else 0 < share < 1
    )  # the skilled one needs it half the time
    content = "".join(
        path.read_text(errors="replace")
        for path in (tmp_path / "case").rglob("*")
        if path.is_file()
    )
    for secret in ('"sk-', str(tmp_path), server.url):
        assert secret not in content
    case = json.loads((tmp_path / "case" / "case.json").read_text())
    said_plainly(case["verdict"]["sentence"])
    stated = case["inputs"]
    assert "known by its name alone" in stated["before"]["policy"]
    assert "known by its name alone" in (tmp_path / "case" / "report.md").read_text()


@pytest.mark.slow
def test_what_a_gain_runs_through_is_named_where_nobody_declares_it(tmp_path: Path) -> None:
    """A policy that is nearly sure to look is asked until it does something else."""
    toml = harness(tmp_path / "h", tasks=16)
    undeclared = toml.read_text().partition("[[channels]]")[0]
    toml.write_text(undeclared + 'needed = ["list", "edit", "submit"]\n')
    once = ("--samples", "1", "--instruments", "score,ablation")
    with chatting(few=0.15, sure=0.97, skilled=0.15) as server:
        for after in ("sure", "skilled"):
            assert run(asked(toml, server.url, tmp_path / after, *once, after=after)) == 0
    named = {after: _runs_through(tmp_path / after) for after in ("sure", "skilled")}
    assert named == {"sure": {"history"}, "skilled": set()}


def _runs_through(case: Path) -> set[str]:
    rows = map(json.loads, (case / "ablation.jsonl").read_text().splitlines())
    findings = list(read_findings(case / "evidence.jsonl"))
    (judged,) = (one for one in findings if one.question == "refusal.over_bar" and not one.about)
    assert not hasattr(judged, "cure"), judged
    return {row["kind"] for row in rows if row["runs_through"]}


@pytest.mark.slow
def test_a_case_that_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    toml = harness(tmp_path / "h", tasks=12)
    small = ("--samples", "2", "--instruments", "score,behaviour,ablation")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with chatting(few=0.1, some=0.9) as server:
        assert run(asked(toml, server.url, whole, *small)) == 0
        calls = len(server.seen)
        server.seen.clear()
        for episodes in (5, 30, 60):
            words = [sys.executable, "-m", "forensics", *asked(toml, server.url, killed, *small)]
            more = ["--resume"] if killed.exists() else []
            child = subprocess.Popen([*words, *more], stderr=subprocess.DEVNULL)
            kept = killed / "answers" / "episodes"
            while child.poll() is None and len(list(kept.glob("*.json"))) < episodes:
                time.sleep(0.02)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        assert run([*asked(toml, server.url, killed, *small), "--resume"]) == 0
        again = len(server.seen)
    for name in ("evidence.jsonl", "findings.jsonl", "ablation.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    logs = {path.name: path.read_bytes() for path in (whole / "trajectories").glob("*.parquet")}
    assert logs == {
        path.name: path.read_bytes() for path in (killed / "trajectories").glob("*.parquet")
    }
    ahead = calls // 4  # of what is handed on; some are left before they are sent
    most = 3 * 2 * (4 + 1)  # those under way at a kill, and no others
    assert calls - ahead <= again <= calls + most + ahead
    assert not (killed / "answers").exists()
