"""Opening, parsing and finding: every content comes back whole, in an order,
within limits, or is told.
"""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from forensics.cli.main import run as command
from forensics.errors import UserError
from forensics.readers import log_reader
from forensics.readers.archives import safe_name, unpacked
from forensics.readers.content import (
    Line,
    Unreadable,
    UnreadableContent,
    bare_name,
    open_content,
    read_lines,
)
from forensics.readers.json_rows import (
    Row,
    first_value,
    parse,
    read_elements,
    read_entries,
    read_rows,
)
from forensics.readers.log_reader import Reader, files_of, read_logs
from forensics.records import Trajectory
from tests.forensics.reader_files import Words, damaged, limited, run, write_zstd_zip

PACK = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
    "": bytes,
}
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = (Words(), Words(name="letters", mark="letter"))
    monkeypatch.setattr(log_reader, "installed_readers", lambda: readers)


def told(path: Path, **limits: int) -> list[str]:
    with limited(**limits):
        found = list(read_logs(path))
    return [item.id if isinstance(item, Trajectory) else item.reason for item in found]


# Opening


@pytest.mark.parametrize("suffix", PACK)
def test_content_is_the_same_however_it_is_compressed_and_named(
    tmp_path: Path, suffix: str
) -> None:
    content = b"one\n" + bytes(range(32, 127)) * 5_000 + b"\nlast"
    for name in (f"log{suffix}", "other.txt"):
        (tmp_path / name).write_bytes(
            PACK[suffix](content[:70_000]) + PACK[suffix](content[70_000:])
        )
        with open_content(tmp_path / name) as stream:
            assert stream.read() == content
    assert bare_name(Path(f"a.jsonl{suffix}")) == "a.jsonl"


@pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])
def test_a_compressed_file_that_breaks_off_is_told_and_its_whole_lines_are_read(
    tmp_path: Path, suffix: str
) -> None:
    lines = [json.dumps([number, "x" * (number % 97)]).encode() for number in range(8_000)]
    packed = PACK[suffix](b"\n".join(lines))
    path = tmp_path / "log"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    *read, last = read_lines(path)
    assert isinstance(last, Unreadable) and "breaks off" in last.reason
    assert [line.content for line in read if isinstance(line, Line)] == lines[: len(read)]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_a_bomb_is_refused_with_a_sentence(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(PACK[suffix](bytes(15_000_000)))
    with (
        pytest.raises(UnreadableContent, match="out of proportion"),
        limited(free=1 << 20, ratio=100),
        open_content(path) as stream,
    ):
        while stream.read(1 << 16):
            pass


def test_a_line_of_a_hundred_megabytes_is_left_out_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"first\n")
        for _ in range(100):
            file.write(b"a" * (1 << 20))
        file.write(b"\nlast\n")
    tracemalloc.start()
    try:
        with limited(line=1 << 20):
            first, long, last = read_lines(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert isinstance(long, Unreadable) and long.where == "line 2"
    assert (first, last) == (Line(number=1, content=b"first"), Line(number=3, content=b"last"))


# Parsing


@settings(max_examples=60, deadline=None)
@given(st.lists(values, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_a_list_is_streamed_as_it_is_parsed(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], indent: int | None, plain: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "list.json"
    path.write_bytes(json.dumps(rows, indent=indent, ensure_ascii=plain).encode("utf-8", "replace"))
    expected = json.loads(path.read_bytes())
    assert [row.value for row in read_elements(path) if isinstance(row, Row)] == expected


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(), values, max_size=4),
    st.lists(values, max_size=4),
    st.sampled_from([None, 1]),
)
def test_an_object_is_streamed_as_it_is_parsed(
    tmp_path_factory: pytest.TempPathFactory,
    entries: dict[str, Any],
    rows: list[Any],
    indent: int | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "object.json"
    path.write_text(json.dumps({**entries, "rows": rows}, indent=indent))
    found = [item for item in read_entries(path, "rows") if not isinstance(item, Unreadable)]
    assert [row.value for key, row in found if key == "rows"] == rows
    expected = {key: value for key, value in json.loads(path.read_text()).items() if key != "rows"}
    assert {key: row.value for key, row in found if key != "rows"} == expected


@pytest.mark.parametrize(
    "content", ['{"a": 1, "b"', '{"a": 1, "b": [2', '{"a": 1,', '{"a": 1 "b" 2}', '{"a": 1, 3']
)
def test_an_object_that_breaks_off_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_text(content)
    first, *rest = read_entries(tmp_path / "a", "b")
    assert first == ("a", Row(where="a", value=1)) and isinstance(rest[-1], Unreadable)


@pytest.mark.parametrize(
    "content", [b"[1, 2", b"[1, 2}", b"[1, 2] []", b'[1, 2, "a', b"[1, 2" + b", [" * 5000]
)
def test_what_is_wrong_in_a_list_is_told_behind_what_is_right(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.json").write_bytes(content)
    *good, bad = read_elements(tmp_path / "a.json")
    assert [row.value for row in good if isinstance(row, Row)] == [1, 2]
    assert isinstance(bad, Unreadable)


ROWS = [{"a": 1}, {"a": "\u2028é"}]


@pytest.mark.parametrize("content, where", [
    ("\n".join(json.dumps(row) for row in ROWS), "line 1"),
    ("\ufeff" + "\r\n\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), "line 1"),
    (json.dumps(ROWS), "element 0"),
    (json.dumps(ROWS, indent=2), "element 0"),
])  # fmt: skip
def test_rows_are_found_in_lines_and_lists(tmp_path: Path, content: str, where: str) -> None:
    (tmp_path / "a").write_text(content, newline="")
    rows = list(read_rows(tmp_path / "a"))
    assert [row.value for row in rows if isinstance(row, Row)] == ROWS
    assert isinstance(rows[0], Row) and rows[0].where == where


def test_broken_lines_are_told_by_number_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"a": 1}\n{"a": \n\n{"a": 2}\n' + b"[" * 100_000 + b"\n3")
    found = [
        (row.where, row.value if isinstance(row, Row) else None)
        for row in read_rows(tmp_path / "a")
    ]
    assert found == [
        ("line 1", {"a": 1}),
        ("line 2", None),
        ("line 4", {"a": 2}),
        ("line 5", None),
        ("line 6", 3),
    ]


def test_text_that_is_no_unicode_is_mended(tmp_path: Path) -> None:
    mended = ["\ufffd", "a\ufffdb", "\U0001f600", "\\ud800"]
    assert parse(b'["\\ud800", "a\xffb", "\\ud83d\\ude00", "\\\\ud800"]') == mended
    (tmp_path / "a").write_bytes(b'["\\ud800 and \xff"]')
    assert [row.value for row in read_elements(tmp_path / "a") if isinstance(row, Row)] == [
        "\ufffd and \ufffd"
    ]


@pytest.mark.parametrize("content", [b"[" * 250 + b"]" * 250, b'{"a":' * 250 + b"1" + b"}" * 250])
def test_deep_nesting_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableContent, match="200 levels"):
        parse(content)
    with pytest.raises(UnreadableContent, match="200 levels"):
        parse(content[:5] + b'"\\ud800",' + content[5:] if content[:1] == b"[" else content)


def test_a_glimpse_sees_a_value_that_is_cut_off() -> None:
    assert first_value(b'\xef\xbb\xbf{"a": [1, {"b": "cut he') == {"a": [1, {"b": "cut he"}]}
    assert first_value(b'{"a": 1}\n{"b": 2}') == {"a": 1}
    assert first_value(b"no JSON") is None


# Finding


def test_files_come_in_the_order_of_names_through_folders_and_links(
    tmp_path: Path, words: None
) -> None:
    for name in ("b/2", "b/1", "a/z/9", "c", "b.x"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_text(f"word {name}")
    (tmp_path / "logs" / "a" / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "table.csv").write_text("x")
    assert told(tmp_path / "logs") == ["a/z/9", "b/1", "b/2", "b.x", "c"]
    assert len(list(files_of(tmp_path / "logs"))) == 6


def test_hidden_files_are_told_only_where_a_reader_knows_them(tmp_path: Path, words: None) -> None:
    logs = tmp_path / "logs"
    for name in (
        ".codex/sessions/1",
        ".a",
        ".git/1",
        ".x.draft",
        "._a",
        ".word.swp",
        ".my_cache/1",
    ):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text(f"word {name}")
    for name, content in ((".odd", "prose"), (".empty", ""), (".b.zip", "PK\x03\x04")):
        (logs / name).write_text(content)
    assert told(logs) == [".a", ".codex/sessions/1"]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in filter(Path.is_file, logs.rglob("*")):
            archive.write(file, file.relative_to(logs))
    assert told(tmp_path / "all.zip") == told(logs)
    assert (
        told(logs / ".codex") == told(logs / ".codex" / "sessions" / "1") == [".codex/sessions/1"]
    )
    assert told(logs / ".odd") == ["no reader knows its format"]


def test_nothing_is_dropped_and_ids_are_unique(tmp_path: Path, words: None) -> None:
    contents = ["word x bad y", "word x", "", "prose", "word z crash w", "letter x"]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_text(content)
    (tmp_path / "6").symlink_to(tmp_path / "nowhere")
    crash = "the reader words 1 failed: the row is not as expected (one of two lines)"
    assert told(tmp_path) == [
        "x",
        "bad",
        "y",
        "x~2",
        "it is empty",
        "no reader knows its format",
        "z",
        crash,
        "x~3",
        "it is no file, or may not be read",
    ]


class Stumbling(Words):
    """A reader that fails on looking at any file."""

    def recognises(self, path: Path, head: bytes) -> bool:
        raise KeyError("title")


def test_a_reader_that_fails_on_looking_at_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = (Stumbling(name="stumbling"), Words())
    monkeypatch.setattr(log_reader, "installed_readers", lambda: readers)
    (tmp_path / "a").write_text("word x")
    (tmp_path / "b").write_text("prose")
    failed = "the reader stumbling 1 failed to recognise it: the row has no 'title'"
    assert told(tmp_path) == [failed, "x", failed, "no reader knows its format"]
    problems = [item for item in read_logs(tmp_path) if isinstance(item, Unreadable)]
    assert [item.path.name for item in problems] == ["a", "b", "b"]


class Lost(Words):
    def accompanies(self, path: Path) -> bool:
        raise KeyError("title")


def test_a_reader_that_fails_on_what_goes_along_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_reader, "installed_readers", lambda: (Words(), Lost(name="lost")))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a").write_text("word x")
    said = (
        f"the reader lost 1 cannot say whether {tmp_path / 'log' / 'a'} belongs to another file"
        f" (the row has no 'title'); report it to the authors of {Lost.__module__}, which is in no"
        " installed package, or name the format with --reader"
    )
    with pytest.raises(UserError) as refused:
        list(read_logs(tmp_path / "log"))
    assert str(refused.value) == said
    assert command(["scan", str(tmp_path / "log"), "--out", str(tmp_path / "case")]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
    assert told_names(read_logs(tmp_path / "log", reader="words")) == ["x"]


def told_names(found: Iterable[Trajectory | Unreadable]) -> list[str]:
    return [one.id for one in found if isinstance(one, Trajectory)]


@pytest.mark.parametrize("outcome", [-0.5, 1.5, 85.0])
def test_a_reader_whose_outcomes_have_another_scale_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: float
) -> None:
    runs = iter([run("fine", outcome=1.0), run("wrong", outcome=outcome)])
    scored = Reader(
        name="scored", version="2", recognises=lambda path, head: True, reads=lambda path: runs
    )
    monkeypatch.setattr(log_reader, "installed_readers", lambda: (scored,))
    (tmp_path / "log").write_text("x")
    found = read_logs(tmp_path)
    assert isinstance(first := next(found), Trajectory) and first.id == "fine"
    with pytest.raises(UserError) as refused:
        next(found)
    said = f"the reader scored 2 gives a run of {tmp_path / 'log'} the outcome {outcome:g}, which"
    assert str(refused.value).startswith(f"{said} is outside [0, 1]; scale it in the reader")


def test_a_named_file_and_a_named_reader_are_taken_at_their_word(
    tmp_path: Path, words: None
) -> None:
    (tmp_path / "table.csv").write_text("word one")
    assert told(tmp_path / "table.csv") == ["one"]
    (tmp_path / "b").write_text("unknown two")
    (run,) = read_logs(tmp_path / "b", "letters")
    assert isinstance(run, Trajectory) and run.environment == "letters"
    wrong = [
        (tmp_path / "no", None, "does not exist"),
        (tmp_path, "morse", "known: letters, words"),
    ]
    for path, reader, message in wrong:
        with pytest.raises(UserError, match=message):
            read_logs(path, reader)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file"):
        read_logs(tmp_path / "empty")


def test_the_reader_of_the_highest_rank_is_asked_first(tmp_path: Path) -> None:
    from importlib.metadata import entry_points

    ranks = [getattr(reader, "rank", 0) for reader in log_reader.installed_readers()]
    assert len(ranks) >= len(entry_points(group="forensics.readers")) and ranks == sorted(
        ranks, reverse=True
    )
    names = [reader.name for reader in log_reader.installed_readers()]
    assert len(set(names)) == len(names) and names[-2:] == ["chat", "terminal-bench"]


def tar_of(path: Path, members: dict[str, bytes], mode: Any) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


MEMBERS = {
    "a/1": b"word one",
    "../../up": b"word up",
    "/root": b"word root",
    "C:\\x": b"word drive",
    "a/1/no": b"word no",
}


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz", "zstd zip"])
def test_archives_are_read_and_names_in_them_do_no_harm(
    tmp_path: Path, words: None, kind: str
) -> None:
    place = tmp_path / "deep" / "logs"
    place.mkdir(parents=True)
    path = place / f"log.{kind.split()[-1]}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in MEMBERS.items():
                archive.writestr(name, content)
    elif kind == "zstd zip":
        write_zstd_zip(path, MEMBERS)
    else:
        tar_of(path, MEMBERS, f"w:{kind.removeprefix('tar').strip('.')}")
    found = list(read_logs(place))
    assert {run.id for run in found if isinstance(run, Trajectory)} == {
        "one",
        "up",
        "root",
        "drive",
    }
    problems = {item.where for item in found if isinstance(item, Unreadable)}
    assert problems == ({"a/1/no"} if "zip" in kind else {"a/1/no", "link"})
    assert all(item.path == path for item in found if isinstance(item, Unreadable))
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [path.name]


def test_archives_in_archives_are_told_by_the_way_to_them(tmp_path: Path, words: None) -> None:
    inner = gzip.compress(b"word deep bad")
    for _ in range(3):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("in.zip", inner)
        inner = buffer.getvalue()
    path = tmp_path / "out.zip"
    path.write_bytes(inner)
    deep = path / "in.zip" / "in.zip" / "in.zip"
    # the reader sees the compressed file, whose head is inflated for it
    with limited(nesting=2):
        found = [item for item in read_logs(path) if isinstance(item, Unreadable)]
    assert [(item.path, item.reason) for item in found] == [
        (deep.parent, "archives are nested deeper than 2 levels")
    ]
    assert all(item.path == deep for item in read_logs(path) if isinstance(item, Unreadable))


def test_an_archive_that_grows_out_of_bounds_is_refused(tmp_path: Path, words: None) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", "word first")
        archive.writestr("1", bytes(20_000_000))
        archive.writestr("2", "word never")
    first, *rest = told(path, free=1 << 20, ratio=10)
    assert "decompression bomb" in first and "first" in rest and "never" not in rest
    assert "more than 2 files" in told(path, members=2)[0]


def test_names_lose_what_leads_out() -> None:
    assert safe_name("/../a/./b\x00\x1b[31m/..\\..\\c:d/...") == "a/b__[31m/c_d"
    assert len(safe_name("é" * 5000).encode()) < 255
    assert safe_name("../..") == ""


def test_a_member_without_a_name_is_read(tmp_path: Path) -> None:
    path = write_zstd_zip(tmp_path / "logs.zip", {"": b"word none", "a": b"word one"})
    with limited(free=1 << 20), unpacked(path) as (folder, problems):
        assert {file.name for file in folder.rglob("*")} == {"member-1", "a"}
    assert not problems


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damaged_archives_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    tar, packed = (
        tar_of(place / "good.tar.gz", MEMBERS, "w:gz"),
        write_zstd_zip(place / "good.zip", MEMBERS),
    )
    good = data.draw(st.sampled_from([tar, packed]))
    path = place / f"bad{''.join(good.suffixes)}"
    path.write_bytes(data.draw(damaged(good.read_bytes())))
    with limited(free=1 << 20), unpacked(path) as (folder, problems):
        assert all(file.resolve().is_relative_to(folder) for file in folder.rglob("*"))
    assert all(isinstance(reason, str) for _, reason in problems)
    assert all(isinstance(item, Trajectory | Unreadable) for item in read_logs(path))
