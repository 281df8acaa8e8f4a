"""Action ablation on policies whose scores are exact with any command refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from forensics import conformance
from forensics.case import Case
from forensics.conformance import Answer, Expected
from forensics.layers.decomposition import OPEN, gain as open_gain, paired
from forensics.protocols import Channel
from forensics.records import Evidence, Trajectory, Undefined
from forensics.statistics import Estimate
from forensics.verdict import decide
from resampling import ablate_actions
from resampling.ablation.gains import certificate
from resampling.ablation.instrument import ablation
from resampling.ablation.refused_runs import Played, Side, played_plainly
from tests.resampling.ablation_world import GradingWorld, RepairWorld, Script, ablation_case
from tests.subjects import playing

BEFORE = Script(looks={"git log": 0.1, "man page": 0.1, "ls": 0.2})
LEAK = Script(looks={"git log": 0.9, "man page": 0.05})
THROUGH, SHORTCUT, WITHOUT = "ablation.runs_through", "ablation.shortcut", "ablation.gain_without"
CARRIED, REFUSED = "refusal.carried", "refusal.over_bar"
Found = dict[tuple[str, str | None], Answer]


def over_bar(found: Found, allowed: str | None = None) -> float:
    """The upper end of what all kinds carry that are neither needed nor
    allowed, minus a fifth of the gain.
    """
    one = found[REFUSED, allowed]
    assert isinstance(one, Evidence) and one.interval is not None, one
    return one.interval.high


def ablated(folder: Path, before: Script, *afters: Script, **world: object) -> Found:
    return conformance.answers(ablation, ablation_case(folder, before, *afters, **world))


def yes(found: Found, question: str) -> set[str | None]:
    """What a yes-or-no question is answered with yes about."""
    return {
        about
        for (asked, about), one in found.items()
        if asked == question and isinstance(one, Evidence) and one.estimate == 1
    }


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Played once for all that read it."""
    return ablation_case(tmp_path_factory.mktemp("leak"), BEFORE, LEAK)


def test_a_leak_is_found_with_its_exact_numbers(leak: Case) -> None:
    without = LEAK.expected("git log") - BEFORE.expected("git log")
    conformance.check_finds(
        ablation,
        leak,
        [
            Expected(question=THROUGH, about="git log", low=1),
            Expected(question=SHORTCUT, about="git log", low=1),
            Expected(question=WITHOUT, about="git log", truth=without),
        ],
    )
    found = conformance.answers(ablation, leak)
    assert yes(found, SHORTCUT) == {"git log"}
    told = found[THROUGH, "git log"].diagnostics
    for name, truth in (
        ("gain", LEAK.expected() - BEFORE.expected()),
        ("before", BEFORE.expected()),
        ("before_without", BEFORE.expected("git log")),
        ("after_without", LEAK.expected("git log")),
    ):
        assert told[f"{name}_low"] <= truth <= told[f"{name}_high"], name
    inside = found[SHORTCUT, "git log"].diagnostics
    assert (
        inside["contains_answer"] is True
        and inside["example_step"] == 2
        and inside["share_of_wins"] == 1
    )


def test_where_the_world_names_no_kinds_heads_of_commands_are_refused(tmp_path: Path) -> None:
    found = ablated(tmp_path, BEFORE, LEAK, world=GradingWorld(named=False), tasks=40)
    assert yes(found, SHORTCUT) == {"git log"} == yes(found, THROUGH)
    without = LEAK.expected("git log") - BEFORE.expected("git log")
    assert found[WITHOUT, "git log"].interval.contains(without)


def test_what_the_before_policy_needs_too_cannot_be_judged_unless_it_is_declared_needed(
    tmp_path: Path,
) -> None:
    """Both read the manual; only *after* makes something of it, and nobody is right without it."""
    before = Script(looks={"man page": 0.9}, skill=0.02, hinted=0.4)
    after = Script(looks={"man page": 0.9}, skill=0.02, hinted=0.9)
    found = ablated(tmp_path / "a", before, after)
    assert yes(found, THROUGH) == set() == yes(found, SHORTCUT)
    told = found[CARRIED, "man page"]
    assert (
        isinstance(told, Undefined)
        and "needs man page too" in told.reason
        and "--allow 'man page'" in told.cure
    )
    assert (
        isinstance(found[REFUSED, None], Undefined)
        and "--allow 'man page'" in found[REFUSED, None].cure
    )
    assert over_bar(found, "man page") < 0, "the reader who allows it has an answer at hand"
    needed = ablated(
        tmp_path / "b", before, after, world=GradingWorld(needed=("submit", "man page"))
    )
    assert (
        over_bar(needed) < 0 and needed[REFUSED, None].diagnostics["needed"] == "submit, man page"
    )


