"""What a scan could not read is named where it is seen: the files, their rows and fields, why, and
which shapes were tried.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forensics import scan
from forensics.cli.main import run as command
from forensics.readers import Limits, read_logs
from forensics.readers.unknown_files import seen_in
from forensics.records import Trajectory
from forensics.report.data import load_case

RUN = {"prompt": "Write add(a, b).", "completion": "a + b", "reward": 1.0}
LOSSES = [{"step": n, "loss": 0.5, "lr": None} for n in range(50)]
OTHERS = [{"q": "x", "gen": "y"} for _ in range(7)]


def lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def junk(folder: Path) -> Path:
    lines(folder / "metrics.jsonl", LOSSES)
    lines(folder / "other.jsonl", OTHERS)
    (folder / "notes.txt").write_text("notes")
    return folder


NAMED = (
    "metrics.jsonl (no reader knows its format: 50 rows with the fields step, loss, lr (null));"
    " other.jsonl (no reader knows its format: 7 rows with the fields q, gen); 1 file: 1 .txt"
    " (notes.txt) (no reader knows its format)"
)
TRIED = "needs a conversation (`messages`, `conversation`, `conversations`) or a question"


def test_files_that_no_reader_knows_stand_on_the_first_screen(tmp_path: Path) -> None:
    lines(junk(tmp_path / "logs") / "a.jsonl", [RUN])
    scan(tmp_path / "logs", out=tmp_path / "case", formats=("html", "md", "text"))
    opening = load_case(tmp_path / "case").opening
    assert opening is not None
    told = f"3 files or rows were not read (all are named in unreadable.jsonl): {NAMED}."
    assert told in opening.lines and any(TRIED in line for line in opening.lines)
    for name in ("report.html", "report.md", "report.txt"):
        text = (tmp_path / "case" / name).read_text().replace("\\", "")
        assert told in " ".join(text.split()), name


def test_a_folder_of_nothing_else_names_all_of_it(tmp_path: Path, capsys: Any) -> None:
    folder, out = str(junk(tmp_path / "logs")), str(tmp_path / "case")
    assert command(["scan", folder, "--out", out, "--json"]) == 2
    said = json.loads(capsys.readouterr().out)["error"]
    assert f"holds no run that can be read: {NAMED}. Tried were the formats of" in said
    assert TRIED in said and not (tmp_path / "case" / "case.json").exists()


def test_tables_and_notes_alone_tell_no_shape(tmp_path: Path) -> None:
    lines(tmp_path / "logs" / "a.jsonl", [RUN])
    (tmp_path / "logs" / "b.csv").write_text("a,b\n")
    scan(tmp_path / "logs", out=tmp_path / "case", formats=())
    opening = load_case(tmp_path / "case").opening
    assert opening is not None and not any("Tried were" in line for line in opening.lines)
    assert any("1 .csv (b.csv)" in line for line in opening.lines)


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


def test_equal_reasons_of_one_file_are_told_once(tmp_path: Path, capsys: Any) -> None:
    path = lines(tmp_path / "a.jsonl", [{"messages": [{"role": "user"}, 3], "reward": 1}] * 9)
    assert command(["scan", str(path), "--out", str(tmp_path / "case")]) == 2
    said = capsys.readouterr().err
    assert "a.jsonl, line 1 and 8 more like it (the row is not as expected" in said


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b'[{"a": 1}, {"a": 2}]', "2 rows with the field a"),
        (b'{\n "a": 1,\n "b": {"c": 2}\n}', "one object with the fields a, b"),
        (b'{"a": 1}', "one object with the field a"),
        (json.dumps({str(n): n for n in range(11)}).encode(), "one object with the fields 0, 1, 2"),
        (b"[]", "0 rows without fields"),
        (b"[1, 2]", "2 rows without fields"),
        (b'{"\\u202eb\\u0000": 1}\n{"x": 2}', "2 rows with the field b"),
        (b"[" * 5000, ""),
        (b'{"a": ', "one object"),
        (b"prose", ""),
        (b"PAR1 broken", ""),
    ],
)
def test_what_is_seen_in_a_file(tmp_path: Path, content: bytes, seen: str) -> None:
    (tmp_path / "a").write_bytes(content)
    assert seen_in(tmp_path / "a", content, Limits()).startswith(seen)


def test_what_is_seen_in_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), tmp_path / "a.parquet")
    head = (tmp_path / "a.parquet").read_bytes()
    assert seen_in(tmp_path / "a.parquet", head, Limits()) == "2 rows with the fields x, y"


def test_texts_that_are_no_logs_say_which_texts_are_read(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("step 1\n\nstep 2\n")
    (tmp_path / "logs" / "b.bin").write_bytes(b"a\0\nb\n")
    out = str(tmp_path / "case")
    assert command(["scan", str(tmp_path / "logs"), "--out", out, "--json"]) == 2
    said = json.loads(capsys.readouterr().out)["error"]
    assert "1 .log (train.log: text of 2 lines)" in said and "1 .bin (b.bin)" in said
    assert "begin with a prompt such as `user@host:dir$`" in said
    (tmp_path / "logs" / "train.log").unlink()
    assert command(["scan", str(tmp_path / "logs"), "--out", out, "--json"]) == 2
    assert "prompt" not in json.loads(capsys.readouterr().out)["error"]
