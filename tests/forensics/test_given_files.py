"""Files that a user names may be anything: each gets a sentence and exit code 2, none is waited
for, and nothing outside of a folder of logs is read.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics import Budget, UserError
from forensics.cli.main import run
from forensics.readers import Unreadable, read_logs
from forensics.readers.case_folder import case_sides
from forensics.records import Trajectory
from forensics.records.files import read_findings, read_json, write_json
from forensics.records.given_files import address, parse_json, parse_toml, read_text, require_inside

NOISE = Path(__file__).parents[1] / "data" / "cases" / "noise"
Put = Callable[[Path], None]
PLACES: dict[str, Put] = {
    "is a pipe or a device": os.mkfifo,
    "is a link that leads back to itself": lambda path: path.symlink_to(path),
    "is a folder": Path.mkdir,
    "does not exist": lambda path: path.symlink_to("/nowhere"),
    "is not UTF-8 text": lambda path: path.write_bytes(b"\xff\xfe"),  # type: ignore[dict-item]
}
DEEP = {
    "arrays": ("[" * 9000 + "]" * 9000, "a=" + "[" * 3000 + "]" * 3000),
    "tables": ('{"a":' * 150 + "1" + "}" * 150, ".".join("a" * 150) + "=1"),
}
CONTENT = (DEEP["arrays"][1], DEEP["tables"][1], "a=" + "9" * 6000, "hello")


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file_is_refused_and_not_waited_for(place: str, tmp_path: Path) -> None:
    PLACES[place](tmp_path / "given")
    readers: list[Callable[[Path], object]] = [lambda path: read_text(path, "", "mend"), read_json]
    if place != "is not UTF-8 text":  # of which the line is named
        readers.append(lambda path: list(read_findings(path)))
    for read in readers:
        with pytest.raises(UserError, match=place):
            read(tmp_path / "given")


@pytest.mark.parametrize("kind", DEEP)
def test_what_is_nested_too_deep_is_a_value_error(kind: str) -> None:
    as_json, as_toml = DEEP[kind]
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        parse_json(as_json)
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        parse_toml(as_toml)


def test_what_is_fine_is_read() -> None:
    pair = "\U0001f600"
    value = {"a": [[{"b": [1.5, None, "\u00e9", pair]}]] * 50}
    assert parse_json(json.dumps(value)) == value  # with the escapes of a whole pair
    assert parse_toml('a = [[1]]\n[b.c]\nd = "x"') == {"a": [[1]], "b": {"c": {"d": "x"}}}
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        parse_json('{"a": "\\ud83d"}')


@pytest.mark.parametrize("content", range(len(CONTENT)))
@pytest.mark.parametrize("command", ["train", "rule", "recipe"])
def test_a_recipe_or_a_rule_that_is_none_ends_in_2(
    command: str, content: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "given.toml", tmp_path / "out"
    given.write_text(CONTENT[content])
    pair = ["--before", str(NOISE), "--after", str(NOISE), "--env", "mini-repo"]
    line = {
        "train": ["train", str(given)],
        "rule": ["scan", str(NOISE), "--rule", str(given)],
        "recipe": ["investigate", *pair, "--recipe", str(given)],
    }[command]
    assert run([*line, "--out", str(out)]) == 2
    assert "given.toml" in capsys.readouterr().err
    assert not out.exists()


def test_a_pipe_as_a_recipe_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "recipe.toml")
    assert run(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "out")]) == 2
    assert "is a pipe or a device, not a file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "gate"])
def test_a_folder_named_case_json_ends_in_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case.json").mkdir()
    assert run([command, str(tmp_path)]) == 2
    assert "case.json is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"),
    [("a" * 300, "name too long"), ("loop", "is a link that leads back to itself")],
)
def test_a_path_that_the_system_refuses_ends_in_2(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "loop":
        (tmp_path / name).symlink_to(tmp_path / name)
    for line in (
        ["scan", str(tmp_path / name)],
        ["scan", str(NOISE), "--before", str(tmp_path / name)],
    ):
        assert run([*line, "--out", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err.lower()


def test_a_name_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a folder is read, and none is made; what holds its name can be written."""
    # what is logged of it stands in pytest's report, which its workers cannot send
    monkeypatch.setattr(logging.getLogger("forensics"), "disabled", True)
    case = tmp_path / "a\udcff"
    assert run(["scan", str(NOISE), "--out", str(case)]) == 2
    assert "is no UTF-8 text; choose another folder" in capsys.readouterr().err
    shutil.copytree(NOISE, case)
    assert sum(isinstance(one, Trajectory) for one in read_logs(case)) > 0
    write_json(tmp_path / "a.json", {"path": str(case)})
    assert json.loads((tmp_path / "a.json").read_text()) == {"path": str(case)}


