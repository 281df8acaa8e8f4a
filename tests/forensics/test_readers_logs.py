"""Each log of `tests/data/logs` says what stands beside it."""

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, installed_readers, read_logs
from forensics.readers.content import HEAD
from tests.forensics.reader_files import damaged, survives
from tests.forensics.reader_fuzz import mutated

LOGS = Path(__file__).parents[1] / "data" / "logs"
CASES = {
    f"{file.stem}: {case['name']}": case
    for file in sorted(LOGS.glob("*.toml"))
    for case in tomllib.loads(file.read_text())["case"]
}


def told(one: Any, folder: Path) -> Any:
    if isinstance(one, Unreadable):
        place = str(one.path.relative_to(folder))
        return {"unreadable": place, "where": one.where, "reason": one.reason}
    return json.loads(one.model_dump_json(exclude_defaults=True, exclude_none=True))


@pytest.mark.parametrize("name", CASES)
def test_a_log_says_what_stands_beside_it(name: str, tmp_path: Path) -> None:
    case, folder = CASES[name], tmp_path / "log"
    for file, text in case["files"].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(text.encode())
    found = [told(one, folder) for one in read_logs(folder / case.get("path", "."))]
    assert found == [json.loads(line) for line in case["runs"].split("\n") if line]


@pytest.mark.parametrize("format", sorted(file.stem for file in LOGS.glob("*.toml")))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_left_of_a_log_is_a_run_or_a_sentence(
    format: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    case = CASES[data.draw(st.sampled_from([one for one in CASES if one.startswith(f"{format}:")]))]
    name, text = next(iter(case["files"].items()))
    path = tmp_path_factory.mktemp("log") / Path(name).name
    path.write_bytes(text.encode())
    readers = (one for one in installed_readers() if one.recognises(path, text.encode()))
    reader = next(readers, None)
    if reader is not None:
        survives(reader, path, data.draw(damaged(text.encode())))
        survives(reader, path, _of_another_kind(data, text))


def _of_another_kind(data: st.DataObject, text: str) -> bytes:
    """The log with one part of a value of another kind."""
    try:
        rows = [json.loads(line) for line in text.split("\n") if line]
    except ValueError:
        return text.encode()
    return "\n".join(map(json.dumps, data.draw(mutated(rows)))).encode()


@pytest.mark.parametrize("name", ["x.traj", "x.json.gz"])
def test_a_first_turn_that_ends_behind_the_head_is_recognised(tmp_path: Path, name: str) -> None:
    case = next(one for key, one in CASES.items() if key == "sweagent: after 1 1 with tool calls")
    log = json.loads(next(iter(case["files"].values())))
    turn = {**log["trajectory"][0], "observation": "o" * (3 * HEAD)}
    content = json.dumps({**log, "trajectory": [turn]}, sort_keys=True).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    (found,) = read_logs(tmp_path / name)
    assert getattr(found, "environment", None) == "swe-agent"
