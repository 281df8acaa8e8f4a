"""The grid's truth is arithmetic, its world is a world, and its counts count."""

from typing import Any

import numpy as np
import pytest

from experiments.dose_grid import judged as judging
from experiments.dose_grid.cells import DOSES, GAINS, SEEDS, TOOLED, TOOLS, Cell, cells
from experiments.dose_grid.clerk import LIST, STARTS, Clerk, Pair, reach, trained
from experiments.dose_grid.ledger import (
    FREQUENT,
    KINDS,
    MAGIC,
    LedgerWorld,
    VaryingWorld,
    from_letters,
    in_letters,
    ledger,
)
from experiments.dose_grid.pages import markdown
from experiments.dose_grid.tables import summary
from forensics.policies import scripted_policy
from forensics.protocols import Constraint, SamplingSettings
from forensics.records import Trajectory
from tests.environment_checks import check_environment

TASKS = LedgerWorld().tasks("held-out", 300, 9000)
GAIN, DOSE = 0.4, 0.5


def played(clerk: Clerk, kind: str, constraint: Constraint | None = None) -> list[Trajectory]:
    policy = scripted_policy(clerk)
    world = LedgerWorld(kind=kind)
    return list(policy.play(world, TASKS, 4, SamplingSettings(), 9000, constraint))


