"""What the comparison of two commits calls the same."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.same_bytes import RUNS, chosen, digest


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_times_and_places_are_no_difference_and_a_number_is(tmp_path: Path, name: str) -> None:
    def hashed(folder: str, text: str) -> str:
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("HERE", str(path.parent)))
        return digest(path, str(path.parent))

    first = hashed("one", '{"n": 1.0, "rows": [{"seconds": 3}], "path": "HERE/x"}')
    assert first == hashed("two", '{"path": "HERE/x", "rows": [{"seconds": 4}], "n": 1.0}')
    assert first != hashed(
        "three", '{"n": 1.0000000000000002, "rows": [{"seconds": 3}], "path": "HERE/x"}'
    )


def test_a_page_is_what_it_shows(tmp_path: Path) -> None:
    part = '<g id="m{0}0123456789"/><use href="#m{0}0123456789"/>'
    page = f"<p>\n <svg><metadata>{{0}}</metadata>{part}</svg> {{1}}</p>"
    for name, told, shown in (("a", "1f", 2), ("b", "2e", 2), ("c", "2e", 3)):
        (tmp_path / f"{name}.html").write_text(page.format(told, shown))
    hashes = [digest(tmp_path / f"{name}.html", str(tmp_path)) for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_table_is_its_rows(tmp_path: Path) -> None:
    for name, rows, size in (("a", [1, 2, 3], 1), ("b", [1, 2, 3], 3), ("c", [1, 3, 2], 3)):
        pq.write_table(pa.table({"n": rows}), tmp_path / f"{name}.parquet", row_group_size=size)
    hashes = [digest(tmp_path / f"{name}.parquet", "") for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_run_brings_those_that_it_reads() -> None:
    assert [run.name for run in chosen(["steer"])] == ["phantom", "diff", "steer"]
    assert chosen([]) == RUNS
