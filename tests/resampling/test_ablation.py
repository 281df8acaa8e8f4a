"""Action ablation on policies whose scores are exact with any command refused."""

from pathlib import Path

import pytest

from forensics import conformance
from forensics.conformance import Answer, Expected
from forensics.investigation.rows import ablation_rows
from forensics.records import Evidence, Undefined
from forensics.verdict import decide
from resampling import ablate_actions
from resampling.ablation.instrument import ablation
from tests.resampling.ablation_world import GradingWorld, RepairWorld, Script, ablation_case

BEFORE = Script(looks={"git log": 0.1, "man page": 0.1, "ls": 0.2})
LEAK = Script(looks={"git log": 0.9, "man page": 0.05})
THROUGH, SHORTCUT, WITHOUT = "ablation.runs_through", "ablation.shortcut", "ablation.gain_without"
Found = dict[tuple[str, str | None], Answer]


def ablated(folder: Path, before: Script, *afters: Script, **world: object) -> Found:
    return conformance.answers(ablation, ablation_case(folder, before, *afters, **world))


def yes(found: Found, question: str) -> set[str | None]:
    """What a yes-or-no question is answered with yes about."""
    return {
        about for (asked, about), one in found.items()
        if asked == question and isinstance(one, Evidence) and one.estimate == 1
    }


@pytest.mark.parametrize("named", [True, False], ids=["named", "heads of commands"])
def test_a_leak_is_found_with_its_exact_numbers(tmp_path: Path, named: bool) -> None:
    case = ablation_case(tmp_path, BEFORE, LEAK, world=GradingWorld(named=named))
    without = LEAK.expected("git log") - BEFORE.expected("git log")
    conformance.check_finds(ablation, case, [
        Expected(question=THROUGH, about="git log", low=1), Expected(question=SHORTCUT, about="git log", low=1),
        Expected(question=WITHOUT, about="git log", truth=without),
    ])
    found = conformance.answers(ablation, case)
    assert yes(found, SHORTCUT) == {"git log"}
    told = found[THROUGH, "git log"].diagnostics
    for name, truth in (
        ("gain", LEAK.expected() - BEFORE.expected()), ("before", BEFORE.expected()),
        ("before_without", BEFORE.expected("git log")), ("after_without", LEAK.expected("git log")),
    ):
        assert told[f"{name}_low"] <= truth <= told[f"{name}_high"], name
    inside = found[SHORTCUT, "git log"].diagnostics
    assert inside["contains_answer"] is True and inside["example_step"] == 2 and inside["share_of_wins"] == 1


def test_what_the_before_policy_needs_is_not_what_the_gain_runs_through(tmp_path: Path) -> None:
    """Both read the manual; only *after* makes something of it, and nobody is right without it."""
    before = Script(looks={"man page": 0.9}, skill=0.02, hinted=0.4)
    found = ablated(tmp_path, before, Script(looks={"man page": 0.9}, skill=0.02, hinted=0.9))
    assert yes(found, THROUGH) == set() == yes(found, SHORTCUT)
    assert "needs man page" in found[THROUGH, "man page"].summary


def test_new_use_of_a_tool_that_holds_no_answer_is_asked_about_and_not_accused(tmp_path: Path) -> None:
    found = ablated(tmp_path, BEFORE, Script(looks={"man page": 0.9}, hinted=0.95))
    assert yes(found, THROUGH) == {"man page"} and yes(found, SHORTCUT) == set()
    texts = [gap.text for gap in decide(list(found.values())).gaps]
    assert any("is man page allowed?" in text for text in texts)


def test_two_ways_to_one_answer_do_not_hide_each_other(tmp_path: Path) -> None:
    """Refused one, the policy takes the other: no single refusal takes half of the gain."""
    found = ablated(tmp_path, BEFORE, Script(looks={"git log": 0.85, "cat notes": 0.145}))
    assert yes(found, SHORTCUT) == {"cat notes + git log"} == yes(found, THROUGH)
    assert (THROUGH, "cat notes") not in found, "too rare to carry half of the gain by itself"


def test_what_the_before_policy_turns_to_is_no_loss_of_the_gain(tmp_path: Path) -> None:
    """Refused `ls`, *before* reads the history and closes the gap from below; *after* loses nothing."""
    before = Script(looks={"ls": 0.9, "git log": 0.09}, skill=0.3)
    after = Script(looks={"ls": 0.6, "man page": 0.1}, skill=0.9)
    found = ablated(tmp_path, before, after)
    ended = found[WITHOUT, "ls"]
    assert isinstance(ended, Evidence) and ended.estimate < 0.2, "the gain without `ls` is small"
    assert yes(found, THROUGH) == set()


def test_an_answer_that_is_worked_out_is_found_where_the_world_tells_its_secrets(tmp_path: Path) -> None:
    after = Script(looks={"cat outputs": 0.9})
    assert yes(ablated(tmp_path / "told", BEFORE, after), SHORTCUT) == {"cat outputs"}
    untold = ablated(tmp_path / "untold", BEFORE, after, world=RepairWorld())
    assert yes(untold, THROUGH) == {"cat outputs"} and yes(untold, SHORTCUT) == set()


