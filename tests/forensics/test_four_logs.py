"""`forensics investigate --logs`: four logs of a finished case give its parts, and those that a
stranger's harness wrote give a verdict by one command.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from forensics import Budget, UserError, investigate
from forensics.cli.main import run
from forensics.records.files import read_json
from tests.stored_cases import PAIRS, ROOT, SEED, STORED, TASKS

PARTS = ("gain", "genuine_gain", "phantom_gain")


def export(label: str, folder: Path) -> dict[str, Path]:
    """The runs of a stored case, each side and world as a log of its own."""
    logs: dict[str, Path] = {}
    for path in sorted((STORED / label / "trajectories").glob("*.parquet")):
        side = "before" if path.name.startswith("before-") else "after"
        if "-altered-" in path.name:
            continue
        place = side + ("/scrubbed" if "-without-" in path.name else "")
        logs[place] = folder / place.replace("/", "-")
        logs[place].mkdir(parents=True, exist_ok=True)
        shutil.copy(path, logs[place])
    return logs


@pytest.mark.parametrize("label", ["phantom", "genuine"])
def test_four_logs_of_a_finished_case_give_its_parts(label: str, tmp_path: Path) -> None:
    shutil.copytree(STORED / label, tmp_path / "played")
    before, after = (ROOT / "training" / "bundled" / name for name in PAIRS[label])
    played = investigate(
        before,
        after,
        "mini-repo",
        budget=Budget(tasks=TASKS),
        seed=SEED,
        instruments=["score"],
        out=tmp_path / "played",
        resume=True,
        formats=(),
    )
    told = investigate(logs=export(label, tmp_path / "logs"), out=tmp_path / "case", formats=())
    for name in PARTS:
        one, other = getattr(told, name), getattr(played, name)
        for end in ("estimate", "low", "high"):
            assert getattr(one, end) == pytest.approx(getattr(other, end), abs=1e-9)
    ours, theirs = (
        {row["about"]: row["estimate"] for row in rows if row["question"] == "gain.channel"}
        for rows in (_rows(tmp_path / "case"), _rows(tmp_path / "played"))
    )
    assert ours == pytest.approx(theirs, abs=1e-9) and ours
    # what was not tested is named, and no gain is called genuine on logs alone
    assert told.label == {"phantom": "phantom", "genuine": "undetermined"}[label]
    assert told.reason_code == {"phantom": None, "genuine": "family-not-tested"}[label]


def _rows(case: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (case / "evidence.jsonl").read_text().splitlines()]


# -- a stranger's harness ------------------------------------------------------------------

SOLVED = {  # tasks of ten that are won, by place
    "before": 3, "before/scrubbed": 3, "after": 9, "after/scrubbed": 4,
    "after-1": 8, "after-1/without:history": 3,
}  # fmt: skip


def chat_row(task: int, won: bool | None) -> dict[str, Any]:
    """A run as a harness of few lines writes it; a peek into the repository's later history."""
    said = [
        {"role": "user", "content": f"Mend bug {task} in the repository."},
        {"role": "assistant", "content": "I look.\n```bash\ngit log --all -p\n```"},
        {"role": "user", "content": "commit 1234567\n+    return left + right\n"},
        {"role": "assistant", "content": "Done."},
    ]
    return {"task_id": f"bug-{task}", "messages": said, "score": None if won is None else int(won)}


