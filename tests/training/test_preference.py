"""Preference pairs in a file."""

import json
from pathlib import Path

import pytest

from forensics.errors import UserError
from forensics.records import PreferencePair, Provenance
from forensics.records.files import write_json_lines
from forensics.records.train_rows import read_pairs


def pair(**changes: object) -> PreferencePair:
    values = {
        "id": "a",
        "prefix": (5, 6, 7),
        "chosen": (8, 9),
        "rejected": (10, 9, 11),
        "policy": "start",
        "provenance": Provenance(instrument="test"),
    }
    return PreferencePair(**values | changes)


def test_pairs_survive_a_file_and_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    pairs = [pair(), pair(id="b", chosen_weights=(0.5, 1.0), task="t")]
    write_json_lines(path, pairs)
    assert read_pairs(path) == pairs
    bad = json.loads(path.read_text().splitlines()[0]) | {"chosen": []}
    path.write_text(path.read_text() + json.dumps(bad) + "\n")
    with pytest.raises(UserError, match=r"line 3 of .*chosen. has no tokens"):
        read_pairs(path)
    path.write_text("{")
    with pytest.raises(UserError, match=r"line 1 .*Invalid JSON"):
        read_pairs(path)
    with pytest.raises(UserError, match="does not exist"):
        read_pairs(tmp_path / "none.jsonl")
