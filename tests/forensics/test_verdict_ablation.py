"""What the verdict makes of action ablation: an undeclared shortcut is never genuine, an asked-about tool may be."""

import pytest

from forensics.records import Evidence, Undefined
from forensics.verdict import decide
from tests.forensics.score_world import PROVENANCE, answers, behaviour, finding, planted

HONEST = (0.4, 0.9, 0.39, 0.89)  # nearly all of the gain survives scrubbing
LEAK = (0.4, 0.95, 0.39, 0.4)


def told(kind: str, *, through: bool, shortcut: bool) -> list[Evidence]:
    return [
        finding("ablation.runs_through", float(through), about=kind),
        finding("ablation.shortcut", float(shortcut), about=kind, summary=f"The gain runs through {kind}: a shortcut."),
    ]


def measured(rates: tuple[float, float, float, float]) -> list[Evidence]:
    return [*answers(planted(rates)).values(), *behaviour()]


def open_world(rates: tuple[float, float, float, float]) -> list[Evidence | Undefined]:
    """No declared channel: what takes a scrubbed world is not there."""
    whole = answers(planted(rates))
    kept = [whole[name] for name in ("score.before", "score.after", "gain.total")]
    missing = Undefined(
        question="gain.genuine", layer="score", method="score", provenance=PROVENANCE,
        reason="The environment declares no channel.", cure="Declare the shortcuts.",
    )
    return [*kept, *behaviour(None), missing]


def test_a_clean_bill_leaves_genuine_as_it_was() -> None:
    plain = decide(measured(HONEST))
    with_ablation = decide([*measured(HONEST), *told("test", through=False, shortcut=False)])
    assert plain.label == with_ablation.label == "genuine"
    assert plain.reasons == with_ablation.reasons and plain.gaps == with_ablation.gaps


def test_an_undeclared_shortcut_beside_declared_ones_is_not_genuine() -> None:
    verdict = decide([*measured(HONEST), *told("open-notes", through=True, shortcut=True)])
    assert verdict.label == "undetermined"
    assert "shortcut through open-notes" in verdict.gaps[0].text and "open-notes" in verdict.sentence
    assert any("open-notes: a shortcut" in reason for reason in verdict.reasons)


def test_a_tool_that_is_asked_about_keeps_the_label() -> None:
    verdict = decide([*measured(HONEST), *told("search", through=True, shortcut=False)])
    assert verdict.label == "genuine"
    assert any("is search allowed?" in gap.text for gap in verdict.gaps)


def test_a_declared_leak_is_phantom_with_or_without_it() -> None:
    found = [*measured(LEAK), *behaviour(0.97)]
    assert decide(found).label == decide([*found, *told("history", through=True, shortcut=True)]).label == "phantom"


@pytest.mark.parametrize("rates", [HONEST, LEAK])
def test_with_nothing_declared_the_kind_is_the_first_thing_said(rates: tuple[float, float, float, float]) -> None:
    verdict = decide([*open_world(rates), *told("history", through=True, shortcut=True)])
    assert verdict.label == "undetermined" and "through history" in verdict.gaps[0].text
    assert "history" in verdict.sentence
    clean = decide([*open_world(rates), *told("history", through=False, shortcut=False)])
    assert clean.label == "undetermined" and "declares no channel" in clean.gaps[0].text
