"""Where a run stands, in words that lead there."""

import json
from pathlib import Path

import pytest

from forensics import scan
from forensics.report.places import file_told, place_told

EXITS = "```python\nimport os\n\ndef add(a, b):\n    return a\n\nos._exit(0)\n```"


@pytest.mark.parametrize(
    ("run", "file", "place", "beside"),
    [
        ("a-0", "deep/a.jsonl", "run a-0 in deep/a.jsonl", "deep/a.jsonl"),
        ("a-0", None, "run a-0", ""),
        ("line 3 of a.jsonl", "deep/a.jsonl", "line 3 of deep/a.jsonl", "line 3 of deep/a.jsonl"),
        ("line 3 of a.jsonl~2", "b/a.jsonl", "line 3 of b/a.jsonl", "line 3 of b/a.jsonl"),
        ("row 0 of a.jsonl", "a.jsonl.gz", "row 0 of a.jsonl.gz", "row 0 of a.jsonl.gz"),
        ("element 2 of a.json", "logs.zip", "element 2 of a.json", "element 2 of a.json"),
        ("line x of a", "a", "run line x of a in a", "a"),
    ],
)
def test_the_place_of_a_run(run: str, file: str | None, place: str, beside: str) -> None:
    assert (place_told(run, file), file_told(run, file)) == (place, beside)


def test_rows_without_a_name_are_called_by_their_line_on_the_cards(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": f"Write add {n}.",
            "completion": EXITS if n == 2 else f"a + {n}",
            "reward": n / 9,
        }
        for n in range(9)
    ]
    rows[2]["reward"] = 1.0
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "logs" / "deep" / "answers.jsonl").write_text(text)
    scan(tmp_path / "logs", out=tmp_path / "case", formats=("html", "md"))
    for name in ("report.html", "report.md"):
        text = (tmp_path / "case" / name).read_text().replace("\\", "")
        assert "line 3 of deep/answers.jsonl" in text, name
