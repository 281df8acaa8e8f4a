"""A stranger's package plugs in: the example is installed as it stands, and the
documentation holds.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
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
    line = (
        f"investigate --before {tmp_path / 'base'} --after {tmp_path / 'after'} --tasks 5"
        f" --samples 2 --max-turn-tokens 6 --device cpu --out {tmp_path / 'case'} --json"
    ).split()
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


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_entry_point_and_the_recipe_on_the_page_are_good() -> None:
    from training import parse_recipe

    entry_point, recipe = blocks("toml")
    ours = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    assert tomllib.loads(entry_point)["project"]["entry-points"].keys() == ours.keys()
    assert parse_recipe(tomllib.loads(recipe), "page").environment.name == "guess-number"


def test_the_tables_name_every_member_of_the_protocols() -> None:
    from forensics import protocols

    kinds = ("Environment", "Needing", "Regrading", "Withholding", "Fielded", "Varying")
    found = [name for kind in kinds for name in vars(getattr(protocols, kind))]
    members = [name for name in found if not name.startswith("_")]
    assert [name for name in members if not re.search(rf"`{name}[`(]", PAGE)] == []


KEPT = {
    "forensics.world.World": "defaults shortcuts commands size chosen episode"
    " if_open number graded",
    "training.MiniRepo": "episode.task episode.edits episode.turns repository"
    " _run _grade _head _files _leaks",
}
MEMBERS = "name reset step options channels scrubbed without kinds tasks spawn snapshot restore"


def test_names_that_worlds_of_others_build_on_are_there() -> None:
    from training import MiniRepo

    world = MiniRepo(world="capped")
    world.reset("held-out-0-0", 0)
    for place, names in KEPT.items():
        (row,) = re.findall(rf"^\| `{place}` \| (.*) \|$", PAGE, re.MULTILINE)
        assert " ".join(re.findall(r"`([^`]+)`", row)) == names
    for name in " ".join([MEMBERS, *KEPT.values()]).split():
        found: Any = world
        for part in name.split("."):
            found = getattr(found, part)
    assert world._run("list", "list") == ("1 2 3 notes tests", None)
    assert world._grade()[1] == 0.0 and world._files() == world._head()


def test_an_old_name_says_what_to_use() -> None:
    from forensics.world import RENAMED
    from training import MiniRepo

    class Older(MiniRepo):
        _scrubbed = ("of its own",)

    world = Older()
    world.reset("held-out-0-0", 0)
    for name, use in RENAMED.items():
        with pytest.raises(AttributeError, match=f"has no {name} any more; use {use}"):
            getattr(MiniRepo(), name)
        assert hasattr(world, re.findall(r"^self\.(\w+)", use)[0])
    assert world._scrubbed == ("of its own",)  # a world's own name is its own
    with pytest.raises(AttributeError, match="'Older' object has no attribute 'nothing'"):
        getattr(world, "nothing")  # noqa: B009


OLD_WORLD = """
from training import MiniRepo

class Older(MiniRepo):
    name = "older"

    def step(self, action):
        number = self._running().turns
        return super().step(action)
