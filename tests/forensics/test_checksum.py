"""A stored file carries a checksum: one changed byte is refused by the file's name, and a file
of an earlier version, which carries none, is read and said to.
"""

import logging
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forensics import UserError, scan
from forensics.case import Rollouts
from forensics.cli.main import run
from forensics.errors import OutsideFailure
from forensics.investigation.folder import (
    CASE,
    CHECKED,
    EVIDENCE,
    FINDINGS,
    INTEGRITY,
    LOOPS,
    UNREADABLE,
)
from forensics.readers import read_logs
from forensics.records import Step, Trajectory, case_checksum
from forensics.records.checksum import KEY, MARK, _is_whole, _told, require_whole
from forensics.records.files import read_json, write_json
from forensics.records.tables import (
    SCHEMA,
    holds_values,
    read_rows,
    read_trajectories,
    write_table,
    write_trajectories,
)
from forensics.report.data import load_case
from tests.episodes import episode_of

NOISE = Path(__file__).parents[1] / "data" / "cases" / "noise"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    _is_whole.cache_clear()
    _told.clear()
    yield


def runs(number: int = 12, text: str = "what is asked") -> list[Trajectory]:
    return [
        episode_of(
            id=f"run-{i}",
            task=f"task-{i}",
            environment="w",
            sample=0,
            steps=(Step(role="user", text=f"{text} {i}"), Step(role="assistant", text="2 + 2")),
        )
        for i in range(number)
    ]


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def test_every_changed_byte_of_a_stored_run_is_refused_by_name(tmp_path: Path) -> None:
    """200 places: the first and the last ones, all of the checksum's own, and any."""
    path, luck = tmp_path / "before-open-0000.parquet", random.Random(0)
    write_trajectories(path, runs())
    assert require_whole(path) and list(read_trajectories(path)) == runs()
    data = path.read_bytes()
    own = data.rfind(KEY)
    places = [*range(4), *range(own - 2, own + 66), *range(len(data) - 8, len(data))]
    places += [luck.randrange(len(data)) for _ in range(200 - len(places))]
    for place in places:
        path.write_bytes(flipped(data, place, luck.randrange(8)))
        for read in (read_trajectories, read_rows, lambda path: read_logs(path)):
            _is_whole.cache_clear()
            with pytest.raises(OutsideFailure, match=path.name):
                list(read(path))


