"""Options that commands share as one: each flag changes the field that it
names, and nothing else.
"""

import re
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import typer

from forensics.cli.options import Run, Sampling, study_command
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.version import today

GIVEN = {
    "--out": ("there", "out", Path("there")),
    "--seed": ("7", "seed", 7),
    "--device": ("cpu", "device", "cpu"),
    "--backend": ("nnsight", "backend", "nnsight"),
    "--resume": (None, "resume", True),
    "--force": (None, "force", True),
    "--json": (None, "as_json", True),
    "--temperature": ("0.5", "temperature", 0.5),
    "--top-k": ("3", "top_k", 3),
    "--top-p": ("0.9", "top_p", 0.9),
    "--repetition-penalty": ("1.1", "repetition_penalty", 1.1),
    "--presence-penalty": ("0.2", "presence_penalty", 0.2),
    "--frequency-penalty": ("0.3", "frequency_penalty", 0.3),
    "--max-turn-tokens": ("5", "max_turn_tokens", 5),
    "--max-tokens": ("99", "max_tokens", 99),
}


def names(kind):
    return [field.name for field in fields(kind)]


def asked(*arguments):
    """What a command gets, as one flat dict."""
    found = []

    @study_command
    def command(name: str = "plain", settings: Any = None, *, run: Run) -> None:
        found.append((name, settings, run))

    app = typer.Typer()
    app.command()(command)
    app(["--out", "here", *arguments], standalone_mode=False)
    ((name, settings, run),) = found
    assert name == "plain" and isinstance(settings, SamplingSettings)
    return {**asdict(run), **{name: getattr(settings, name) for name in names(Sampling)}}


@pytest.mark.parametrize("flag", GIVEN)
def test_each_flag_changes_what_it_names(flag):
    value, field, expected = GIVEN[flag]
    plain, changed = asked(), asked(flag, *([value] if value else []))
    assert plain[field] != changed[field] == expected
    assert {name for name in plain if plain[name] != changed[name]} == {field}


def test_no_option_is_left_out():
    assert {field for _, field, _ in GIVEN.values()} == {*names(Run), *names(Sampling)}
    assert asked() == asdict(Run(out=Path("here"))) | asdict(SamplingSettings())


def test_something_is_said_before_the_libraries_are_loaded(tmp_path: Path) -> None:
    words = ["investigate", "--before", "b", "--after", "a", "--env", "mini-repo", "--out", "o"]
    program = "import sys; from forensics.cli.main import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = r"Loading the libraries\.\n(Loading the libraries, \d+ s\.\n)*error: "
    assert done.returncode == 2 and re.match(told, done.stderr)


def test_the_day_is_that_of_the_environment_or_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert today() == "1970-01-02"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "noon")
    with pytest.raises(UserError, match="seconds since 1970"):
        today()