# -- links -----------------------------------------------------------------------------


def test_a_link_out_of_a_log_folder_is_told_and_not_followed(tmp_path: Path) -> None:
    line = json.dumps(
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    )
    for name in ("outside/secret.jsonl", "logs/own.jsonl", "logs/deep/other.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(line)
    (tmp_path / "logs" / "file.jsonl").symlink_to(tmp_path / "outside" / "secret.jsonl")
    (tmp_path / "logs" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "logs" / "inside.jsonl").symlink_to(tmp_path / "logs" / "deep" / "other.jsonl")
    (tmp_path / "given").symlink_to(tmp_path / "logs")
    for log in (tmp_path / "logs", tmp_path / "given"):
        found = list(read_logs(log, names_files=True))
        told = {one.path.name: one.reason for one in found if isinstance(one, Unreadable)}
        assert set(told) == {"file.jsonl", "folder"}
        assert all("link out of the folder" in reason for reason in told.values())
        assert {Path(one.file or "").name for one in found if not isinstance(one, Unreadable)} == {
            "own.jsonl",
            "other.jsonl",
            "inside.jsonl",
        }
    assert len(list(read_logs(tmp_path / "logs" / "file.jsonl"))) == 1  # what was given itself


def test_the_log_of_a_case_does_not_rest_on_what_a_link_leads_to(tmp_path: Path) -> None:
    from forensics.investigation.stored_logs import identity_of_files
    from forensics.progress import silent

    (tmp_path / "logs").mkdir()
    (tmp_path / "secret").write_text("one")
    (tmp_path / "logs" / "a").symlink_to(tmp_path / "secret")
    before = identity_of_files([tmp_path / "logs"], silent)
    (tmp_path / "secret").write_text("two")
    assert identity_of_files([tmp_path / "logs"], silent) == before


def test_a_stored_run_that_is_a_link_out_of_its_case_is_refused(tmp_path: Path) -> None:
    shutil.copytree(NOISE, tmp_path / "case")
    run_file = next((tmp_path / "case" / "trajectories").glob("before-open-*.parquet"))
    run_file.rename(tmp_path / "elsewhere.parquet")
    run_file.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(UserError, match="is a link that leads out of"):
        case_sides(tmp_path / "case")
    require_inside(tmp_path / "elsewhere.parquet", tmp_path)


# -- what is no path, and no number that can be meant ------------------------------------


@pytest.mark.parametrize("given", ["http://localhost:8000/v1", "https://a.b/c", "hf://org/model"])
def test_an_address_is_no_checkpoint_directory(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["investigate", "--before", given, "--after", str(NOISE), "--env", "mini-repo"]
    assert run([*line, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert f"{given} is an address, not a checkpoint directory" in told and "forensics scan" in told
    assert run(["scan", given, "--out", str(tmp_path / "out")]) == 2
    assert f"{given} is an address, not a log" in capsys.readouterr().err


def test_a_path_is_no_address() -> None:
    assert [address(Path(one)) for one in ("a/b", "C:/a", "/x:/y", "odd:name", "./http:")] == [
        None
    ] * 5


@pytest.mark.parametrize("name", ["samples", "tasks"])
def test_more_than_can_be_sampled_is_a_slip(name: str) -> None:
    with pytest.raises(
        UserError, match=rf"{name} is 1000000000000 and must be a whole number from 1"
    ):
        Budget(**{name: 10**12})


def test_a_recipe_with_a_slip_is_refused() -> None:
    from training.recipe import parse_recipe

    plain = {"policy": {"checkpoint": "x"}, "environment": {"name": "mini-repo"}}
    for name in ("steps", "groups", "samples", "epochs", "rows"):
        with pytest.raises(UserError, match=f"grpo.{name}: .*less than or equal"):
            parse_recipe({**plain, "grpo": {"steps": 1, name: 10**12}}, "r.toml")


@pytest.mark.parametrize("put", [Path.mkdir, lambda path: path.symlink_to("/nowhere")])
def test_weights_that_are_no_file_are_called_so(put: Put, tmp_path: Path) -> None:
    from forensics.policies.weights import find_tensors

    put(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors is no file; copy"):
        list(find_tensors(tmp_path))


def test_progress_on_the_folder_one_stands_in_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forensics.policies.weights import identify_weights
    from training.organisms.organism import BUNDLED

    monkeypatch.chdir(BUNDLED / "leak")
    told: set[str] = set()
    identify_weights(Path("."), lambda what, done, of: told.add(what))
    assert told == {"reading leak"}
