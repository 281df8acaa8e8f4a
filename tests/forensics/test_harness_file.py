"""`harness.toml`: what cannot be meant is one sentence with the cure; tasks, twins, overlays."""

import json
from pathlib import Path

import pytest

from forensics.cli.main import run
from forensics.errors import UserError
from forensics.harness import HarnessWorld, handed_out, read_harness, tasks_of
from tests.forensics.scripted_chat import harness


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("at_once", "at_onse", "has the unknown key 'at_onse'; known there: name, command, tasks"),
        ("kinds", "kindz", "has the unknown key 'kindz'; known there: name, family"),
        ("[[channels]]", "[[channels", "is not valid TOML"),
        ("tasks.jsonl", "no.jsonl", "no.jsonl does not exist"),
        ("tasks.jsonl", ".", "holds no folders with a task.toml"),
        ("tasks.jsonl", "http://x.org/tasks", "is an address"),
        ("{without}", "all", "nothing scrubs the channel git-history"),
        ("{seed}", "{sead}", "has the placeholder {sead}, which no task fills"),
        ("{seed}", "{seed", "is not right at '{seed'"),
        ('families = ["git-history"]', 'tasks = "twin.jsonl"', "lack task-1"),
        ('families = ["git-history"]', 'overlay = "o"', "its tasks are no folders"),
        ("at_once = 4", "at_once = 0", "at_once: "),
        ("{seed}", "{task_dir}", "are no folders, so {task_dir} has no meaning"),
        ("{seed}", "{seed:d}", "with nothing behind its name"),
        ('name = "git-history"', 'name = "../../x"', "channels.0.name: "),  # of files, too
        ('name = "git-history"', 'name = "a,b"', "channels.0.name: "),
        ("at_once = 4", 'result = "../x"', "a file below {out}"),
        ("at_once = 4", 'result = "/etc/hostname"', "a file below {out}"),
        ("[[channels]]", '[[channels]]\nenvironment = {"A=B" = "x"}', "environment.A=B"),
    ],
)
def test_what_cannot_be_meant_is_said(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = harness(tmp_path)
    (tmp_path / "twin.jsonl").write_text('{"id": "task-0"}\n')
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError) as said:
        read_harness(path)
    assert told in str(said.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--harness", "H", "--before", "x"], "--before means nothing beside --harness"),
        (["--harness", "H", "--env", "x"], "--env means nothing beside --harness"),
        (["--harness", "H"], "give --before-server URL#MODEL and --after-server"),
        ([], "there is no --before checkpoint"),
        (
            [
                "--harness",
                "http://x.org/h.toml",
                *("--before-server", "http://x"),
                *("--after-server", "http://x"),
            ],
            "is an address, not a file",
        ),
        (
            [
                "--harness",
                "H",
                *("--before-server", "http://127.0.0.1:9/v1#a"),
                *("--after-server", "http://x"),
            ],
            "does not answer as it should",
        ),
        (
            [
                "--harness",
                "H",
                *("--before-server", "http://[::1/v1#a"),
                *("--after-server", "http://x"),
            ],
            "is none (Invalid port",
        ),
        (
            [
                "--harness",
                "ONE",
                *("--before-server", "http://x"),
                *("--after-server", "http://x"),
            ],
            "has 1 held-out task, of which no gain can be told",
        ),
    ],
)
def test_routes_that_clash_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], told: str
) -> None:
    path = str(harness(tmp_path / "h"))
    alone = str(harness(tmp_path / "one", tasks=1))
    words = [{"H": path, "ONE": alone}.get(word, word) for word in given]
    assert run(["investigate", *words, "--out", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err.replace("\n", " ")


def test_an_address_is_no_folder_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["scan", str(harness(tmp_path / "h")), "--out", "http://x.org/case"]) == 2
    assert "http://x.org/case is an address, not a folder" in capsys.readouterr().err
    assert not Path("http:").exists()


def test_tasks_lines_say_their_split_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1, "split": "train", "prompt": "p", "image": "x"}\n\n{"id": "b"}\n')
    tasks = tasks_of(path)
    assert [(one.name, one.split, one.prompt) for one in tasks.values()] == [
        ("1", "train", "p"),
        ("b", "held-out", None),
    ]
    assert tasks["1"].fields == {"image": "x"}
    broken = ('{"id": "a"}\n{"id": "a"}', "twice"), ('{"split": 1}', "no object with")
    for text, told in (*broken, ('{"id": true}', "no object with")):
        path.write_text(text)
        with pytest.raises(UserError, match=told):
            tasks_of(path)


