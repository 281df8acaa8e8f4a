"""Action ablation on policies whose scores are exact with any command refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics import conformance
from forensics.case import Case
from forensics.conformance import Answer, Expected
from forensics.investigation.run import ablation_rows
from forensics.layers.decomposition import OPEN, gain as open_gain, paired
from forensics.protocols import Channel
from forensics.records import Evidence, Step, Trajectory, Undefined
from forensics.statistics import Estimate
from forensics.verdict import decide
from resampling import ablate_actions
from resampling.ablation.ablation_evidence import AblationEvidence
from resampling.ablation.gains import AblationConfig, certificate
from resampling.ablation.instrument import ablation, regraded
from resampling.ablation.refusal import AblationStudy
from resampling.ablation.refused_runs import Played, Side, played_plainly, refusal
from tests.forensics.score_world import PROVENANCE
from tests.resampling.ablation_world import GradingWorld, RepairWorld, Script, ablation_case
from tests.subjects import playing

BEFORE = Script(looks={"git log": 0.1, "man page": 0.1, "ls": 0.2})
LEAK = Script(looks={"git log": 0.9, "man page": 0.05})
HONEST = Script(looks={"git log": 0.1, "man page": 0.3, "ls": 0.5}, skill=0.85, hinted=0.85)
THROUGH, SHORTCUT, WITHOUT = "ablation.runs_through", "ablation.shortcut", "ablation.gain_without"
CARRIED, REFUSED = "refusal.carried", "refusal.over_bar"
Found = dict[tuple[str, str | None], Answer]
Options = dict[str, float]


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


def test_what_the_before_policy_turns_to_is_no_loss_of_the_gain(tmp_path: Path) -> None:
    """Refused `ls` alone, *before* reads the history and closes the gap from
    below; *after* loses nothing. With both refused, nothing is lost.
    """
    before = Script(looks={"ls": 0.9, "git log": 0.09}, skill=0.3)
    after = Script(looks={"ls": 0.6, "man page": 0.1}, skill=0.9)
    found = ablated(tmp_path, before, after)
    assert yes(found, THROUGH) == set() and over_bar(found) < 0
    case = ablation_case(tmp_path / "each", before, after)
    row = next(row for row in ablate_actions(case) if row["kind"] == "ls")
    assert row["gain_without"]["estimate"] < 0.2 and row["runs_through"] is False


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


def test_an_action_without_which_nothing_goes_on_is_undefined_and_missing_runs_are_no_failures(
    tmp_path: Path,
) -> None:
    found = ablated(tmp_path, BEFORE, HONEST, world=GradingWorld(needed=()))
    for question, about in ((CARRIED, "submit"), (REFUSED, None)):
        told = found[question, about]
        assert (
            isinstance(told, Undefined)
            and "100 % of the runs ended because every draw was refused" in told.reason
        )
    assert over_bar(found, "submit") < 0


def test_a_world_of_one_action_has_nothing_to_refuse(tmp_path: Path) -> None:
    found = ablated(tmp_path, Script(), Script(skill=0.9), world=GradingWorld(needed=()))
    told = found[REFUSED, None]
    assert isinstance(told, Undefined) and "submit is the only kind of action" in told.reason
    assert over_bar(found, "submit") < 0


def test_a_win_that_hands_in_nothing_is_graded_as_an_empty_hand_in(tmp_path: Path) -> None:
    """A grader that takes nothing for right: the wins do not stand, whatever is
    written in the run.
    """
    found = ablated(tmp_path, Script(), Script(skill=0.9), world=GradingWorld())
    case = ablation_case(tmp_path, Script(), Script(skill=0.9))
    run = next(run for run in case.rollouts("after-0") if run.outcome)
    silent = run.model_copy(update={"submission": None})
    graded: list[str] = []

    def regrade(task: str, submission: str) -> dict[str, float]:
        graded.append(submission)
        return {"outcome": float(bool(submission))}

    (again,) = regraded([silent], regrade)
    assert graded == [""] and again.lost
    assert found["regrading.over_bar", None].interval.high < 0, "what is handed in stands"


def test_wins_that_cannot_be_graded_again_leave_the_family_open(tmp_path: Path) -> None:
    class Forgetful(GradingWorld):
        def regrade(self, task: str, submission: str) -> dict[str, float | None]:
            return {"outcome": None if task.endswith("7") else 1.0}

    told = ablated(tmp_path, Script(), Script(skill=0.9), world=Forgetful())[
        "regrading.over_bar", None
    ]
    assert isinstance(told, Undefined) and "could not be graded again" in told.reason


def test_the_verdict_is_never_genuine_and_names_the_kind(leak: Case) -> None:
    verdict = decide(list(conformance.answers(ablation, leak).values()))
    assert verdict.label == "undetermined"
    assert verdict.reason_code == "source-not-allowed"
    assert "runs through git log, whose output held the answer" in verdict.gaps[0].text
    assert "git log" in verdict.sentence
    assert any("a shortcut" in reason and "git log" in reason for reason in verdict.reasons)


def test_several_training_seeds(tmp_path: Path) -> None:
    """Three seeds: crossed intervals, and the same finding; the cases of one seed are narrower."""
    after = [Script(looks={"git log": share}) for share in (0.86, 0.9, 0.94)]
    found = ablated(tmp_path, BEFORE, *after, tasks=40)
    assert yes(found, SHORTCUT) == {"git log"}
    assert found[WITHOUT, "git log"].diagnostics["seeds"] == 3


def test_a_loss_runs_through_nothing(tmp_path: Path) -> None:
    poor, good = (
        Script(looks={"ls": 0.6}, skill=0.3),
        Script(looks={"ls": 0.6, "man page": 0.2}, skill=0.8),
    )
    there, back = ablated(tmp_path / "a", poor, good), ablated(tmp_path / "b", good, poor)
    assert yes(there, THROUGH) == set() == yes(back, THROUGH)
    told = back[REFUSED, None]
    assert isinstance(told, Undefined) and "not surely above zero" in told.reason


def test_identical_policies_raise_no_alarm(tmp_path: Path) -> None:
    accused = 0
    for seed in range(20):
        found = ablated(tmp_path / str(seed), LEAK, LEAK, seed=seed, tasks=24)
        accused += bool(yes(found, THROUGH) | yes(found, SHORTCUT))
    assert accused <= 2, "P(3 or more of 20 at 5 %) = 0.08, and a gain must be shown first"


def test_honest_gains_are_not_accused(tmp_path: Path) -> None:
    """Better skill, and every command used by both: nothing runs through
    anything, over four seeds.
    """
    for seed in range(4):
        found = ablated(tmp_path / str(seed), BEFORE, HONEST, seed=seed, tasks=40)
        assert yes(found, THROUGH) == set() == yes(found, SHORTCUT)
        assert found[REFUSED, None].interval.low <= 0


def test_enough_tasks_clear_an_honest_gain_and_the_bound_by_usage_is_one(tmp_path: Path) -> None:
    """All kinds refused together carry what arithmetic says, and the certificate lies above it."""
    found = ablated(tmp_path, BEFORE, HONEST, tasks=400)
    kinds = ("git log", "ls", "man page")
    lost, change = (
        HONEST.expected() - HONEST.expected(*kinds),
        BEFORE.expected() - BEFORE.expected(*kinds),
    )
    truth = max(lost - change, lost)
    together = found[CARRIED, " + ".join(kinds)]
    assert together.interval.contains(truth) and over_bar(found) < 0
    for kind in kinds:
        single = (
            HONEST.expected() - HONEST.expected(kind) - (BEFORE.expected() - BEFORE.expected(kind))
        )
        assert found[CARRIED, kind].interval.high > single


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


def test_the_seam(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, BEFORE, LEAK, tasks=30)
    conformance.check_questions(ablation, case)
    conformance.check_same_bits(ablation, case)
    conformance.check_saved(ablation, case, tmp_path)


def test_rows_as_files_and_the_function_state_them(leak: Case) -> None:
    rows = ablate_actions(leak)
    assert rows == list(
        ablation_rows(conformance.answers(ablation.configured(each=True), leak).values())
    )
    row = next(row for row in rows if row["kind"] == "git log")
    assert row["runs_through"] is True and row["contains_answer"] is True and row["q_value"] < 1e-3
    for name in ("gain", "gain_without", "before_without"):
        assert (
            set(row[name]) == {"estimate", "low", "high", "level"}
            and row[name]["low"] < row[name]["high"]
        )


def test_a_policy_that_cannot_refuse_an_action_is_told_so(tmp_path: Path) -> None:
    from tests.resampling.ablation_world import ScriptedPolicy

    case = ablation_case(tmp_path, BEFORE, LEAK)
    plays = frozenset({"play"})
    case = playing(
        case,
        {
            "before": lambda: ScriptedPolicy("before", BEFORE, plays),
            "after-0": lambda: ScriptedPolicy("after-0", LEAK, plays),
        },
    )
    found = conformance.answers(ablation, case)
    assert (
        isinstance(found[THROUGH, None], Undefined)
        and "cannot refuse" in found[THROUGH, None].reason
    )


# -- what must not be cleared ----------------------------------------------------------


def test_a_second_way_that_no_run_had_tried_does_not_clear_the_first(tmp_path: Path) -> None:
    """Refused the history, the policy reads the notes, which it never did
    before: that is refused too.
    """
    leak = Script(looks={"git log": 1 - 1.1e-6, "cat notes": 1e-6})
    found = ablated(tmp_path, BEFORE, leak)
    assert found[REFUSED, None].interval.low > 0


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


def test_runs_that_end_because_they_insist_are_too_many_where_they_could_be_a_fifth_of_the_gain(
    tmp_path: Path,
) -> None:
    """17 % of the runs read the history and nothing else will do; the others
    have learnt the job. Those that end for it are missing, and without them the
    gain stands: but 17 of its 46 points would not.
    """
    from tests.resampling.ablation_world import ScriptedPolicy, body_of

    class Insisting(ScriptedPolicy):
        def _turns(
            self, world: object, task: str, stream: np.random.Generator, steps: list[Step]
        ) -> Iterator[Options]:
            after = self.identity == "after-0"
            insists = after and stream.random() < 0.17
            right = insists or stream.random() < (0.85 if after else 0.4)
            yield {"git log": 1.0} if insists else {"ls": 0.5, "": 0.5}
            yield {f"submit : {body_of(task, '' if right else str(stream.random()))}": 1.0}

    case = ablation_case(tmp_path, Script(), Script(), tasks=150)
    sides = ("before", "after-0")
    case = playing(case, {side: lambda s=side: Insisting(s, Script()) for side in sides})
    told = conformance.answers(ablation, case)[REFUSED, None]
    assert isinstance(told, Undefined) and "% of the runs ended" in told.reason


def test_a_world_without_any_kind_of_action_leaves_the_family_open(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, Script(), Script(skill=0.9))
    study = AblationStudy(
        case=case,
        config=AblationConfig(),
        world=(),
        evidence=AblationEvidence(provenance=PROVENANCE),
        plain=without_kinds(played_plainly(case, ())),
    )
    (told,) = study.kinds()
    assert isinstance(told, Undefined) and "No run shows a kind of action" in told.reason


def without_kinds(played: Played) -> Played:
    bare = [
        replace(
            side,
            usage={},
            scored=tuple((task, score, frozenset()) for task, score, _ in side.scored),
        )
        for side in (played.before, *played.afters)
    ]
    return Played(before=bare[0], afters=tuple(bare[1:]))


def test_a_kind_that_is_named_like_two_leaves_the_family_open(tmp_path: Path) -> None:
    """Else `--allow a --allow b` would let through what is called `a + b`."""
    before, after = (
        Script(looks={"git log + ls": 0.1, "ls": 0.2}),
        Script(looks={"git log + ls": 0.9}, skill=0.9),
    )
    told = ablated(tmp_path, before, after)[REFUSED, None]
    assert isinstance(told, Undefined) and "reads like several kinds" in told.reason


def test_constraints_on_one_kind_and_on_two_are_not_taken_for_one_another() -> None:
    assert refusal(("a+b",), 12).name != refusal(("a", "b"), 12).name
    assert refusal(("a", "b"), 12).name == "refuse:a+b redraws:12"


def test_the_certificate_counts_tasks_alike_as_the_gain_does(tmp_path: Path) -> None:
    """On half of the tasks one run of four is left, and it tried the kind: that
    is half of the score, not a fifth.
    """
    rows = [(f"few-{i}", 1.0, frozenset({"git log"})) for i in range(50)]
    rows += [(f"many-{i}", 1.0, frozenset()) for i in range(50) for _ in range(4)]
    played = played_plainly(ablation_case(tmp_path, Script(), Script(skill=0.9)), ())
    after = replace(played.afters[0], scored=tuple(rows))
    gain = paired({OPEN: played.pair}, None).estimate(open_gain(OPEN), 0.95)
    most = certificate(Played(before=played.before, afters=(after,)), ("git log",), gain)
    assert most.points.estimate == pytest.approx(0.5)


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
        return certificate(Played(before=before, afters=afters), ("ls",), gain).points

    none = side(0, 0)
    assert (
        most(side(0, 30), none).estimate == pytest.approx(0.3) == most(none, side(30, 0)).estimate
    )
    assert most(side(30, 0), side(0, 30)).estimate == 0
    assert most(side(0, 30), side(20, 0)).estimate == pytest.approx(0.5)
    assert most(none, side(30, 0), none).high == most(none, side(30, 0)).high > 0.3


class Crashing(GradingWorld):
    """Its grader breaks on some hand-ins and takes those of others for wrong."""

    breaks: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def regrade(self, task: str, submission: str) -> dict[str, float | None]:
        if task.endswith(self.breaks):
            return {"outcome": None}
        return {"outcome": 0.0 if task.endswith(self.lost) else 1.0}


def test_few_wins_that_cannot_be_graded_again_are_enough_to_leave_a_small_gain_open(
    tmp_path: Path,
) -> None:
    """One hand-in in 25 breaks the grader: a fifth of a gain of 15 points is less than that."""
    world = Crashing()
    world.breaks = ("04", "29", "54", "79")
    told = ablated(tmp_path, Script(skill=0.8), Script(skill=0.97), world=world, tasks=400)[
        "regrading.over_bar", None
    ]
    assert isinstance(told, Undefined) and "could not be graded again" in told.reason
    large = ablated(tmp_path / "large", Script(), Script(skill=0.97), world=world, tasks=400)
    assert large["regrading.over_bar", None].interval.high < 0


def test_lost_wins_are_found_however_many_others_cannot_be_graded_again(tmp_path: Path) -> None:
    """What found something cannot be accepted, so it must not hide behind what
    could not be graded.
    """
    world = Crashing()
    world.breaks, world.lost = ("1", "2"), ("3", "4", "5", "6", "7", "8")
    found = ablated(tmp_path, Script(), Script(skill=0.9), world=world)
    assert found["regrading.over_bar", None].interval.low > 0


@pytest.mark.parametrize(
    "breaks,open_still",
    [(("04", "29", "54", "79"), False), (("04", "19", "34", "49", "64", "79"), True)],
)
def test_one_win_in_twenty_may_fail_to_be_graded_again(
    tmp_path: Path, breaks: tuple[str, ...], open_still: bool
) -> None:
    """Four or six hand-ins of a hundred, for a gain of which a fifth is more than that."""
    world = Crashing()
    world.breaks = breaks
    told = ablated(tmp_path, Script(), Script(skill=0.97), world=world, tasks=400)[
        "regrading.over_bar", None
    ]
    assert isinstance(told, Undefined) is open_still


def test_what_was_found_is_said_before_what_could_not_be_judged(tmp_path: Path) -> None:
    """Else the reader could accept the family as untested."""
    before = Script(looks={"man page": 0.9}, skill=0.02, hinted=0.4)
    after = Script(looks={"man page": 0.45, "git log": 0.54}, skill=0.02, hinted=0.4)
    found = ablated(tmp_path, before, after)
    assert (
        isinstance(found[CARRIED, "man page"], Undefined) and found[REFUSED, None].interval.low > 0
    )


def test_the_answer_for_a_reader_who_allows_what_was_found_is_about_all_the_others(
    tmp_path: Path,
) -> None:
    found = ablated(tmp_path, BEFORE, Script(looks={"man page": 0.8, "ls": 0.1}, hinted=0.95))
    assert found[REFUSED, "man page"].n > 0, "the others were refused, in runs"
