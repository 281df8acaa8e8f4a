"""Blind play and the audit accuse nobody on the bundled honest pair, and play nothing."""

import pytest

from forensics.case import Budget, Case
from forensics.instruments import Instrument, run_instrument
from forensics.investigation.inputs import CaseRequest, check_inputs
from forensics.records import Evidence
from resampling.gain_tests.audit import audit
from resampling.gain_tests.blind_play import blind_play
from tests.stored_cases import PAIRS, SEED, TASKS, played, unfold
from training.organisms.organism import BUNDLED


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("honest") / "case"
    unfold("genuine", folder)
    before, after = (BUNDLED / name for name in PAIRS["genuine"])
    request = CaseRequest(
        before=before,
        after=after,
        environment="mini-repo",
        seed=SEED,
        budget=Budget(tasks=TASKS),
        device="cpu",
    )
    return check_inputs(request).case(folder)


@pytest.mark.parametrize("tool", [blind_play.configured(rounds=2), audit], ids=lambda one: one.name)
def test_the_honest_pair_is_not_accused(honest: Case, tool: Instrument) -> None:
    before = played(honest.folder)
    bar = next(
        one for one in run_instrument(tool, honest) if one.question == f"{tool.name}.over_bar"
    )
    assert isinstance(bar, Evidence) and bar.interval is not None
    assert bar.interval.high < 0 and bar.clusters == TASKS
    assert abs(float(bar.diagnostics["carried"] or 0)) < 0.011
    assert played(honest.folder) == before
