"""The Python of the documentation runs as it stands, block after block, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def run_page(name: str, folder: Path) -> str:
    """Runs the Python of a page and returns what it printed."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    (folder / "page.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("training.md", ("token-mean", "dr-grpo", "signal.revived_correlation")),
        ("resampling.md", (" drop 0.",)),
        (
            "grades.md",
            ("progress advantage AUROC 0.", "edit-file ", "git-history with an AUROC of "),
        ),
    ],
)
def test_the_page_runs(name: str, says: tuple[str, ...], tmp_path: Path) -> None:
    printed = run_page(name, tmp_path)
    for said in says:
        assert said in printed
    if name == "training.md":
        assert (tmp_path / "preferred" / "checkpoint" / "model.safetensors").is_file()
        assert (tmp_path / "run" / "record").is_dir()
        assert (tmp_path / "run" / "checkpoint" / "model.safetensors").is_file()


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
