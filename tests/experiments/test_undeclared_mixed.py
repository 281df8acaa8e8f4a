"""The decision of the study of `mixed`: on both sides of its bar, and its table."""

from experiments.undeclared_shortcuts.mixed.__main__ import decision, markdown, row
from forensics.verdict import decide
from tests.forensics.score_world import finding
from tests.forensics.test_verdict_ablation import HONEST, jointly, measured, tested


def rows(mixed: str) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "seed": seed,
            "label": label,
            "reason_code": None,
            "gain": [0.5, 0.4, 0.6],
            "genuine_gain": None,
            "carried": {"history": [0.1, 0.0, 0.2]},
            "first_gap": None,
        }
        for name, seed, label in (
            ("mixed", 0, "undetermined"),
            ("mixed", 1, mixed),
            ("honest", 0, "genuine"),
        )
    ]


def test_one_genuine_mixed_breaks_the_rule() -> None:
    assert decision(rows("undetermined"))["holds"] and not decision(rows("genuine"))["holds"]
    found = rows("genuine")
    table = markdown({"cases": found, **decision(found)})
    assert "`mixed` called `genuine`: 1 of 2" in table and "does not hold" in table
    assert (
        "| mixed | 0 | undetermined |  | +50.0 (+40.0 to +60.0) | not measured | +10.0 (+0.0 to"
        " +20.0) |" in table
    )


def test_a_row_says_what_refusing_carries() -> None:
    findings = [
        *measured(HONEST),
        *tested(),
        finding("refusal.carried", 0.3, 0.02, about="history"),
    ]
    told = row("mixed", 3, decide(findings), findings)
    assert told["label"] == "genuine" and told["carried"] == {"history": [0.3, 0.28, 0.32]}
    loose = row("mixed", 3, decide([*measured(HONEST), jointly(0.2)]), [])
    assert loose["reason_code"] == "source-not-allowed"