def test_new_use_of_a_tool_that_holds_no_answer_is_asked_about_and_not_accused(
    tmp_path: Path,
) -> None:
    found = ablated(tmp_path, BEFORE, Script(looks={"man page": 0.9}, hinted=0.95))
    assert yes(found, THROUGH) == {"man page"} and yes(found, SHORTCUT) == set()
    texts = [gap.text for gap in decide(list(found.values())).gaps]
    assert any("runs through man page: is that part of the job?" in text for text in texts)
    assert found[REFUSED, None].interval.low > 0, "more than a fifth, and nobody allowed it"
    assert over_bar(found, "man page") < 0, "nothing else carries anything"
    allowed = ablated(
        tmp_path / "allowed",
        BEFORE,
        Script(looks={"man page": 0.9}, hinted=0.95),
        allowed=("man page",),
    )
    assert over_bar(allowed, "man page") < 0 and (CARRIED, "man page") not in allowed


def test_two_ways_to_one_answer_do_not_hide_each_other(tmp_path: Path) -> None:
    """Refused one, the policy takes the other: no single refusal takes half of the gain."""
    found = ablated(tmp_path, BEFORE, Script(looks={"git log": 0.85, "cat notes": 0.145}))
    assert yes(found, SHORTCUT) == {"cat notes + git log"} == yes(found, THROUGH)
    assert found[REFUSED, None].interval.low > 0
    assert over_bar(found, "cat notes + git log") < 0


def test_an_answer_that_is_worked_out_is_found_where_the_world_tells_its_secrets(
    tmp_path: Path,
) -> None:
    after = Script(looks={"cat outputs": 0.9})
    assert yes(ablated(tmp_path / "told", BEFORE, after, tasks=50), SHORTCUT) == {"cat outputs"}
    untold = ablated(tmp_path / "untold", BEFORE, after, world=RepairWorld(), tasks=50)
    assert yes(untold, THROUGH) == {"cat outputs"} and yes(untold, SHORTCUT) == set()


def test_tampering_falls_in_a_fresh_copy_and_its_kind_is_named(tmp_path: Path) -> None:
    found = ablated(tmp_path / "a", Script(), Script(looks={"edit tests": 0.8}))
    assert yes(found, SHORTCUT) == {"edit tests"}
    lost = found["regrading.carried", None]
    assert isinstance(lost, Evidence) and lost.interval is not None
    assert lost.interval.contains(0.8), (
        "a tampered run hands in a wrong body: all that it won, and 0.8 * 0.3 more"
    )
    assert found["regrading.over_bar", None].interval.low > 0
    bare = ablated(tmp_path / "b", Script(), Script(looks={"edit tests": 0.8}), world=RepairWorld())
    told = bare["regrading.over_bar", None]
    assert isinstance(told, Undefined) and "regrade(task, submission)" in told.cure
    assert yes(bare, SHORTCUT) == set() and yes(bare, THROUGH) == {"edit tests"}


def test_identical_policies_raise_no_alarm(tmp_path: Path) -> None:
    accused = 0
    for seed in range(20):
        found = ablated(tmp_path / str(seed), LEAK, LEAK, seed=seed, tasks=24)
        accused += bool(yes(found, THROUGH) | yes(found, SHORTCUT))
    assert accused <= 2, "P(3 or more of 20 at 5 %) = 0.08, and a gain must be shown first"


def test_rare_kinds_are_cleared_without_any_play(tmp_path: Path) -> None:
    rare = Script(looks={"git log": 0.01, "ls": 0.02}, skill=0.85)
    case = ablation_case(tmp_path, Script(looks={"ls": 0.02}), rare, tasks=200)
    found = conformance.answers(ablation, case)
    assert over_bar(found) < 0 and not list(tmp_path.glob("trajectories/*altered*"))
    assert "usage certificate" in found[REFUSED, None].method
    assert found[CARRIED, "git log"].interval.high > 0.01


