"""Options that commands share as one: each flag changes the field that it
names, and nothing else.
"""

from dataclasses import asdict

import pytest
import typer

from forensics.cli.options import RUN, SAMPLING, Run, with_run
from forensics.protocols import SamplingSettings

GIVEN = {
    "--seed": ("7", "seed", 7),
    "--device": ("cpu", "device", "cpu"),
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


def asked(*arguments):
    """What a command gets, as one flat dict."""
    found = []

    @with_run
    def command(name: str = "plain", *, run: Run) -> None:
        found.append((name, run))

    app = typer.Typer()
    app.command()(command)
    app(list(arguments), standalone_mode=False)
    ((name, run),) = found
    assert name == "plain" and isinstance(run.settings, SamplingSettings)
    return {**asdict(run), **{name: getattr(run.settings, name) for name in SAMPLING}}


@pytest.mark.parametrize("flag", GIVEN)
def test_each_flag_changes_what_it_names(flag):
    value, field, expected = GIVEN[flag]
    plain, changed = asked(), asked(flag, *([value] if value else []))
    assert plain[field] != changed[field] == expected
    assert {name for name in plain if plain[name] != changed[name]} - {"settings"} == {field}


def test_no_option_is_left_out():
    assert {field for _, field, _ in GIVEN.values()} == set(RUN)
    assert {name: plain for name, plain in asked().items() if name in RUN} == {
        name: d for name, (d, _) in RUN.items()
    }
