"""`forensics scan` from end to end, on logs whose truth was planted."""

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from forensics import UserError, scan
from forensics.cli.main import run as command
from forensics.records import Step
from forensics.records.case_file import CaseFile
from forensics.records.finding import Finding
from forensics.records.tables import write_trajectories
from forensics.schemas import schemas
from tests.episodes import episode_of
from tests.forensics.reader_files import DATA

PAGES = {"formats": ()}


def episode(side, task, sample, *, won, cheats=False, tried=False, **changes):
    """An episode of a toy world whose planted shortcut is a step that a fake scanner knows."""
    text = "peek" if cheats else "try to peek" if tried else "work"
    steps = (
        Step(role="user", text="solve it"),
        Step(role="assistant", text=text),
        Step(role="tool", text="seen"),
        Step(role="assistant", text=f"answer {task}"),
    )
    known = {"id": f"{task}-{sample}", "task": task, "policy": side, "environment": "toy"}
    known |= {"sample": sample, "steps": steps, "outcome": float(won), "submission": "seen"}
    return episode_of(**{**known, **changes})


def fake_scanner(trajectory):
    """Finds the planted shortcut; looks at the score for the credited link alone."""
    text = trajectory.steps[1].text
    if "peek" in text:
        used = text == "peek"
        yield {
            "family": "planted",
            "channel": "peek",
            "attempt_steps": [1],
            "obtained": used,
            "obtained_steps": [2] if used else [],
            "used": used,
            "credited": used and trajectory.outcome >= 0.5,
            "explanation": "it peeked",
        }


def log(path, side, skill, cheats, *, seed, tasks=400, samples=4):
    """A log in which `cheats` of the runs take a shortcut that always wins, the
    others win at `skill`.
    """
    generator = np.random.default_rng(seed)
    runs = []
    for task in range(tasks):
        for sample in range(samples):
            cheat = generator.random() < cheats
            won = cheat or generator.random() < skill
            runs.append(episode(side, f"task-{task}", sample, won=won, cheats=cheat))
    write_trajectories(path, runs)
    return path


@pytest.fixture
def scanned(tmp_path):
    """Scan two planted policies, each (skill, share of runs that cheat)."""

    def run(before, after, samples=2, tasks=400, **options):
        size = {"samples": samples, "tasks": tasks}
        first = log(tmp_path / "before.parquet", "b", *before, seed=1, **size)
        second = log(tmp_path / "after.parquet", "a", *after, seed=2, **size)
        options = {"scanner": fake_scanner, "out": tmp_path / "case", **PAGES, **options}
        return scan(second, first, **options), tmp_path / "case"

    return run


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        ((0.3, 0.0), (0.3, 0.9), "phantom"),
        pytest.param((0.3, 0.0), (0.7, 0.0), "undetermined", marks=pytest.mark.slow),
        pytest.param((0.3, 0.0), (0.3, 0.0), "noise", marks=pytest.mark.slow),
        ((0.3, 0.5), (0.3, 0.5), "noise"),
        ((0.7, 0.0), (0.3, 0.0), "regression"),
        ((0.3, 0.0), (0.8, 0.5), "mixed"),
        (
            (0.3, 0.0),
            (0.6, 0.9),
            "undetermined",
        ),  # by the before policy's skill phantom, by the after policy's mixed
    ],
)
def test_the_label_of_planted_logs(scanned, before, after, label):
    verdict, _ = scanned(before, after, samples=4, tasks=400 if label == "noise" else 250)
    assert verdict.label == label, verdict.sentence
    assert verdict.basis == "logs" and "From logs alone" in verdict.sentence
    assert verdict.genuine_gain.low <= after[0] - before[0] <= verdict.genuine_gain.high
    assert ("assumption" in verdict.sentence) == (label in ("phantom", "mixed"))