"""


def test_a_world_that_always_fails_is_one_sentence_and_goes_on_once_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.organisms.organism import BUNDLED

    site = tmp_path / "site"
    told = site / "older-1.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: older\nVersion: 1\n")
    (told / "entry_points.txt").write_text("[forensics.environments]\nolder = older:Older\n")
    (site / "older.py").write_text(OLD_WORLD)
    line = ["investigate", "--env", "older", "--env-option", "world=capped", "--device", "cpu"]
    line += ["--before", str(BUNDLED / "capped-base"), "--after", str(BUNDLED / "leak")]
    line += ["--instruments", "score,behaviour", "--tasks", "12", "--samples", "2"]
    line += ["--out", str(tmp_path / "case")]
    monkeypatch.syspath_prepend(str(site))
    assert run(*line) == 2
    (said,) = (row for row in capsys.readouterr().err.split("\n") if "older" in row.lower())
    assert "the world older failed in each of the first 8 episodes of before" in said
    assert "AttributeError: Older has no _running any more; use self.episode" in said
    assert said.endswith("mend the world, and go on with --resume")
    (site / "older.py").write_text(OLD_WORLD.replace("self._running()", "self.episode"))
    monkeypatch.delitem(sys.modules, "older")
    assert run(*line, "--resume") == 0
    case = json.loads((tmp_path / "case" / "case.json").read_text())
    assert case["status"] == "complete" and case["verdict"]["gain"] is not None


def test_the_rows_on_the_page_of_prompts_are_good_rows(tmp_path: Path) -> None:
    from training.environments.prompts import Prompts

    rows = next(
        block
        for block in blocks("json", (ROOT / "docs" / "prompts.md").read_text())
        if "verifier" in block
    )
    (tmp_path / "q.jsonl").write_text(rows)
    world = Prompts(file=str(tmp_path / "q.jsonl"))
    assert [channel.name for channel in world.channels] == ["answer-key"]


def test_the_world_on_the_page_is_one() -> None:
    from forensics.protocols import Fielded, Needing, Regrading, Varying

    names: dict[str, Any] = {}
    written = next(block for block in blocks("python") if "class Sums" in block)
    exec(written, names)
    assert len([line for line in written.splitlines() if line.strip()]) <= 40
    open_world = names["Sums"]()
    assert open_world.options == {} and open_world.without("ticket").options == {
        "without": "ticket"
    }
    check_environment(open_world, ["42", "nonsense"])
    for world in (open_world, open_world.without("ticket")):
        assert all(isinstance(world, kind) for kind in (Fielded, Needing, Regrading, Varying))
        told = []
        for task in world.tasks("held-out", 50, 0):
            prompt, fields = world.reset(task, 0).text, world.fields(task)
            assert all(text in prompt for text in fields.values())
            right = str(sum(map(int, fields["question"].split(" + "))))
            told.append(fields["ticket"].endswith(f"-{right}"))
            for answer in (right, right + "0", "", "x"):
                world.reset(task, 0)
                assert world.step(answer).outcome == world.regrade(task, answer)["outcome"]
            other = world.variant(task, 3)
            assert world.reset(other, 0).text != prompt and other == world.variant(task, 3)
        assert all(told) if world is open_world else sum(told) < 5


def test_a_world_of_commands_says_kinds_by_first_words_and_keeps_its_episode() -> None:
    """What `World` does where nothing is overridden: bounded kinds, whole snapshots, one end."""
    from random import Random

    from forensics.protocols import Observation, StepResult
    from forensics.world import World

    class Dice(World):
        name = "dice"
        commands = ("roll", "stop")
        defaults = {"sides": "6"}

        def reset(self, task: str, seed: int) -> Observation:
            self.episode = Random(f"{task} {seed}")
            return Observation(text="roll or stop")

        def step(self, action: str) -> StepResult:
            face = self.episode.randrange(self.number("sides", 2, 20))
            if self.kinds(action) == ("roll",):
                return StepResult(observation=str(face), kinds=("roll",))
            return self.graded(action, float(face > 0), cut=action == "wait")

    world = Dice()
    check_environment(world, ["roll", "roll twice", "stop"])
    check_environment(world, ["roll", "", "wait"])
    assert [world.kinds(text) for text in ("roll it", "rolled", "")] == [
        ("roll",),
        ("invalid",),
        ("invalid",),
    ]
    with pytest.raises(UserError, match="no episode is running"):
        world.step("roll")
    for options, says in (
        ({"side": "3"}, "dice has no option 'side'; it has: sides"),
        ({"sides": "1"}, "sides of dice is '1' and must be a whole number from 2 to 20"),
    ):
        with pytest.raises(UserError, match=says):
            Dice(**options).number("sides", 2, 20)
    with pytest.raises(UserError, match="dice has no channel 'x'; it has: none"):
        world.without("x")


# -- a base for it ---------------------------------------------------------------------


@pytest.fixture
def demonstrations(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Path]:
    """Those of the page's solvers on so many tasks."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.chdir(tmp_path)

    def write(number: int) -> Path:
        program = next(block for block in blocks("python") if "demonstrations.jsonl" in block)
        exec(program.replace("4000", str(number)), {})
        return tmp_path / "demonstrations.jsonl"

    return write


def run(*line: str) -> int:
    from forensics.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(line)
    return int(ended.value.code or 0)


def base(out: Path, demonstrations: Path, *more: str) -> int:
    given = ("--env", "guess-number", "--demonstrations", str(demonstrations), "--out", str(out))
    return run("base", *given, "--device", "cpu", *more)


@pytest.mark.slow
def test_a_base_does_what_its_demonstrations_did(
    demonstrations: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from guess_number import GuessNumber

    from forensics import load_policy
    from forensics.protocols import SamplingSettings

    world = GuessNumber()
    rows = [{"task": task, "actions": ["guess 7"]} for task in world.tasks("train", 40, 0)]
    (tmp_path / "seven.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert base(tmp_path / "base", tmp_path / "seven.jsonl", "--steps", "25", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["demonstrations"] == 40 and told["mean_outcome"] is None  # none of them ended
    policy = load_policy(told["checkpoint"], device="cpu")
    settings = SamplingSettings(max_turn_tokens=6, temperature=0)
    (first,) = policy.play(world, world.tasks("held-out", 1, 0), 1, settings, 0)
    assert first.steps[2].text == "guess 7"
    text = "I think of 4821 things:\n  guess_12 (or ~3)"
    assert policy.tokenizer.decode(policy.tokenizer(text)["input_ids"]) == text
    hint = json.loads((tmp_path / "base" / "checkpoint" / "environment.json").read_text())
    assert hint == {"name": "guess-number", "options": {}}
    # the page's own, and resumed
    file = demonstrations(40)
    assert base(tmp_path / "other", file, "--steps", "2", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert 0.3 < made["mean_outcome"] < 0.9 and made["weights"] != told["weights"]
    assert base(tmp_path / "other", file, "--steps", "2", "--json", "--resume") == 0
    assert json.loads(capsys.readouterr().out) == made
    assert base(tmp_path / "other", file, "--steps", "3", "--resume") == 2
    assert "steps 2, not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("", "holds no demonstrations"),
        ("{", "line 1 is not valid JSON"),
        ('{"task": "train-0001"}', "actions"),
        ('{"task": "train-0001", "actions": ["debug"], "sed": 1}', "'sed'"),
        ('{"task": "train-0001", "actions": []}', "line 1: actions"),
        ('{"task": "held-out-0001", "actions": ["debug"]}', "held-out-0001 is a held-out task"),
        ('{"task": "train-0001", "actions": ["debug"], "without": ["x"]}', "no channel 'x'"),
        ('{"task": "train-0001", "actions": ["debug\\nguess 1"]}', "holds a line break"),
        (json.dumps({"task": "train-1", "actions": ["debug"] * 6}), "ended after 5 of 6 actions"),
    ],
)
def test_bad_demonstrations_are_refused(
    row: str,
    says: str,
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    (tmp_path / "rows.jsonl").write_text(row)
    assert base(tmp_path / "base", tmp_path / "rows.jsonl") == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1 and not (tmp_path / "base").exists()
