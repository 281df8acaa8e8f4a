"""The page on logs says what is true: the readers it lists are there, its own reader works."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from forensics.readers import Unreadable, installed_readers, log_reader, read_logs
from forensics.records import Step
from tests.episodes import episode_of

PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()


def test_every_reader_is_listed() -> None:
    table, _, _ = PAGE.partition("A `chat` row names")
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(.+?)`", "".join(rows))) == sorted(
        reader.name for reader in installed_readers()
    )


def test_the_reader_of_the_page_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), names)
    readers = (names["reader"], *installed_readers())
    monkeypatch.setattr(log_reader, "installed_readers", lambda: readers)
    row = {
        "notebook_run": "r",
        "exercise": "e",
        "model": "m",
        "talk": [{"role": "user", "content": "Hi"}],
    }
    (tmp_path / "log.jsonl").write_text(
        f"{json.dumps(row)}\n{json.dumps({**row, 'talk': 3})}\n{json.dumps({'a': 1})}"
    )
    run, *broken = read_logs(tmp_path)
    assert run == episode_of(
        task="e",
        policy="m",
        environment="notebook",
        steps=(Step(role="user", text="Hi"),),
        outcome=None,
    )
    assert [item.where for item in broken if isinstance(item, Unreadable)] == ["line 2", "line 3"]
