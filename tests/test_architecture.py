"""docs/architecture.md says what is so."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = ("forensics", "training", "probes", "crosscoders", "resampling")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLACES = sorted(set(re.findall(r"`([a-z_.]+:[A-Za-z_.]+)`", PAGE)))


def test_the_drawings_are_the_contracts_that_are_checked() -> None:
    drawn = [block.split("\n") for block in re.findall(r"```\n(.*?)\n```", PAGE, re.DOTALL)]
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    held = [one["layers"] for one in contracts if one["type"] == "layers"]
    assert drawn == held


@pytest.mark.parametrize("place", PLACES)
def test_what_the_walk_names_is_there(place: str) -> None:
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert len(PLACES) > 12


def test_every_seam_stands_in_the_table() -> None:
    told = set(re.findall(r"^\| `(forensics\.[a-z_]+)` \|", PAGE, re.MULTILINE))
    assert told == set(PROJECT["project"]["entry-points"])


def test_rooms_and_files_that_are_named_are_there() -> None:
    for names in re.findall(r"^\| (`[a-z`, ]+`) \|", PAGE, re.MULTILINE):
        for name in re.findall(r"`([a-z]+)`", names):
            assert (ROOT / "forensics" / name).is_dir(), name
    for path in re.findall(r"`([a-z_/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path


FOLDERS = sorted({file.parent for room in ROOMS for file in (ROOT / room).rglob("__init__.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_names_at_most_forty_things(folder: Path) -> None:
    module = ast.parse((folder / "__init__.py").read_text())
    given = {
        alias.asname or alias.name
        for one in ast.walk(module)
        if isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] in ROOMS
        for alias in one.names
    }
    most = 110 if folder.name in ("records", "policies") else 40  # what every room is written with
    assert len(given - {"lazy_names"}) <= most


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_folder_gives_is_there(folder: Path) -> None:
    room = importlib.import_module(".".join(folder.relative_to(ROOT).parts))
    if hasattr(room, "__getattr__"):
        assert all(getattr(room, name) is not None for name in dir(room))
