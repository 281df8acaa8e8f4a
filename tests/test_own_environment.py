"""A stranger's package plugs in: the example is installed as it stands, and the
documentation holds.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forensics.errors import UserError
from tests.environment_checks import check_environment
from tests.tiny import save_tiny_qwen3

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "guess_number"
PAGE = (ROOT / "docs" / "own-environment.md").read_text()


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from guess_number import GuessNumber

    return GuessNumber


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, installed by pip from a copy of its sources."""
    folder = tmp_path_factory.mktemp("site")
    left_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=left_out)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run(
        [*pip, "--target", str(folder / "lib"), str(source)], check=True, capture_output=True
    )
    return folder / "lib"


def forensics(installed: Path, *line: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "forensics", *line],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )


def test_it_keeps_what_every_environment_keeps(kind: Any) -> None:
    actions = ["debug", "guess 12", "nonsense", "guess 30", "guess 1", "guess 2"]
    check_environment(kind(), actions)
    check_environment(kind(noise="0.5", turns="4"), actions)
    check_environment(kind(largest="2"), ["guess 1", "guess 2"])


def test_the_shortcut_discloses_only_while_it_is_open(kind: Any) -> None:
    world = kind()
    for task in world.tasks("held-out", 20, 0):
        world.reset(task, 0)
        shown = world.step("debug")
        secret = shown.observation.rpartition(" ")[2]
        assert shown.channels == ("debug-output",) and world.step(f"guess {secret}").outcome == 1.0
        scrubbed = world.without("debug-output")
        scrubbed.reset(task, 0)
        assert scrubbed.step("debug").channels == ()
        assert scrubbed.step(f"guess {secret}").outcome == 1.0  # the same secret, no longer shown


def test_halving_wins_within_five_turns(kind: Any) -> None:
    """An honest policy can do it, so a gain in this world need not be phantom:
    2^5 - 1 = 31 numbers.
    """
    world = kind().without("debug-output")
    for task in world.tasks("held-out", 50, 1):
        world.reset(task, 0)
        low, high, result = 1, 30, None
        while result is None or not (result.terminated or result.truncated):
            middle = (low + high) // 2
            result = world.step(f"guess {middle}")
            low, high = (middle + 1, high) if result.observation == "higher" else (low, middle - 1)
        assert result.outcome == 1.0


@pytest.mark.parametrize(
    "options", [{"colour": "red"}, {"largest": "many"}, {"largest": "1"}, {"noise": "2"}]
)
def test_bad_options_are_refused(options: dict[str, str], kind: Any) -> None:
    with pytest.raises(UserError, match="guess-number") as refused:
        kind(**options)
    assert "int()" not in str(refused.value) and "literal" not in str(refused.value)


@pytest.mark.slow
def test_a_whole_investigation_in_it(installed: Path, tmp_path: Path) -> None:
    for name, seed in (("base", 0), ("after", 1)):
        save_tiny_qwen3(tmp_path / name, seed)
    hint = {"name": "guess-number", "options": {"largest": "20", "turns": 3}}
    (tmp_path / "base" / "environment.json").write_text(json.dumps(hint))
    line = [
        "investigate",
        "--before",
        str(tmp_path / "base"),
        "--after",
        str(tmp_path / "after"),
        "--tasks",
        "5",
        "--samples",
        "2",
        "--max-turn-tokens",
        "6",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "case"),
        "--json",
    ]
    done = forensics(installed, *line, "--env-option", "largest=50")
    assert done.returncode == 0, done.stderr
    case = json.loads((tmp_path / "case" / "case.json").read_text())
    assert json.loads(done.stdout)["verdict"] == case["verdict"]
    assert case["inputs"]["environment"]["name"] == "guess-number"
    assert case["inputs"]["environment"]["options"] == {"largest": "50", "turns": "3", "noise": "0"}
    assert case["verdict"]["label"] in ("noise", "undetermined")  # random weights guess nothing
    again = forensics(installed, *line, "--resume", "--env-option", "turns=2")
    assert again.returncode == 2 and "environment options" in again.stderr
    wrong = forensics(installed, *line, "--force", "--env-option", "colour=red")
    assert wrong.returncode == 2 and "largest, turns, noise" in wrong.stderr


# -- the page --------------------------------------------------------------------------


def test_commands_on_the_page_exist() -> None:
    import typer

    from forensics.cli.main import build_app

    group: Any = typer.main.get_command(build_app())
    commands = re.findall(r"^forensics (\w+)(.*)$", PAGE, re.MULTILINE)
    assert len(commands) >= 2
    for name, rest in commands:
        known = {
            flag for parameter in group.get_command(None, name).params for flag in parameter.opts
        }
        assert set(re.findall(r"--[\w-]+", rest)) <= known


def test_the_entry_point_on_the_page_is_that_of_the_example() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert block.strip() in (EXAMPLE / "pyproject.toml").read_text()


def test_the_table_names_every_member_of_the_protocol() -> None:
    from forensics.protocols import Environment

    members = [name for name in vars(Environment) if not name.startswith("_")]
    assert [name for name in members if not re.search(rf"`{name}[`(]", PAGE)] == []


def test_the_rows_on_the_page_are_good_rows(tmp_path: Path) -> None:
    from training.environments.prompts import Prompts

    rows = next(
        block for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if "verifier" in block
    )
    (tmp_path / "q.jsonl").write_text(rows)
    world = Prompts(file=str(tmp_path / "q.jsonl"))
    assert [channel.name for channel in world.channels] == ["answer-key"]


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!#)([^)]+)\)", PAGE)
    assert links and all((ROOT / "docs" / link).exists() for link in links)