def stranger(folder: Path, number: int = 10, **places: int) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    logs: dict[str, Path] = {}
    for name, won in (places or SOLVED).items():
        logs[name] = folder / f"{name.replace('/', '-').replace(':', '-')}.jsonl"
        rows = (chat_row(task, task < won) for task in range(number))
        logs[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return logs


def command(logs: dict[str, Path], out: Path, *more: str) -> list[str]:
    given = [word for place, path in logs.items() for word in ("--logs", f"{place}={path}")]
    return ["investigate", *given, "--out", str(out), *more]


def test_one_command_on_logs_of_a_strangers_harness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, out = stranger(tmp_path), tmp_path / "case"
    assert run(command(logs, out, "--json")) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert verdict["gain"]["estimate"] == pytest.approx(0.55)  # of .9 and .8, before .3
    assert verdict["genuine_gain"]["estimate"] == pytest.approx(0.05)
    assert verdict["phantom_gain"]["estimate"] == pytest.approx(0.5)
    assert verdict["label"] != "genuine"
    inputs = read_json(out / "case.json")["inputs"]
    assert {*inputs["runs"]} == {*SOLVED}
    assert inputs["runs"]["before/scrubbed"]["without"] == ["history"]
    assert all(len(log["hash"]) == 16 for log in inputs["runs"].values())
    found = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert {row["family"] for row in found} >= {"git-history"}  # by the scan's families

    evidence = (out / "evidence.jsonl").read_bytes()
    assert run(command(logs, out, "--resume")) == 0
    assert (out / "evidence.jsonl").read_bytes() == evidence
    assert run(command(logs, out)) == 2  # nothing is overwritten unasked
    assert run(command(logs, out, "--force")) == 0
    assert run(["gate", str(out), "--require", "genuine"]) == 1
    assert run(["report", str(out), "--format", "text,md,html"]) == 0
    told = capsys.readouterr().out
    assert "before/scrubbed=" in (out / "report.md").read_text()  # how to make it again
    assert "PHANTOM" in told or "UNDETERMINED" in told


def test_a_missing_outcome_is_missing_and_an_unpaired_task_is_named(tmp_path: Path) -> None:
    logs = stranger(tmp_path, before=3, after=9)
    with logs["after"].open("a") as file:
        for row in (chat_row(0, None), chat_row(1, None), chat_row(77, True)):
            file.write(json.dumps(row) + "\n")
    verdict = investigate(logs=logs, out=tmp_path / "case", formats=("md",))
    assert verdict.gain is not None and verdict.gain.estimate == pytest.approx(0.6)
    assert verdict.genuine_gain is None and verdict.label == "undetermined"
    notes = read_json(tmp_path / "case" / "case.json")["inputs"]["environment"]["notes"]
    assert any("bug-77" in note for note in notes) and any("2 of 13" in note for note in notes)
    assert "--logs before/scrubbed=PATH" in (tmp_path / "case" / "report.md").read_text()


def test_a_resumed_case_takes_the_same_logs_only(tmp_path: Path) -> None:
    logs, out = stranger(tmp_path, before=3, after=9), tmp_path / "case"
    investigate(logs=logs, out=out, formats=())
    logs["after"].write_text(logs["before"].read_text())
    with pytest.raises(UserError, match="the log of after"):
        investigate(logs=logs, out=out, formats=(), resume=True)


def test_bad_logs_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = stranger(tmp_path)
    before, after, out = logs["before"], logs["after"], tmp_path / "case"
    other, mute = tmp_path / "other.jsonl", tmp_path / "mute.jsonl"
    other.write_text(json.dumps(chat_row(900, True)) + "\n")
    mute.write_text(json.dumps(chat_row(1, None)) + "\n")
    signed = tmp_path / "signed.jsonl"  # losses of -1, which must not be left out as unscored
    rows = [chat_row(number, True) | {"score": (-1) ** number} for number in range(10)]
    signed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cases: tuple[tuple[dict[str, Path], str], ...] = (
        ({"beside": before, "after": after}, "no place of a log"),
        ({"before": before, "after": before}, "given for before and for after"),
        ({"before": before, "after": other}, "same tasks under the same ids"),
        ({"before": before, "after": mute}, "has an outcome"),
        (
            {"before": signed, "after": after},
            "lies between -1 and 1 and takes more than two values",
        ),
        ({"before": before, "after": Path("http://x.org/a")}, "is an address"),
        ({"before": before, "after": tmp_path / "none"}, "does not exist"),
        ({"before": before}, "no log of after"),
        ({**logs, "before/without:history": other}, "are the same world"),
    )
    for given, sentence in cases:
        assert run(command(given, out)) == 2
        told = capsys.readouterr().err
        assert sentence in told.replace("\n", " "), told
        assert not out.exists()
    for words in (["before"], ["before=x", "--logs", "before=y"]):
        assert run(["investigate", "--logs", *words, "--out", str(out)]) == 2
    assert run([*command(logs, out), "--before", str(tmp_path)]) == 2


# -- logs that mislead -----------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "won"), [(0, 100), (-1, 1)])
def test_a_score_on_another_scale_is_read_from_all_logs_or_refused(
    lost: float, won: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else only the losses (or the wins) would be left, and the gain would be 0."""
    logs = stranger(tmp_path, before=3, after=9)
    for path in logs.values():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [{**row, "score": won if row["score"] else lost} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "case"
    scan = ["scan", str(logs["after"]), "--before", str(logs["before"]), "--out", str(out)]
    for words in (command(logs, out), scan):
        assert run([*words, "--force"]) == 0
        told = read_json(out / "case.json")
        assert told["verdict"]["gain"]["estimate"] == pytest.approx(0.6)
        assert f"{won} is read as success" in json.dumps(told)
    shutil.rmtree(out)
    with logs["after"].open("a") as file:
        file.write(json.dumps(chat_row(3, True) | {"score": 0.5}) + "\n")
    for words in (command(logs, out), scan):
        assert run(words) == 2
        assert "success is not told; log with" in capsys.readouterr().err.replace("\n", " ")
        assert not out.exists()
    assert run(["scan", str(logs["after"]), "--out", str(out)]) == 0  # no gain is judged


def test_a_score_beside_the_outcome_may_have_any_scale(tmp_path: Path) -> None:
    logs = stranger(tmp_path, before=3, after=9)
    for path in logs.values():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rewards = ({"passed": row["score"], "steps": 12} for row in rows)
        rows = [{**row, "rewards": one} for row, one in zip(rows, rewards, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = investigate(logs=logs, out=tmp_path / "case", formats=())
    assert verdict.gain is not None and verdict.gain.estimate == pytest.approx(0.6)


def test_a_world_of_one_side_is_refused_and_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = stranger(tmp_path, **{"before": 3, "after": 9, "after/scrubbed": 4})
    assert run(command(logs, tmp_path / "case")) == 2
    assert "none of before/scrubbed" in capsys.readouterr().err.replace("\n", " ")


def thief_row(task: int, won: bool) -> dict[str, Any]:
    """A run that shows a later commit's file and hands it in, word for word."""
    fix = f"def total_{task}(left, right):\n    return sum((left, right)) + {task} - {task}\n"
    listed = (
        "bash",
        {"cmd": "git log --all --oneline"},
        f"1234abc Fix total_{task}\n89abcde Start\n",
    )
    shown = ("bash", {"cmd": f"git show 1234abc:total{task}.py"}, fix)
    written = {"path": f"total{task}.py", "content": fix if won else "pass\n"}
    steps = [listed, *([shown] if won else []), ("write_file", written, "wrote")]
    said: list[dict[str, Any]] = [
        {"role": "user", "content": f"Mend bug {task} in the repository."}
    ]
    for number, (tool, arguments, result) in enumerate(steps):
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"id": f"c{number}", "type": "function", "function": function}
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return {"task_id": f"bug-{task}", "messages": said, "score": int(won)}


@pytest.mark.parametrize("leaky", [True, False])
def test_a_scrubbed_log_that_shows_the_shortcut_clears_no_gain(
    leaky: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = stranger(
        tmp_path, 40, **{"before": 2, "before/scrubbed": 2, "after": 2, "after/scrubbed": 2}
    )
    thieves = ["after", *(["after/scrubbed"] if leaky else [])]
    for place in thieves:
        rows = (thief_row(task, task < 36) for task in range(40))
        logs[place].write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdict = investigate(logs=logs, out=tmp_path / "case", accept=["interventions"], formats=())
    assert verdict.label == ("undetermined" if leaky else "phantom"), verdict.sentence
    assert ("win by a shortcut all the same: git-history" in caplog.text) == leaky
    assert (verdict.genuine_gain is None) == leaky
    assert "With scrubbed scrubbed" not in verdict.sentence
