"""What a harness calls needed is held to what its runs did."""

from types import SimpleNamespace
from typing import Any

import pytest

from forensics.world import PlayedElsewhere
from resampling.ablation.gains import AblationConfig
from resampling.ablation.refusal import AblationStudy


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_needed_kind_of_an_agent_that_no_run_did_is_told(
    elsewhere: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`needed = ["write_file"]` would else refuse `edit`, which is what that tool is called."""
    world: Any = PlayedElsewhere("theirs", {"held-out": ["one", "two"]})
    world.needed = ("submit", "write_file")
    study: Any = AblationStudy(
        case=SimpleNamespace(environment=world if elsewhere else None, allowed=()),  # type: ignore
        config=AblationConfig(),
        world=(),
        plain=SimpleNamespace(kinds=("edit", "submit", "x + y")),  # type: ignore[arg-type]
        evidence=SimpleNamespace(not_jointly=lambda *told: told),  # type: ignore[arg-type]
    )
    list(study.kinds())
    told = "`needed` names write_file, which no run did" in caplog.text
    assert told == elsewhere and ("edit, submit" in caplog.text) == elsewhere
