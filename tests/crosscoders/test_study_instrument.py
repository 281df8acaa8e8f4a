"""What the case report says of a diff: its figures with their controls, and
`Undefined` with the cure without one.
"""

from dataclasses import replace

import pytest

from crosscoders.study.diff_files import BASELINES, DIFF, STEERING
from crosscoders.study.instrument import ABLATED, SEPARATING, features
from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.records import Undefined
from forensics.records.files import read_json, write_json
from tests.crosscoders.study_folder import steering, written
from tests.subjects import loaded

THEME = {"name": "history", "kinds": ["history"], "before": 0.1, "after": 0.9}


@pytest.fixture
def case(tmp_path):
    folder = written(tmp_path / "case", theme=THEME, after="a" * 16, tasks=40, where="output")
    write_json(
        folder / "controls.json",
        [{"name": "same-model pair", "found": "none", "expected": "", "share": 0.0}],
    )
    write_json(
        folder / STEERING,
        {
            "measure": "channel:history",
            "level": 0.95,
            "rows": [steering("features", 1.0, 0.2)],
            "summary": {
                "moved": {"estimate": 0.8, "low": 0.7, "high": 0.9},
                "p_value": 0.05,
                "random_directions": [0.0] * 20,
                "moved_missing": None,
            },
        },
    )
    load, identities = lambda: None, {"before": "b" * 16, "after-0": "a" * 16}
    return Case(folder=folder, subjects=loaded(dict.fromkeys(identities, load), identities))


def answers(case):
    return {answer.question: answer for answer in run_instrument(features, case)}


def test_specific_latents_that_separate_are_counted_beside_their_control(case):
    found = answers(case)[SEPARATING]
    assert (found.estimate, found.about, found.n, found.clusters) == (1.0, "history", 5, 40)
    assert found.diagnostics["separating"] == 2 and found.diagnostics["tested"] == 4
    assert found.control.estimate == 0.0
    assert [row[0] for row in found.artifacts[0].rows] == [3, 1]
    assert "re-weighting at the output" in found.summary
    beside = found.artifacts[1]
    assert beside.rows[0] == ("dictionary", 0.625, 12.34, "latent 3", 0.91, 0.85, 0.96)
    assert beside.rows[1][1] is None and beside.rows[1][-1] is None
    (case.folder / BASELINES).unlink()
    assert len(answers(case)[SEPARATING].artifacts) == 1


def test_what_ablation_moves_is_told_beside_random_directions(case):
    found = answers(case)[ABLATED]
    assert (found.estimate, found.interval.low, found.interval.high) == (0.8, 0.7, 0.9)
    assert (found.clusters, found.control.p_value) == (50, 0.05)
    assert "20 random directions" in found.control.name and "Ablating latent 3" in found.summary
    assert "80 % of the way to the other policy" in found.summary
    steered = read_json(case.folder / STEERING)
    steered["summary"]["moved"] = {"estimate": -2.46, "low": -3.0, "high": -2.0}
    write_json(case.folder / STEERING, steered)
    said = answers(case)[ABLATED].summary
    assert "the other way by more than all of the way" in said and "246" not in said


@pytest.mark.parametrize("harm", ["none", "other", "broken", "logs"])
def test_without_a_diff_of_this_pair_both_are_undefined(case, harm):
    path = case.folder / DIFF
    if harm == "none":
        path.unlink()
    elif harm == "other":
        write_json(path, read_json(path) | {"after": "c" * 16})
    elif harm == "broken":
        path.write_text("{")
    else:
        case = replace(case, subjects=())
    found = answers(case)
    assert set(found) == {SEPARATING, ABLATED}
    assert all(
        isinstance(answer, Undefined) and "forensics diff" in answer.cure
        for answer in found.values()
    )
    assert (
        len({(answer.layer, answer.reason, answer.cure) for answer in found.values()}) == 1
    )  # a report says it once