def test_a_folder_of_tasks_is_copied_and_laid_over(tmp_path: Path) -> None:
    for place, text in (("tasks/a", "answer"), ("over/environment", "scrubbed"), ("over/a", "own")):
        (tmp_path / place).mkdir(parents=True)
        for name in ("secret", "instruction.md", "task.toml") if "tasks" in place else ("secret",):
            (tmp_path / place / name).write_text(text if name == "secret" else "")
    (tmp_path / "tasks/a/environment").mkdir()
    (tmp_path / "tasks/a/environment/secret").write_text("answer")
    toml = tmp_path / "harness.toml"
    toml.write_text(
        'name = "x"\ncommand = ["run", "{task_dir}"]\ntasks = "tasks"\n'
        '[[channels]]\nname = "c"\noverlay = "over"\noption = "--sealed"\nenvironment = {A = "b"}\n'
    )
    world = HarnessWorld(read_harness(toml))
    scrubbed = world.without("c")
    for here, told in ((world, ("answer", "answer")), (scrubbed, ("own", "scrubbed"))):
        place = here.lay_out(here.task("a"), tmp_path / f"laid-{len(here.scrubbed)}")
        assert place is not None
        assert ((place / "secret").read_text(), (place / "environment/secret").read_text()) == told
    argv = scrubbed.command(scrubbed.task("a"), 1, tmp_path, tmp_path / "d")
    assert argv == ["run", str(tmp_path / "d"), "--sealed"] and scrubbed.variables == {"A": "b"}
    before = dict(world.options)
    (tmp_path / "over/a/secret").write_text("changed")
    assert HarnessWorld(read_harness(toml)).options["scrubbing"] != before["scrubbing"]
    assert world.harness.identity["harness"] == before["harness"]


@pytest.mark.parametrize(
    ("files", "outcome", "reason"),
    [
        ({"result.json": {"outcome": 1, "rewards": {"a": None}}}, 1.0, None),
        ({"result.json": {"outcome": None}}, None, "says no outcome"),
        ({"result.json": {"outcome": True}}, None, "is no number"),
        ({"result.json": {"outcome": "1"}}, None, "is no number"),
        ({"result.json": []}, None, "no JSON object"),
        ({"result.json": {"outcome": -1}}, None, "-1 lies outside 0 to 1"),
        ({"result.json": {"outcome": 10**400}}, None, "is no number"),
        ({"result.json": {"outcome": 1, "rewards": {"a": 10**400}}}, None, "is no number"),
        ({"jobs/1/verifier/reward.txt": 100}, None, "100 lies outside 0 to 1"),
        ({"jobs/1/verifier/reward.json": {"reward": 10**400}}, None, "is no reward"),
        ({"jobs/1/verifier/reward.json": {"reward": float("nan")}}, None, "is no reward"),
        ({"jobs/1/verifier/reward.txt": 0.5}, 0.5, None),
        ({"jobs/1/verifier/reward.json": {"reward": 1}}, 1.0, None),
        (
            {"a/verifier/reward.txt": 1, "b/verifier/reward.txt": 1},
            None,
            "handed in no result.json",
        ),
        ({}, None, "handed in no result.json"),
    ],
)
def test_results_are_read_and_never_guessed(
    tmp_path: Path, files: dict[str, object], outcome: float | None, reason: str | None
) -> None:
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(value))
    found = handed_out(tmp_path, "result.json")
    assert found.outcome == outcome
    assert (found.reason is None) if reason is None else (reason in (found.reason or ""))


def test_a_result_counts_before_the_verifier_and_a_difference_stays_visible(tmp_path: Path) -> None:
    verifier = tmp_path / "jobs" / "1" / "verifier"
    verifier.mkdir(parents=True)
    (tmp_path / "result.json").write_text('{"outcome": 0, "rewards": {"style": 1}}')
    for text, said in (
        ("0", {}),
        ("passed", {}),
        ("1", {"result.json": 0, "verifier/reward.txt": 1}),
    ):
        (verifier / "reward.txt").write_text(text)
        found = handed_out(tmp_path, "result.json")
        differ = {f"reward (in {file})": value for file, value in said.items()}
        assert (found.outcome, found.rewards) == (0, {"style": 1, **differ})
