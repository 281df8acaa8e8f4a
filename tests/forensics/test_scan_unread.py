"""What a scan could not read is named where it is seen: the files, their rows and fields, why, and
which shapes were tried; and so is which reader read the rest.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

from forensics import scan
from forensics.cli.main import run as command
from forensics.readers import read_logs
from forensics.records import Trajectory
from forensics.report.data import load_case

RUN = {"prompt": "Write add(a, b).", "completion": "a + b", "reward": 1.0}


def lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_null_answer_is_a_run_without_one_and_stops_no_other(tmp_path: Path) -> None:
    """Wherever it stands in the file: the first row tells the format."""
    empty = {**RUN, "completion": None}
    lines(tmp_path / "a.jsonl", [empty, RUN, {**RUN, "completion": ""}])
    found = [run for run in read_logs(tmp_path / "a.jsonl") if isinstance(run, Trajectory)]
    assert [len(run.actions) for run in found] == [0, 1, 1]
    scan(lines(tmp_path / "b.jsonl", [empty] * 3), out=tmp_path / "case", formats=())
    opening = load_case(tmp_path / "case").opening
    assert opening is not None
    assert opening.headline == "None of 3 runs could be checked (no actions recorded)."


def test_texts_that_are_no_logs_say_what_to_give_instead(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("step 1\n\nstep 2\n")
    (tmp_path / "logs" / "b.bin").write_bytes(b"a\0\nb\n")
    out = str(tmp_path / "case")
    assert command(["scan", str(tmp_path / "logs"), "--out", out, "--json"]) == 2
    said = json.loads(capsys.readouterr().out)["error"]
    assert "1 .log (train.log: text of 2 lines)" in said and "1 .bin (b.bin)" in said
    assert "give the log that the agent or its harness wrote" in said
    (tmp_path / "logs" / "train.log").unlink()
    assert command(["scan", str(tmp_path / "logs"), "--out", out, "--json"]) == 2
    assert "prompt" not in json.loads(capsys.readouterr().out)["error"]


def test_who_read_the_logs_is_told_wherever_they_are(tmp_path: Path, capsys: Any) -> None:
    """By files, those in an archive too; a file that gave no run was read by nobody."""
    logs = tmp_path / "logs"
    verl = {"input": "q", "output": "4", "gts": "4", "score": 1.0, "step": 1}
    lines(logs / "1.jsonl", [verl, verl])
    lines(logs / "2.jsonl", [verl])
    lines(logs / "3.jsonl", [{**verl, "input": None}, {"score": 1}])
    packed = lines(tmp_path / "a.jsonl", [RUN])
    with zipfile.ZipFile(logs / "more.zip", "w") as archive:
        archive.write(packed, "a.jsonl")
    out = tmp_path / "case"
    assert command(["scan", str(logs), "--out", str(out)]) == 0
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "Read as" in line)
    assert told == "Read as verl (2 files) and chat (1 file)."
    stated = json.loads((out / "case.json").read_text())["provenance"]["logs"]["after-0"]
    assert stated["read_by"] == {"chat": 1, "verl": 2}
    assert all(told in (out / name).read_text() for name in ("report.html", "report.md"))
    again = ["scan", str(logs), "--out", str(out), "--force", "--json", "--reader", "verl"]
    assert command(again) == 0
    said = json.loads(capsys.readouterr().out)["lines"]
    assert "Read as verl (2 files)." in said