def test_the_case_folder_holds_what_it_promises(scanned):
    verdict, folder = scanned((0.3, 0.0), (0.3, 0.9))
    CaseFile.model_validate_json((folder / "case.json").read_text())
    content = json.loads((folder / "case.json").read_text())
    assert content["status"] == "complete" and content["verdict"]["label"] == "phantom"
    assert content["verdict"]["share_of_wins_via_channel"]["peek"]["estimate"] > 0.8
    rows = [json.loads(line) for line in (folder / "findings.jsonl").read_text().splitlines()]
    assert {row["side"] for row in rows} == {"after-0"} and all(row["complete"] for row in rows)
    assert (
        verdict.label == "phantom" and command(["gate", str(folder), "--require", "phantom"]) == 0
    )
    assert command(["gate", str(folder), "--require", "genuine"]) == 1


def test_the_rows_of_the_scanner_are_what_the_schema_says(tmp_path):
    """With the installed families; unknown and missing keys are refused."""
    line = "```bash\ngit log --all\n```"
    runs = [
        episode(
            "a",
            f"t{n}",
            0,
            won=True,
            environment="mini-swe-agent",
            submission="x = 1",
            steps=(
                Step(role="user", text="Answer with one ```bash block."),
                Step(role="assistant", text=line),
                Step(
                    role="user", text="<returncode>0</returncode>\n<output>\n1234567 fix\n</output>"
                ),
            ),
        )
        for n in range(3)
    ]
    write_trajectories(tmp_path / "a.parquet", runs)
    scan(tmp_path / "a.parquet", out=tmp_path / "case", **PAGES)
    lines = (tmp_path / "case" / "findings.jsonl").read_text().splitlines()
    rows = [Finding.model_validate_json(line) for line in lines]
    assert len(rows) == 3 and all(row.patterns and row.family == "git-history" for row in rows)
    assert set(json.loads(lines[0])) == set(schemas()["Finding"]["properties"])


def test_attempts_widen_the_bounds_and_credits_the_inner_ones(tmp_path):
    """Every win after training tried and none is credited: the inner bounds are
    the gain, the outer reach below 0.
    """
    before = [episode("b", f"t{n}", 0, won=n % 2) for n in range(700)]
    after = [episode("a", f"t{n}", 0, won=True, tried=True) for n in range(700)]
    for name, runs in (("b", before), ("a", after)):
        write_trajectories(tmp_path / f"{name}.parquet", runs)
    verdict = scan(
        tmp_path / "a.parquet",
        tmp_path / "b.parquet",
        out=tmp_path / "c",
        scanner=fake_scanner,
        **PAGES,
    )
    found = {
        row["question"]: row
        for row in map(json.loads, (tmp_path / "c" / "evidence.jsonl").read_text().splitlines())
    }
    assert (
        found["gain.genuine_inner"]["interval"]["low"]
        > 0.3
        > -0.4
        > found["gain.genuine"]["interval"]["low"]
    )
    assert verdict.label == "undetermined" and any(
        "tried a shortcut" in gap.text for gap in verdict.gaps
    )


def test_one_log_alone_is_a_profile_without_a_gain(tmp_path):
    path = log(tmp_path / "after.parquet", "a", 0.3, 0.5, seed=1)
    verdict = scan(path, out=tmp_path / "case", scanner=fake_scanner, **PAGES)
    assert verdict.gain is None and verdict.genuine_gain is None and verdict.label == "undetermined"
    assert (
        "one set of logs" in verdict.sentence
        and verdict.share_of_wins_via_channel["peek"].estimate > 0.5
    )


