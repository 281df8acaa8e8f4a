"""Packages of strangers, installed as their users would install them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def installed_package(source: Path, folder: Path) -> Path:
    """The package in `source`, installed into a folder of its own."""
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(source, folder / "source", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    target = ["--disable-pip-version-check", "--no-build-isolation"]
    target += ["--target", str(folder / "site")]
    subprocess.run([*pip, *target, str(copy)], check=True)
    return folder / "site"


def python_beside(site: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own that has this repository and `site` on its path."""
    path = os.pathsep.join(str(place) for place in (ROOT, site) if place)
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        cwd=site or ROOT,
        check=False,
    )
