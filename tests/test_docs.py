"""The Python of the documentation runs as it stands, block after block, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.timeout(1800)
def test_the_training_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "training.md").read_text(), re.DOTALL)
    assert len(blocks) > 3
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=1500,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "preferred" / "checkpoint" / "model.safetensors").is_file()
    assert (tmp_path / "run" / "record").is_dir() and (tmp_path / "run" / "checkpoint" / "model.safetensors").is_file()
    for said in ("token-mean", "dr-grpo", "signal.revived_correlation"):
        assert said in done.stdout


def test_the_resampling_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "resampling.md").read_text(), re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=1500,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert " drop 0." in done.stdout


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
