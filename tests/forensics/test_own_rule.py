"""A rule of one's own: stated in the case, on the report and by the gate; never
taken for the standard one.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics import UserError, scan
from forensics.cli.main import run
from forensics.records import Evidence, Undefined
from forensics.records.case_file import CaseFile
from forensics.records.files import read_json, write_json, write_json_lines
from forensics.records.tables import write_trajectories
from forensics.report import render
from forensics.report.words import replay_command
from forensics.verdict import (
    Rule,
    decide,
    is_current,
    own_rule,
    read_rule,
    rule_of_case,
    standard_rule,
    stated_rule,
)
from forensics.verdict.rule import for_logs
from tests.forensics.score_world import answers, behaviour, elsewhere, planted, tested
from tests.forensics.scripted import Desk
from tests.forensics.test_scan import episode

LAX = own_rule("lax-1", widest=0.2)


@pytest.fixture(scope="module")
def loose() -> list[Evidence | Undefined]:
    """A gain known too loosely for the standard rule: about a fifth of it is phantom."""
    world = planted((0.4, 0.9, 0.4, 0.76), tasks=150)
    return [*answers(world).values(), *behaviour(), *tested(), *elsewhere()]


def case_of(folder: Path, findings: list[Evidence | Undefined], rule: Rule) -> Path:
    folder.mkdir()
    verdict = decide(findings, rule).model_dump(mode="json")
    content = {"schema_version": 1, "status": "complete", "inputs": {}, "provenance": {}}
    write_json(folder / "case.json", {**content, "verdict": verdict} | stated_rule(rule))
    write_json_lines(folder / "evidence.jsonl", findings)
    return folder


def test_other_thresholds_give_another_label_under_another_name(loose: list[Evidence]) -> None:
    standard, own = decide(loose), decide(loose, LAX)
    assert (standard.label, own.label) == ("undetermined", "mixed")
    assert own.sentence.startswith("Verdict: MIXED by the rule 'lax-1', not the standard one.")
    assert own.reasons[0].startswith("Rule 'lax-1' (not the standard one), clause mixed: ")
    assert standard.rule != own.rule and not is_current(own) and is_current(own, LAX)


def test_thresholds_stand_in_conditions_texts_and_boundaries() -> None:
    rule = own_rule("strict-1", level=0.99, margin=0.03, widest=0.04)
    for one in (rule, for_logs(rule)):
        said = " ".join(clause.text for clause in one.clauses)
        assert "3 points" in said and "4 points" in said
        assert "2 points" not in said and "5 points" not in said
        bars = {c.value for clause in one.clauses for choice in clause.when for c in choice}
        assert bars == {0.0, 0.03, 0.04, 0.5}
        assert {value for _, value in one.boundaries} == {0.0, 0.03}
    assert replace(own_rule("same"), version=3) == standard_rule()


def test_a_changed_rule_is_never_called_the_standard_one(loose: list[Evidence]) -> None:
    """By its content, whatever number it bears."""
    changed = replace(LAX, version=3)
    assert "not the standard one" in decide(loose, changed).sentence
    assert not is_current(decide(loose, changed))
    with pytest.raises(UserError, match="a name of its own, not 3"):
        read_rule(changed)


def test_the_gate_judges_by_the_standard_rule_unless_the_own_one_is_named(
    loose: list[Evidence], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = case_of(tmp_path / "case", loose, LAX)
    assert run(["gate", str(folder)]) == 1
    assert "undetermined (too-wide) does not pass" in capsys.readouterr().out
    assert run(["gate", str(folder), "--rule", "lax-1", "--allow", "mixed", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rule"] == "lax-1" and "not the standard one" in told["sentence"]
    assert run(["gate", str(folder), "--rule", "lax-2"]) == 2
    assert "was not decided by a rule 'lax-2'" in capsys.readouterr().err


def test_the_report_keeps_the_rule_and_says_so(loose: list[Evidence], tmp_path: Path) -> None:
    folder = case_of(tmp_path / "case", loose, LAX)
    before = (folder / "case.json").read_bytes()
    for text in render(folder, ["text", "md", "html"]).values():
        assert "by the rule" in text and "lax-1" in text and "not the standard one" in text
    assert run(["report", str(folder)]) == 0
    assert (folder / "case.json").read_bytes() == before


@pytest.mark.parametrize("version", [2, "2", "", "<script>"])
def test_a_case_whose_rule_takes_the_standard_name_is_refused(
    loose: list[Evidence], tmp_path: Path, version: Any
) -> None:
    folder = case_of(tmp_path / "case", loose, LAX)
    content = read_json(folder / "case.json")
    content["rule"]["version"] = version
    write_json(folder / "case.json", content)
    with pytest.raises(UserError, match="a name of its own"):
        render(folder, ["text"])


def test_investigate_states_the_rule_in_the_case(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "rule.toml"
    file.write_text('version = "strict-1"\nmargin = 0.1\n')
    verdict = desk.investigate(rule=file)
    assert "by the rule 'strict-1'" in verdict.sentence
    assert f"--rule {file}" in (replay_command(desk.case()["inputs"], verdict) or "")
    rule = rule_of_case(desk.case())
    assert rule == own_rule("strict-1", margin=0.1) and is_current(verdict, rule)
    verdict = desk.investigate(rule={"version": "strict-1"}, resume=True)
    assert "--rule FILE" in (replay_command(desk.case()["inputs"], verdict) or "")
    verdict = desk.investigate(resume=True)
    assert "rule" not in desk.case()
    assert "--rule" not in (replay_command(desk.case()["inputs"], verdict) or "")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"widest": 0.1}, "needs a `version`"),
        ({"version": "3", "widest": 0.1}, "a name of its own"),
        ({"version": "x", "width": 0.1}, "a rule has no 'width'; known: version, level"),
        ({"version": "x", "level": 95}, "the rule's level is 95; give a number between 0 and 1"),
        ({"version": "x", "margin": True}, "the rule's margin is True"),
        ("nowhere.toml", "nowhere.toml does not exist"),
    ],
)
def test_what_is_no_rule_is_refused(given: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_rule(given)


def test_a_scan_names_the_rule_in_the_command_that_makes_it_again(tmp_path: Path) -> None:
    file = tmp_path / "rule.toml"
    file.write_text('version = "strict-1"\n')
    write_trajectories(tmp_path / "log.parquet", [episode("a", f"t{n}", 0, won=True) for n in "12"])
    verdict = scan(tmp_path / "log.parquet", out=tmp_path / "case", rule=file)
    content = read_json(tmp_path / "case" / "case.json")
    CaseFile.model_validate(content)
    assert f"--rule {file}" in (replay_command(content["inputs"], verdict) or "")