def test_a_broken_file_is_named_and_counted_and_the_rest_is_read(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    log(logs / "good.parquet", "a", 0.5, 0, seed=1, tasks=5)
    (logs / "cut.parquet").write_bytes((logs / "good.parquet").read_bytes()[:500])
    scan(logs, out=tmp_path / "case", scanner=fake_scanner, **PAGES)
    named = [
        json.loads(line)
        for line in (tmp_path / "case" / "unreadable.jsonl").read_text().splitlines()
    ]
    counts = json.loads((tmp_path / "case" / "case.json").read_text())["provenance"]["logs"][
        "after-0"
    ]
    assert (
        [row["file"] for row in named] == ["cut.parquet"]
        and counts["unreadable"] == 1
        and counts["runs"] == 20
    )


def test_a_folder_is_resumed_only_with_the_same_logs_and_gives_the_same_bytes(scanned, tmp_path):
    scanned = partial(scanned, tasks=40)
    _, folder = scanned((0.3, 0.0), (0.3, 0.9))
    first = {
        name: (folder / name).read_bytes()
        for name in ("case.json", "evidence.jsonl", "findings.jsonl")
    }
    with pytest.raises(UserError, match="not empty"):
        scanned((0.3, 0.0), (0.3, 0.9))
    scanned((0.3, 0.0), (0.3, 0.9), resume=True)
    assert first == {name: (folder / name).read_bytes() for name in first}
    with pytest.raises(UserError, match="with the log of after-0"):
        scanned((0.3, 0.0), (0.9, 0.9), resume=True)
    scanned((0.3, 0.0), (0.3, 0.9), force=True)
    assert first == {name: (folder / name).read_bytes() for name in first}


def test_what_is_no_log_is_refused_in_a_sentence(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing")
    for arguments in (["missing"], ["notes.txt"], ["."]):
        where = [str(tmp_path / arguments[0])]
        out = tmp_path / "case" if arguments != ["."] else tmp_path / "inside"
        assert command(["scan", *where, "--out", str(out)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: ") and "Traceback" not in told and told.count("\n") == 1
        assert not out.exists()


def test_a_scan_loads_no_torch(tmp_path):
    log(tmp_path / "a.parquet", "a", 0.5, 0, seed=1, tasks=5, samples=1)
    program = (
        "import sys; from forensics.cli.main import run; code = run(['scan',"
        f" {str(tmp_path / 'a.parquet')!r}, '--out', {str(tmp_path / 'c')!r}, '--json']);"
        " print(code, sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stderr.splitlines()[-1] == "0 []", done.stderr
    assert json.loads(done.stdout)["verdict"]["label"] == "undetermined"


def test_a_hostile_log_does_no_harm(tmp_path):
    """HTML, escape codes, names that climb out of the folder, and a step of
    many megabytes on one line.
    """
    evil = "<script>window.pwned=1</script>\x1b[31m"
    names = ("../../../etc/passwd", "/tmp/x", evil, "..")
    runs = [
        episode("a", name, 0, won=True, cheats=True, id=f"{name}{n}")
        for n, name in enumerate(names)
    ]
    huge = Step(role="tool", text="<b>" * 800_000)
    runs.append(
        episode(
            "a",
            "huge",
            0,
            won=True,
            cheats=True,
            steps=(*runs[0].steps[:2], huge, runs[0].steps[3]),
        )
    )
    write_trajectories(tmp_path / "a.parquet", runs)
    scan(
        tmp_path / "a.parquet",
        out=tmp_path / "work" / "case",
        scanner=fake_scanner,
        formats=("html", "md"),
    )
    page = (tmp_path / "work" / "case" / "report.html").read_text()
    assert len(page.encode()) < 2_000_000 and page.count("<script>") == 1 and "\x1b" not in page
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["case"] and len(
        list(tmp_path.iterdir())
    ) == 2


@pytest.mark.skipif(
    not (DATA / "gemini3_miniswe").is_dir(), reason="the reference data is not here"
)
def test_real_logs_scan_without_a_flag(tmp_path):
    assert (
        command(["scan", str(DATA / "gemini3_miniswe"), "--out", str(tmp_path / "c"), "--json"])
        == 0
    )
    assert (tmp_path / "c" / "findings.jsonl").stat().st_size > 0
