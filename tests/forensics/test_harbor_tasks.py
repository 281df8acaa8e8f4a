"""Folders of Harbor tasks: read, told apart, overlaid, and one whose tests run here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from forensics import UserError
from forensics.harbor_tasks import (
    compare_folders,
    difference_sentences,
    harbor_tasks,
    overlaid,
    read_reward,
)

FILES = {
    "task.toml": '[metadata]\nsplit = "{split}"\n',
    "instruction.md": "Write {number} into answer.txt.\n",
    "environment/Dockerfile": "FROM scratch\nCOPY hint.txt /\n",
    "environment/hint.txt": "it is {number}\n",
    "tests/test.sh": (
        'mkdir -p "$LOGS/verifier"\n'
        'if [ "$(cat answer.txt)" = {number} ]; then echo 1; else echo 0; fi'
        ' > "$LOGS/verifier/reward.txt"\n'
    ),
    "solution/solve.sh": "echo {number} > answer.txt\n",
}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    for number, split in ((3, "train"), (5, "held-out"), (8, "held-out")):
        for name, text in FILES.items():
            path = tmp_path / "open" / "tasks" / f"write-{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(number=number, split=split))
    return tmp_path / "open"


def test_tasks_have_names_prompts_splits_and_contents(tasks: Path, tmp_path: Path) -> None:
    found = harbor_tasks(tasks)
    assert [one.id for one in found] == ["write-3", "write-5", "write-8"]
    assert [one.split for one in found] == ["train", "held-out", "held-out"]
    assert found[1].prompt == "Write 5 into answer.txt.\n"
    contents = [one.content for one in found]
    assert len(set(contents)) == 3
    moved = tasks.rename(tmp_path / "elsewhere")
    assert [one.content for one in harbor_tasks(moved)] == contents
    (moved / "tasks" / "write-5" / "tests" / "test.sh").chmod(0o755)
    assert harbor_tasks(moved)[1].content != contents[1]


def test_a_git_folder_of_an_overlay_takes_the_place_of_the_one_there(
    tasks: Path, tmp_path: Path
) -> None:
    """Merged, the tag of the open repository would still lead to the fix."""

    def git(*words: str) -> str:
        given = ("-c", "user.name=dev", "-c", "user.email=dev@x.org", *words)
        return subprocess.run(
            ["git", "-C", str(repo), *given], check=True, capture_output=True, text=True
        ).stdout

    repo = tasks / "tasks" / "write-8" / "environment" / "repo"
    repo.mkdir()
    git("init", "-q")
    (repo / "kept.txt").write_text("kept")
    git("add", ".")
    git("commit", "-qm", "Start")
    shutil.copytree(repo, tmp_path / "overlay" / "write-8" / "environment" / "repo")
    git("commit", "-q", "--allow-empty", "-m", "Fix")
    git("tag", "v2")
    assert "Fix" in git("log", "--all")
    overlaid(tasks, tmp_path / "overlay", tmp_path / "twin")
    repo = tmp_path / "twin" / "write-8" / "environment" / "repo"
    assert "Start" in git("log", "--all") and "Fix" not in git("log", "--all")
    assert git("tag") == "" and (repo / "kept.txt").read_text() == "kept"


def test_an_overlay_makes_the_twin_and_what_differs_is_told(tasks: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    (overlay / "environment").mkdir(parents=True)
    (overlay / "environment" / "hint.txt").write_text("ask nobody\n")
    (overlay / "write-8" / "tests").mkdir(parents=True)
    (overlay / "write-8" / "tests" / "test.sh").write_text("echo 1\n")
    twin = overlaid(tasks, overlay, tmp_path / "scrubbed")
    found = compare_folders(tasks, twin)
    assert [one.changed for one in found[:2]] == [("environment/hint.txt",)] * 2
    assert [one.job for one in found] == [(), (), ("tests/test.sh",)]
    unfair, told = difference_sentences(found)
    assert unfair.startswith("the twin of write-8 changes the job itself (tests/test.sh)")
    assert told == "2 files differ: environment/hint.txt, tests/test.sh"
    same = difference_sentences(compare_folders(tasks, tasks))
    assert same == ("nothing was taken out of 3 of 3 tasks, first write-3",)
    with pytest.raises(UserError, match="exists already"):
        overlaid(tasks, overlay, twin)


@pytest.mark.parametrize(("does", "reward"), [("solution/solve.sh", 1.0), ("nothing.sh", 0.0)])
def test_a_task_is_played_without_a_container(
    does: str, reward: float, tasks: Path, tmp_path: Path
) -> None:
    task, work, logs = harbor_tasks(tasks)[0], tmp_path / "work", tmp_path / "logs"
    work.mkdir()
    assert read_reward(logs) == (None, {})
    for script in (does, "tests/test.sh"):
        if (task.folder / script).is_file():
            given = os.environ | {"LOGS": str(logs)}
            subprocess.run(
                ["bash", task.folder / script], cwd=work, env=given, stderr=subprocess.DEVNULL
            )
    assert read_reward(logs) == (reward, {"reward": reward})


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"reward": 0.5, "style": 1}', (0.5, {"reward": 0.5, "style": 1.0})),
        ('{"a": 1, "b": 0}', (None, {"a": 1.0, "b": 0.0})),
        ('{"only": null}', (None, {"only": None})),
    ],
)
def test_named_rewards(text: str, read: object, tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "reward.json").write_text(text)
    assert read_reward(tmp_path) == read


def test_of_two_reward_files_that_differ_the_first_counts_and_both_are_kept(tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "reward.json").write_text('{"accuracy": 0}')
    for text, differ in (("0", {}), ("none", {}), ("1", {"json": 0, "txt": 1})):
        (tmp_path / "verifier" / "reward.txt").write_text(text)
        kept = {f"reward (in verifier/reward.{end})": value for end, value in differ.items()}
        assert read_reward(tmp_path) == (0, {"accuracy": 0, **kept})


def test_bad_folders_are_one_sentence(tasks: Path, tmp_path: Path) -> None:
    def refusal(act: object, *given: object) -> str:
        with pytest.raises(UserError) as error:
            act(*given)  # type: ignore[operator]
        return str(error.value)

    one = tasks / "tasks" / "write-3"
    assert "is no folder" in refusal(harbor_tasks, tmp_path / "nowhere")
    assert "give the folder above it" in refusal(harbor_tasks, one)
    assert "no folders with a task.toml; give a folder" in refusal(harbor_tasks, one / "tests")
    assert "http://x/y is no folder on" in refusal(harbor_tasks, Path("http://x/y"))
    odd = tmp_path / "odd"
    (odd / "hints").mkdir(parents=True)
    assert "hints in the overlay is neither" in refusal(overlaid, tasks, odd, tmp_path / "x")
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "reward.txt").write_text("passed")
    assert "holds 'passed', which is no reward" in refusal(read_reward, tmp_path)
    (one / "task.toml").write_text("[metadata]\nsplit = 'test'\n")
    assert "write-3 cannot be used (there is no split 'test'" in refusal(harbor_tasks, tasks)
    (one / "instruction.md").unlink()
    assert "write-3 has no instruction.md" in refusal(harbor_tasks, tasks)