def test_every_other_table_carries_one_too(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    write_table(path, pa.schema([("x", pa.float32())]), [{"x": -0.5}, {"x": -1.5}], at_once=9)
    data = path.read_bytes()
    path.write_bytes(flipped(data, len(data) // 3, 0))
    with pytest.raises(OutsideFailure, match=r"scores\.parquet was changed"):
        list(read_rows(path))


def test_a_file_is_read_for_its_checksum_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forensics.records import checksum

    path, read = tmp_path / "a.parquet", []
    write_trajectories(path, runs())
    digits = checksum._digits
    monkeypatch.setattr(checksum, "_digits", lambda p, at: read.append(p) or digits(p, at))
    for _ in range(3):
        holds_values(path, "id")
        list(read_rows(path, ["id"]))
    assert read == [path]
    write_trajectories(path, runs(3))
    read.clear()
    list(read_rows(path, ["id"]))
    assert read == [path]


def test_other_tools_read_the_file_as_ever(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "a.parquet", runs())
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 12
    assert pq.read_schema(tmp_path / "a.parquet").names == SCHEMA.names


def test_a_run_that_speaks_of_checksums_carries_none_by_that(tmp_path: Path) -> None:
    """Of an earlier version, with the words in its text; and of this one."""
    path = tmp_path / "a.parquet"
    for words in (KEY, MARK, KEY + b"::" + MARK):
        told = runs(text=words.decode())
        write_trajectories(path, told)
        assert require_whole(path) and list(read_trajectories(path)) == told
    from forensics.records.tables import _table

    told = runs(text=MARK.decode())
    pq.write_table(_table(told), path, compression="none")
    assert not require_whole(path) and list(read_trajectories(path)) == told


def without_checksum(old: Path, new: Path) -> None:
    """The same runs as an earlier version wrote them."""
    table = pq.read_table(old)
    kept = {key: value for key, value in (table.schema.metadata or {}).items() if key != KEY}
    pq.write_table(table.replace_schema_metadata(kept), new, compression="zstd")


def test_runs_of_an_earlier_version_are_read_and_said_to_carry_no_checksum(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for old in sorted((NOISE / "trajectories").glob("before-open-*.parquet")):
        without_checksum(old, tmp_path / old.name)
    paths = tuple(sorted(tmp_path.glob("*.parquet")))
    with caplog.at_level(logging.WARNING, "forensics"):
        assert len(list(Rollouts(key="a", paths=paths).rows("id"))) > 0
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        f"The runs stored in {paths[0].parent} carry no checksum"
    ]


@pytest.mark.parametrize("carries", [True, False])
def test_scan_does_not_go_on_without_a_stored_run_that_is_broken(
    carries: bool, tmp_path: Path
) -> None:
    """A case folder of two parts: one byte of one of them is another one."""
    case = tmp_path / "case"
    (case / "trajectories").mkdir(parents=True)
    shutil.copy(NOISE / "case.json", case)
    for old in sorted((NOISE / "trajectories").glob("*-open-*0000.parquet")):
        new = case / "trajectories" / old.name
        without_checksum(old, new)
        if carries:
            write_trajectories(new, list(read_trajectories(old))[:60])
    data = new.read_bytes()
    place = data.find(b"\x28\xb5\x2f\xfd", len(data) // 2) + 24  # within a compressed page
    new.write_bytes(flipped(data, place, 3))
    with pytest.raises(UserError, match=new.name):
        scan(case, out=tmp_path / "out")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scanned")
    for side in ("before", "after"):
        write_trajectories(folder / f"{side}.parquet", runs(text=f"{side} asks"))
    scan(folder / "after.parquet", folder / "before.parquet", out=folder / "case")
    return folder / "case"


@pytest.mark.parametrize("name", [CASE, *CHECKED])
def test_every_changed_byte_of_a_finished_case_is_refused_by_name(name: str, case: Path) -> None:
    """200 places; of `case.json` a change of how it is laid out, not of what it says, is none."""
    path, luck = case / name, random.Random(0)
    if not path.is_file() or not (data := path.read_bytes()):
        assert name in (LOOPS, INTEGRITY, FINDINGS, UNREADABLE)
        return
    said = read_json(case / CASE)
    places = {*range(40), *range(len(data) - 40, len(data))}
    places |= {luck.randrange(len(data)) for _ in range(120)}
    believed = 0
    try:
        for place in sorted(place for place in places if 0 <= place < len(data)):
            path.write_bytes(flipped(data, place, luck.randrange(8)))
            case_checksum._hash_at.cache_clear()
            try:
                assert load_case(case) and name == CASE and read_json(path) == said
                believed += 1
            except UserError as error:
                assert name in str(error), str(error)
    finally:
        path.write_bytes(data)
    assert believed <= len(places) // 10


@pytest.mark.parametrize("name", [CASE, EVIDENCE])
def test_a_changed_case_is_refused_by_every_command(
    name: str, case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A digit of an estimate is another one: one sentence, with the file and the cure."""
    folder = tmp_path / "case"
    shutil.copytree(case, folder)
    path = folder / name
    text = path.read_text()
    found = re.search(r'"estimate": ?0\.(\d)', text)
    assert found is not None
    digit = str((int(found[1]) + 1) % 10)
    path.write_text(text[: found.start(1)] + digit + text[found.end(1) :])
    logs = [str(case.parent / f"{side}.parquet") for side in ("after", "before")]
    again = ["scan", logs[0], "--before", logs[1], "--out", str(folder), "--resume"]
    commands = [["gate", str(folder)], ["report", str(folder), "--format", "json"]]
    for command in [*commands, *([again] if name == CASE else [])]:
        assert run(command) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and f"{path} was changed since it was written" in told
    if name == EVIDENCE:  # what it says is the cure
        path.unlink()
        assert run(again) == 0 and path.read_text() == text


def test_a_case_of_an_earlier_version_carries_no_checksum_and_is_read(
    case: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(case, folder)
    content = {
        name: value
        for name, value in read_json(folder / CASE).items()
        if name not in ("files", "checksum")
    }
    write_json(folder / CASE, content)
    assert load_case(folder).verdict == load_case(case).verdict
    assert run(["gate", str(folder)]) == 1


def test_a_case_that_is_judged_on_other_terms_keeps_its_checksums(
    case: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(case, folder)
    assert run(["report", str(folder), "--format", "json", "--accept", "refusal"]) == 0
    assert read_json(folder / CASE)["files"] == read_json(case / CASE)["files"]
    assert load_case(folder).verdict.accepted == ("refusal",)


def test_a_shard_of_a_training_record_is_held_against_its_marker(tmp_path: Path) -> None:
    from forensics.records.train_tables import TrainingRecord, shard_path
    from tests.forensics.test_signal_case import recorded

    folder = recorded(tmp_path, "f" * 16)
    record = TrainingRecord(folder)
    step = record.steps()[0]
    path = shard_path(folder, step)
    data = path.read_bytes()
    assert list(record.values(step))
    for place in random.Random(1).sample(range(len(data)), 40):
        path.write_bytes(flipped(data, place, 2))
        with pytest.raises(UserError, match=path.name):
            list(TrainingRecord(folder).values(step, "reward"))
