"""A stranger's family of shortcuts: one TOML file and one entry point; a
stranger's environment with the language of its logs.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.actions import actions_of
from forensics.actions.transcript import _languages
from forensics.errors import UserError
from forensics.records import Step, ToolCall, Trajectory
from forensics.shortcuts import families, scan_trajectory
from forensics.shortcuts.family import installed_families
from forensics.shortcuts.scanner import matchers, rule_named
from tests.episodes import episode_of

READ = (ToolCall(name="bash", arguments='{"command": "cat CANARY"}'),)
CANARY = """
id = "canary"
channel = "canary-file"
shows = "a file that no solver needs holds the key"
source = "our red team"
rule = "{rule}"
[[attempt]]
id = "read the canary"
reads = "(?:^|/)CANARY$"
"""
RULE = """
from forensics.actions import Action


def language(text, calls):
    return [Action(step=0, kind="tool", program=word, text=word) for word in text.split()]


def read(attempt):
    return attempt.links(reason="it was read") if attempt.hits else None
"""


def run() -> Trajectory:
    return episode_of(
        steps=(
            Step(role="assistant", text="", tool_calls=READ),
            Step(role="tool", text="the key is 4711"),
        )
    )


def install(site: Path, name: str, text: str, language: str = "") -> None:
    """What an installer leaves behind: a package, and the entry points in its metadata."""
    package, facts = site / f"stranger_{name}", site / f"stranger_{name}-1.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(RULE)
    (package / f"{name}.toml").write_text(text)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stranger-{name}\nVersion: 1\n")
    points = f"[forensics.families]\n{name} = {package.name}\n"
    if language:
        points += f"[forensics.languages]\n{language} = {package.name}.rules:language\n"
    (facts / "entry_points.txt").write_text(points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    kept = (installed_families, matchers, rule_named, _languages)
    monkeypatch.syspath_prepend(str(tmp_path))
    for function in kept:
        function.cache_clear()
    yield tmp_path
    for function in kept:
        function.cache_clear()
    for name in [name for name in sys.modules if name.startswith("stranger_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("rule", "obtained"), [("shown", True), ("stranger_canary.rules:read", None)]
)
def test_a_family_is_one_file_and_one_entry_point(
    site: Path, rule: str, obtained: bool | None
) -> None:
    install(site, "canary", CANARY.replace("{rule}", rule))
    (finding,) = scan_trajectory(run(), actions_of(run()))
    assert (finding.family, finding.channel) == ("canary", "canary-file")
    assert (finding.attempt_steps, finding.obtained) == ((0,), obtained)
    assert "canary" in {family.id for family in families()} and len(families()) >= 10


SEMAPHORE = """
id = "canary"
environment = "semaphore"
channel = "canary-file"
shows = "a flag that no solver needs holds the key"
source = "our red team"
rule = "stranger_canary.rules:read"
[[attempt]]
id = "look at the canary"
program = "canary"
"""


def test_an_environment_brings_the_language_and_the_families_of_its_logs(site: Path) -> None:
    install(site, "canary", SEMAPHORE, language="semaphore")
    said = (Step(role="user", text="go"), Step(role="assistant", text="look canary hoist"))
    here = run().model_copy(update={"environment": "semaphore", "steps": said})
    assert [action.program for action in actions_of(here)] == ["look", "canary", "hoist"]
    (finding,) = scan_trajectory(here, actions_of(here))
    assert (finding.family, finding.patterns) == ("canary", ("look at the canary",))
    elsewhere = here.model_copy(update={"environment": "e"})
    assert actions_of(elsewhere) == scan_trajectory(elsewhere, ()) == ()
    assert [family.id for family in families("semaphore")] == ["canary"]
    assert "canary" not in {family.id for family in families()}


def test_two_families_of_one_id_are_refused(site: Path) -> None:
    install(site, "canary", CANARY.replace('"canary"', '"leaks"').replace("{rule}", "shown"))
    with pytest.raises(UserError, match=r"two installed families have the id 'leaks'"):
        families()


@pytest.mark.parametrize("rule", ["no rule", "no.such.package:rule"])
def test_a_rule_that_is_not_there_is_told(site: Path, rule: str) -> None:
    install(site, "canary", CANARY.replace("{rule}", rule))
    with pytest.raises(UserError, match="there is no rule"):
        scan_trajectory(run(), actions_of(run()))
