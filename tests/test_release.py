"""What stands beside the package says the same as the package."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def test_the_version_is_one() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == PROJECT["version"]
    assert f"is {PROJECT['version']} (" in (ROOT / "CHANGELOG.md").read_text()


def test_what_models_need_is_an_extra() -> None:
    from forensics.errors import MODELS

    extra = {re.split(r"[\[<>=]", one)[0].replace("-", "_") for one in
             PROJECT["optional-dependencies"]["models"]}  # fmt: skip
    assert extra == {*MODELS} - {"accelerate"}  # which comes with transformers[torch]
    base = {re.split(r"[\[<>=]", one)[0].replace("-", "_") for one in PROJECT["dependencies"]}
    assert not base & extra


@pytest.mark.parametrize("logs", [True, False])
def test_the_action_scans_and_gates(logs: bool, tmp_path: Path) -> None:
    """Its own steps, by the shell, on a log and on the case that the first one wrote."""
    row = '{"prompt": "What is 2 + 2?", "completion": "4", "reward": 1.0}\n'
    (tmp_path / "log.jsonl").write_text(row * 3)
    (scan,) = (step["run"] for step in ACTION["runs"]["steps"] if "scan" in step.get("run", ""))
    (gate,) = (step["run"] for step in ACTION["runs"]["steps"] if "gate" in step.get("run", ""))
    inputs = {name: one["default"] for name, one in ACTION["inputs"].items()}
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "LOGS": "log.jsonl",
        "BEFORE": "",
        "OUT": inputs["out"],
        "CASE": inputs["out"],
        "REQUIRE": inputs["require"] if logs else "undetermined",
    }
    for script, code in ((scan, 0), (gate, int(logs))):
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True
        )
        assert done.returncode == code, done.stderr
    assert (tmp_path / "summary.md").read_text().startswith("# ")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Strictly: each link and anchor between the pages is there, each page in the navigation."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    told = (tmp_path / "site/llms.txt").read_text()
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages == {*re.findall(r"\((.+)/index\.html\)", told)}
    listed = {line.split(":")[-1].strip() for line in (ROOT / "mkdocs.yml").read_text().split("\n")}
    assert {f"{page}.md" for page in pages} <= listed
    index = (tmp_path / "site/index.html").read_text()
    assert 'href="verdict/"' in index and "docs/" not in re.sub(r"<code>.*?</code>", "", index)
