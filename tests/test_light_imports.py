"""What loads no heavy library, each in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIGHT = {
    "forensics": "torch numpy scipy pydantic",
    "forensics.policies.checkpoints": "torch transformers pyarrow",
    "probes.grades.commands": "torch transformers",
    "forensics.report": "torch matplotlib scipy jinja2 rich",
}


@pytest.mark.parametrize("name", LIGHT)
def test_no_heavy_library_is_loaded(name: str) -> None:
    code = f"import sys, {name}; print({{*{LIGHT[name].split()}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# a machine without what `[models]` brings: nothing of it can be found
BARE = """
import sys
from importlib.machinery import PathFinder
from forensics.errors import MODELS

found = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *more: None if name.partition(".")[0] in MODELS else found(name, *more)
)
from forensics.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], capture_output=True, text=True, check=False
    )


def test_logs_need_no_models(tmp_path: Path) -> None:
    """`scan`, `investigate --logs`, `report` and `gate`; what opens a model says what it needs."""
    row = {"prompt": "What is 2 + 2?", "completion": "4", "task": "{}", "reward": 1.0}
    for side, score in (("before", 0.0), ("after", 1.0)):
        rows = [row | {"task": f"t-{task}", "reward": score} for task in range(30)]
        (tmp_path / f"{side}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    logs = [f"--logs={side}={tmp_path / side}.jsonl" for side in ("before", "after")]
    scan, case = str(tmp_path / "scan"), str(tmp_path / "case")
    done = bare("scan", str(tmp_path / "after.jsonl"), "--out", scan)
    assert done.returncode == 0, done.stderr
    done = bare("investigate", *logs, "--out", case)
    assert done.returncode == 0, done.stderr
    for folder, left in ((scan, ""), (case, "Left out: cliffs, grades, kl and linear;")):
        done = bare("report", folder, "--format", "text,md,html")
        assert done.returncode == 0 and left in done.stdout, done.stderr
        assert bare("gate", folder).returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["investigate", "--before", "a", "--after", "b", "--env", "prompts", "--out", "o"],
        ["train", "no-recipe.toml", "--out", "o"],
        ["organism", "build", "leak", "--out", "o"],
    ],
    ids=lambda words: words[0],
)
def test_what_opens_models_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    done = bare(*words)
    assert done.returncode == 2
    assert "torch, which is not installed; `pip install 'policy-forensics[models]'`" in done.stderr


def test_every_help_needs_no_models() -> None:
    told = bare("--help").stdout.partition("Commands:")[2]
    names = re.findall(r"^  ([a-z-]+)  ", told, re.MULTILINE)
    assert len(names) > 15
    each = BARE.replace("run(sys.argv[1:])", f"any(run([name, '--help']) for name in {names})")
    done = subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