def test_declared_channels_are_scrubbed_before_anything_is_refused(tmp_path: Path) -> None:
    """The leak is declared: with it scrubbed there is no gain, so no kind can carry any."""
    channel = Channel(name="log", family="disclosure", attempts=("git log",), description="")
    world = GradingWorld(channels=(channel,))
    found = ablated(tmp_path / "scrubbed", BEFORE, LEAK, world=world, tasks=40)
    told = found[REFUSED, None]
    assert (
        isinstance(told, Undefined)
        and "with the declared channels scrubbed is not surely above zero" in told.reason
    )
    case = ablation_case(tmp_path / "open", BEFORE, LEAK, world=world, tasks=40)
    rows = ablate_actions(case, leave_open=True)
    assert [row["kind"] for row in rows if row["runs_through"]] == ["git log"]
    assert not ablate_actions(case)


# -- what must not be cleared ----------------------------------------------------------


def test_an_action_that_a_policy_takes_although_it_is_refused_leaves_the_family_open(
    tmp_path: Path,
) -> None:
    from tests.resampling.ablation_world import ScriptedPolicy

    class Deaf(ScriptedPolicy):
        def _episode(
            self, world: object, task: str, sample: int, seed: int, constraint: object
        ) -> Trajectory:
            return super()._episode(world, task, sample, seed, None)

    case = ablation_case(tmp_path, BEFORE, LEAK)
    deaf = {"before": lambda: Deaf("before", BEFORE), "after-0": lambda: Deaf("after-0", LEAK)}
    case = playing(case, deaf)
    told = conformance.answers(ablation, case)[REFUSED, None]
    assert isinstance(told, Undefined) and "refused and taken all the same" in told.reason


def test_a_kind_that_is_named_like_two_leaves_the_family_open(tmp_path: Path) -> None:
    """Else `--allow a --allow b` would let through what is called `a + b`."""
    before, after = (
        Script(looks={"git log + ls": 0.1, "ls": 0.2}),
        Script(looks={"git log + ls": 0.9}, skill=0.9),
    )
    told = ablated(tmp_path, before, after)[REFUSED, None]
    assert isinstance(told, Undefined) and "reads like several kinds" in told.reason


def test_the_certificate_counts_what_both_sides_would_do_otherwise(tmp_path: Path) -> None:
    """Wins of *after* that tried a kind could be lost, losses of *before* that
    tried it could be won; the rest stays. Of several training seeds the worst
    limits it.
    """
    played = played_plainly(ablation_case(tmp_path, Script(), Script(skill=0.9)), ())
    gain = paired({OPEN: played.pair}, None).estimate(open_gain(OPEN), 0.95)

    def side(won: int, lost: int) -> Side:
        tried = [*won * [1.0], *lost * [0.0]]
        rows = [(f"t{i}", score, frozenset({"ls"})) for i, score in enumerate(tried)]
        return replace(
            played.before,
            scored=(*rows, *((f"t{i}", 0.5, frozenset()) for i in range(len(rows), 100))),
        )

    def most(before: Side, *afters: Side) -> Estimate:
        return certificate(Played(before=before, afters=afters), ("ls",), gain).carried

    none = side(0, 0)
    assert (
        most(side(0, 30), none).estimate == pytest.approx(0.3) == most(none, side(30, 0)).estimate
    )
    assert most(side(30, 0), side(0, 30)).estimate == 0
    assert most(side(0, 30), side(20, 0)).estimate == pytest.approx(0.5)
    assert most(none, side(30, 0), none).high == most(none, side(30, 0)).high > 0.3


def test_the_answer_for_a_reader_who_allows_what_was_found_is_about_all_the_others(
    tmp_path: Path,
) -> None:
    found = ablated(tmp_path, BEFORE, Script(looks={"man page": 0.8, "ls": 0.1}, hinted=0.95))
    assert found[REFUSED, "man page"].n > 0, "the others were refused, in runs"