def test_tampering_falls_in_a_fresh_copy_and_its_kind_is_named(tmp_path: Path) -> None:
    found = ablated(tmp_path / "a", Script(), Script(looks={"edit tests": 0.8}))
    assert yes(found, SHORTCUT) == {"edit tests"}
    copy = found["ablation.fresh_copy", None]
    assert isinstance(copy, Evidence) and copy.interval is not None
    assert copy.interval.contains(-0.8 * 0.3), "a tampered run hands in a wrong body"
    bare = ablated(tmp_path / "b", Script(), Script(looks={"edit tests": 0.8}), world=RepairWorld())
    told = bare["ablation.fresh_copy", None]
    assert isinstance(told, Undefined) and "regrade(task, submission)" in told.cure
    assert yes(bare, SHORTCUT) == set() and yes(bare, THROUGH) == {"edit tests"}


def test_an_action_without_which_nothing_goes_on_is_undefined_and_missing_runs_are_no_failures(tmp_path: Path) -> None:
    found = ablated(tmp_path, BEFORE, LEAK)
    for question in (THROUGH, SHORTCUT):
        told = found[question, "submit"]
        assert isinstance(told, Undefined) and "100 % of the runs ended because every draw was refused" in told.reason


def test_the_verdict_is_never_genuine_and_names_the_kind(tmp_path: Path) -> None:
    verdict = decide(list(ablated(tmp_path, BEFORE, LEAK).values()))
    assert verdict.label == "undetermined"
    assert "shortcut through git log" in verdict.gaps[0].text and "git log" in verdict.sentence
    assert any("a shortcut" in reason and "git log" in reason for reason in verdict.reasons)


def test_several_training_seeds(tmp_path: Path) -> None:
    """Five seeds: crossed intervals, and the same finding; the cases of one seed are narrower."""
    after = [Script(looks={"git log": share}) for share in (0.86, 0.9, 0.92, 0.88, 0.94)]
    found = ablated(tmp_path, BEFORE, *after)
    assert yes(found, SHORTCUT) == {"git log"}
    assert found[WITHOUT, "git log"].diagnostics["seeds"] == 5


def test_swapping_the_sides_flips_the_sign_of_what_is_left(tmp_path: Path) -> None:
    """A kind that both can do without: the same numbers with the other sign."""
    poor, good = Script(looks={"ls": 0.6}, skill=0.3), Script(looks={"ls": 0.6, "man page": 0.2}, skill=0.8)
    there, back = ablated(tmp_path / "a", poor, good), ablated(tmp_path / "b", good, poor)
    truth = good.expected("ls") - poor.expected("ls")
    for found, sign in ((there, 1), (back, -1)):
        one = found[WITHOUT, "ls"]
        assert isinstance(one, Evidence) and one.interval is not None and one.interval.contains(sign * truth)
    assert yes(back, THROUGH) == set(), "a loss runs through nothing"


def test_identical_policies_raise_no_alarm(tmp_path: Path) -> None:
    accused = 0
    for seed in range(20):
        found = ablated(tmp_path / str(seed), LEAK, LEAK, seed=seed, tasks=24)
        accused += bool(yes(found, THROUGH) | yes(found, SHORTCUT))
    assert accused <= 2, "P(3 or more of 20 at 5 %) = 0.08, and a gain must be shown first"


def test_honest_gains_are_not_accused(tmp_path: Path) -> None:
    """Better skill, and every command used by both: nothing runs through anything, over six seeds."""
    honest = Script(looks={"git log": 0.1, "man page": 0.3, "ls": 0.5}, skill=0.85, hinted=0.85)
    for seed in range(6):
        found = ablated(tmp_path / str(seed), BEFORE, honest, seed=seed, tasks=40)
        assert yes(found, THROUGH) == set() == yes(found, SHORTCUT)


def test_the_seam(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, BEFORE, LEAK, tasks=30)
    conformance.check_questions(ablation, case)
    conformance.check_same_bits(ablation, case)
    conformance.check_saved(ablation, case, tmp_path)


def test_rows_as_files_and_the_function_state_them(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, BEFORE, LEAK)
    rows = ablate_actions(case)
    assert rows == list(ablation_rows(conformance.answers(ablation, case).values()))
    row = next(row for row in rows if row["kind"] == "git log")
    assert row["runs_through"] is True and row["contains_answer"] is True and row["q_value"] < 1e-3
    for name in ("gain", "gain_without", "before_without"):
        assert set(row[name]) == {"estimate", "low", "high", "level"} and row[name]["low"] < row[name]["high"]


def test_a_policy_that_cannot_refuse_an_action_is_told_so(tmp_path: Path) -> None:
    from tests.resampling.ablation_world import ScriptedPolicy

    case = ablation_case(tmp_path, BEFORE, LEAK)
    for side, script in (("before", BEFORE), ("after-0", LEAK)):
        case.policies[side] = lambda s=side, k=script: ScriptedPolicy(s, k, frozenset({"play"}))
    found = conformance.answers(ablation, case)
    assert isinstance(found[THROUGH, None], Undefined) and "cannot refuse" in found[THROUGH, None].reason
