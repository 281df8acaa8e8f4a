"""Cases of an earlier rule: read, judged again on their evidence, or refused in
a sentence; terms given afterwards.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics import UserError
from forensics.cli.main import run
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.files import write_json, write_json_lines
from forensics.report import render
from forensics.report.data import read_verdict
from forensics.verdict import decide
from tests.forensics.score_world import answers, behaviour, elsewhere, planted, tested

OLD: dict[str, Any] = {  # as version 1 of the rule wrote it
    "schema_version": 1,
    "label": "genuine",
    "basis": "re-run",
    "gain": None,
    "genuine_gain": None,
    "phantom_gain": None,
    "score_before": None,
    "score_after": None,
    "share_of_wins_via_channel": {},
    "sentence": "Verdict: GENUINE. none of it is phantom.",
    "reasons": ["Rule version 1."],
    "gaps": [],
    "decided_by": "genuine",
    "rule": "7c914323f9b90000",
    "evidence": [],
}


def case_of(
    folder: Path, findings: list[Evidence | Undefined] | None, verdict: dict[str, Any]
) -> Path:
    folder.mkdir(exist_ok=True)
    content = {
        "schema_version": 1,
        "status": "complete",
        "verdict": verdict,
        "inputs": {},
        "provenance": {},
    }
    write_json(folder / "case.json", content)
    if findings is not None:
        write_json_lines(folder / "evidence.jsonl", findings)
    return folder


def honest() -> list[Evidence | Undefined]:
    return [*answers(planted((0.4, 0.9, 0.39, 0.89))).values(), *behaviour()]


def test_a_genuine_of_the_earlier_rule_does_not_pass_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = case_of(tmp_path / "case", honest(), OLD)
    before = (folder / "case.json").read_bytes()
    assert run(["gate", str(folder)]) == 1
    told = capsys.readouterr().out
    assert "undetermined (family-not-tested) does not pass" in told and "--accept refusal" in told
    assert (folder / "case.json").read_bytes() == before, "a gate writes nothing"


def test_report_judges_again_says_so_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = case_of(tmp_path / "case", honest(), OLD)
    assert run(["report", str(folder), "--format", "text,json,html"]) == 0
    told = capsys.readouterr().out
    assert (
        told.startswith("Judged again: undetermined.")
        and "another rule (7c914323f9b90000) said genuine" in told
    )
    kept = Verdict.model_validate(json.loads((folder / "case.json").read_text())["verdict"])
    assert (
        kept.label
        == "undetermined"
        == json.loads((folder / "report.json").read_text())["verdict"]["label"]
    )
    assert "none of it is phantom" not in (folder / "report.html").read_text()
    again = (folder / "case.json").read_bytes()
    assert run(["report", str(folder)]) == 0 and (folder / "case.json").read_bytes() == again


@pytest.mark.parametrize("text", [None, "{broken"])
def test_without_its_evidence_an_earlier_case_is_refused(tmp_path: Path, text: str | None) -> None:
    folder = case_of(tmp_path / "case", None, OLD)
    if text is not None:
        (folder / "evidence.jsonl").write_text(text)
    with pytest.raises(UserError, match=r"evidence\.jsonl"):
        read_verdict(folder)


def test_terms_given_afterwards_are_written_repeated_and_can_be_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        *honest(),
        *elsewhere(),
        *(one for one in tested() if one.question != "regrading.over_bar"),
    ]
    folder = case_of(tmp_path / "case", found, decide(found).model_dump(mode="json"))
    assert run(["gate", str(folder)]) == 1
    assert run(["report", str(folder), "--accept", "regrading"]) == 0
    capsys.readouterr()
    assert run(["gate", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["given"] == {"allow": [], "accept": ["regrading"]}
        and "given that regrading" in told["sentence"]
    )
    assert "accepted untested" in render(folder, ["text"])["text"]
    assert run(["report", str(folder), "--format", "html,md"]) == 0
    pages = [folder / "report.html", folder / "report.md"]
    old = [page.read_text() for page in pages]
    assert 'class="label-genuine"' in old[0]
    assert run(["report", str(folder), "--accept", "refusal"]) == 0, (
        "other terms take the place of those it had"
    )
    assert 'class="label-undetermined"' in pages[0].read_text(), "no page of the old label"
    assert pages[1].read_text() != old[1]
    assert not (folder / "report.json").exists()
    assert run(["gate", str(folder)]) == 1
    assert run(["report", str(folder), "--accept", "nothing"]) == 2
    assert "is no gain test" in capsys.readouterr().err
