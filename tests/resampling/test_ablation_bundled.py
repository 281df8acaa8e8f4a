"""Action ablation on the bundled checkpoints: with its channel declared,
undeclared, and from the command line.
"""

from pathlib import Path

import pytest

from forensics import Budget, investigate
from forensics.records import Evidence
from forensics.records.files import read_findings
from tests.resampling.undeclared import Undeclared
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import BUNDLED

LEAK = BUNDLED / "capped-base", BUNDLED / "leak"


def shortcuts(folder: Path) -> set[str | None]:
    found = read_findings(folder / "evidence.jsonl")
    return {
        one.about
        for one in found
        if isinstance(one, Evidence) and one.question == "ablation.shortcut" and one.estimate == 1
    }


@pytest.mark.slow
def test_undeclared_it_is_not_genuine_and_the_kind_is_named(tmp_path: Path) -> None:
    world = Undeclared(MiniRepo(world="capped"), "git-history")
    assert world.channels == () and world.without("git-history").scrubbed == ()
    verdict = investigate(
        *LEAK, world, budget=Budget(tasks=60), out=tmp_path / "case", device="cpu"
    )
    assert verdict.label == "undetermined" and shortcuts(tmp_path / "case") == {"history"}
    assert "history" in verdict.gaps[0].text and "history" in verdict.sentence


def test_the_wrapper_hides_what_it_should_and_nothing_else() -> None:
    world = Undeclared(MiniRepo(world="capped", channels="answer-file,git-history"), "git-history")
    assert [channel.name for channel in world.channels] == ["answer-file"]
    scrubbed = world.without("answer-file", "git-history")
    name = world.tasks("held-out", 1, 0)[0]
    for one, notes in ((world, ("answer-file",)), (scrubbed, ())):
        one.reset(name, 0)
        shown = one.step("history")
        assert shown.channels == () and "fix" in shown.observation and shown.kinds == ("history",)
        assert one.step("open notes").channels == notes
    assert scrubbed.scrubbed == ("answer-file",)
