"""What loads no heavy library, each in a process of its own."""

import subprocess
import sys

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