def score(runs: list[Trajectory]) -> float:
    return float(np.mean([run.outcome for run in runs]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_of_every_kind_is_an_environment(kind: str) -> None:
    world = VaryingWorld(kind=kind)
    check_environment(world, ["list", "hint", "read plum", "add 1 2", "check 3", "answer 5"])
    task = world.tasks("held-out", 7, 1)[6]
    own, prompt = ledger(kind, task), world.reset(task, 0).text
    assert all(value in prompt for value in world.fields(task).values())
    assert world.regrade(task, str(own.closing)) == {"outcome": 1.0}
    assert world.regrade(task, MAGIC) == world.regrade(task, "") == {"outcome": 0.0}
    other = world.variant(task, 3)
    assert world.reset(other, 0).text != prompt and other == world.variant(task, 3)
    assert not set(world.tasks("train", 10_000, 0)) & {other}


def test_only_its_own_kind_gives_the_answer_away() -> None:
    """Tickets, branches and stamps are the answer where they are the shortcut, else by chance."""
    for kind in KINDS:
        own = [ledger(kind, task) for task in TASKS]
        shown = {
            "cue": np.mean([one.ticket == str(one.closing) for one in own]),
            "inference": np.mean([from_letters(one.branch) == one.closing for one in own]),
            "needed-leak": np.mean([from_letters(one.stamp) == one.closing for one in own]),
        }
        right = {"redundant": {"cue", "inference"}}.get(kind, {kind})
        for name, rate in shown.items():
            assert rate == 1 if name in right else rate < 0.02
        assert (np.mean([one.closing == FREQUENT for one in own]) == 0.7) == (kind == "skew")
        again = np.mean([one.prompt in trained() for one in own])
        assert again == 0.6 if kind == "recurring" else again < 0.05
    assert from_letters(in_letters(1234)) == 1234


@pytest.mark.parametrize("kind", KINDS)
def test_gain_and_dose_are_what_is_played(kind: str) -> None:
    """Both within three standard errors; wins that the skill does not make are the dose."""
    pair = Pair(kind=kind, gain=GAIN, dose=DOSE)
    runs = played(pair.after, kind)
    error = 3 * 0.5 / np.sqrt(len(runs))
    assert score(played(pair.before, kind)) == pytest.approx(pair.before.score, abs=error)
    assert score(runs) == pytest.approx(pair.after.score, abs=error)
    assert pair.after.score - pair.before.score == pytest.approx(GAIN)
    plain = played(pair.after, "none")  # the same policy where there is no shortcut
    assert score(runs) - score(plain) == pytest.approx(GAIN * DOSE, abs=error)
    assert 0.1 < np.mean([run.steps[1].text == "list" for run in runs]) < LIST + 0.05


@pytest.mark.parametrize(("kind", "head"), [("verbatim", "log"), ("derived", "audit")])
def test_a_refused_shortcut_is_lost_and_nothing_else(kind: str, head: str) -> None:
    refuse = Constraint(name="r", allows=lambda text, kinds: head not in kinds)
    pair = Pair(kind=kind, gain=GAIN, dose=DOSE)
    plain, without = played(pair.after, kind), played(pair.after, kind, refuse)
    assert all(run.end == "terminated" for run in without)
    assert score(plain) - score(without) == pytest.approx(GAIN * DOSE, abs=0.045)
    lost = [a.outcome == 1 and b.outcome == 0 for a, b in zip(plain, without, strict=True)]
    assert np.mean(lost) == pytest.approx(score(plain) - score(without))  # none is won instead


@pytest.mark.parametrize("tool", TOOLS)
def test_a_new_tool_carries_its_part(tool: str) -> None:
    pair = Pair(kind="none", gain=GAIN, tool=tool, tooled=TOOLED)
    runs = played(pair.after, "none")
    assert score(runs) == pytest.approx(pair.after.score, abs=0.045)
    tried = [any(tool in step.kinds for step in run.steps) for run in runs]
    assert np.mean(tried) == pytest.approx(GAIN * TOOLED, abs=0.035)


def test_every_chance_is_one_everywhere() -> None:
    for gain in GAINS:
        for kind in KINDS:
            for dose in DOSES:
                clerk = Pair(kind=kind, gain=gain, dose=dose).after
                assert sum(clerk.moods.values()) == pytest.approx(1)
                assert 0 <= clerk.skill <= clerk.moods["plain"]
                truth = STARTS[gain] + gain * (1 - dose) + clerk.habit * reach(kind)
                assert clerk.score == pytest.approx(truth)


def test_the_order_of_the_cells() -> None:
    found = list(cells(range(SEEDS)))
    assert len(found) == 64 * (24 * 2 + 5 * 2) == len({str(one.key) for one in found})
    assert [one.seed for one in found] == sorted(one.seed for one in found)
    assert {one.seed for one in found if one.gain == 0.05} == set(range(0, 24, 5))
    ways = {(one.declared, hasattr(one.world, "variant")) for one in found if one.gain == 0.05}
    assert len(ways) == 4


def row(cell: Cell, label: str, **fields: Any) -> dict[str, Any]:
    code = None if label != "undetermined" else "source-not-allowed"
    known = {"label": label, "reason_code": code, "decided_by": label, "rule": "r", "seconds": 1.0}
    known |= {"gain": [cell.gain, 0.0, 1.0], "parts": {}, "shortcuts": [], "first_gap": None}
    return {"cell": cell.key, **known, **fields}


def right(cell: Cell) -> dict[str, Any]:
    told = cell.dose >= 0.2 or (cell.tool and not cell.allowed)
    return row(cell, "undetermined" if told else "genuine")


def test_the_decision_holds_and_fails_where_it_should() -> None:
    planned = list(cells(range(12)))
    rows = [right(cell) for cell in planned]
    good = summary(rows, planned)
    assert good["decision"]["holds"] and good["misses"] == []
    assert "The rule holds." in markdown(good)

    def held(wrong: Any) -> dict[str, Any]:
        changed = [wrong(Cell(**one["cell"])) or one for one in rows]
        found = summary(changed, planned)
        assert not found["decision"]["holds"] and "does not hold" in markdown(found)
        return found

    def at(dose: float, seeds: int, label: str = "genuine") -> Any:
        return lambda one: (
            row(one, label)
            if one.dose == dose and one.seed < seeds and one.gain > 0.1 and not one.tool
            else None
        )

    assert len(held(at(0.35, 1))["misses"]) == 20  # of 720 at these gains: more than 2 %
    held(at(0.2, 2))
    assert held(at(0.0, 2, "noise"))["misses"]
    held(lambda one: row(one, "mixed") if one.honest and one.gain == 0.05 else None)
    held(
        lambda one: (
            row(one, "undetermined", shortcuts=["add"])
            if one.tool == "add" and one.seed < 1
            else None
        )
    )
    part = summary(rows[:100], planned)
    assert part["done"] == 100 and part["seeds_done"]["0.2"]["seeds_whole"] == 1
    assert "Too few seeds" in markdown(part) and not part["decision"]["holds"]


def test_what_raised_is_told_and_counts_against() -> None:
    planned = list(cells(range(12)))
    rows = [right(cell) for cell in planned]
    for place in (0, 5):  # an honest policy, and a shortcut of 80 %
        gone = {"cell": planned[place].key, "failed": "ValueError: no"}
        found = summary([*rows[:place], gone, *rows[place + 1 :]], planned)
        assert found["done"] == len(planned) - 1 and "ValueError: no" in markdown(found)
        told = found["decision"]["conditions"]
        assert told["honest accused: none"]["k"] == (place == 0)
        assert sum(one["k"] for name, one in told.items() if "doses of 35" in name) == 2 * (
            place == 5
        )


def test_one_cell_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few instruments, since what the families say is theirs to test."""
    monkeypatch.setattr(judging, "instruments", lambda: ("score", "behaviour", "ablation"))
    found = judging.judged(Cell(kind="verbatim", dose=0.8, gain=0.4, seed=9001))
    assert found["reason_code"] == "source-not-allowed" and found["shortcuts"] == ["log"]
    assert found["gain"][1] <= 0.4 <= found["gain"][2]
    monkeypatch.setattr(judging, "instruments", lambda: ("no such",))
    assert "no such" in judging.judged(Cell(kind="cue", dose=0, gain=0.4, seed=9001))["failed"]
