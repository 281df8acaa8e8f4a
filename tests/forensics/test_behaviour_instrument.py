"""The behaviour instrument as a whole: rates, counts, rows, seeds, examples, memory."""

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.case import Case
from forensics.conformance import answers, rewritten, without_logs
from forensics.errors import MissingInput
from forensics.instruments import run_instrument
from forensics.layers.behaviour import behaviour, chain_rows
from forensics.layers.evidence_chain import ChainRule, Survey, survey
from forensics.layers.tally import read_log
from forensics.planted import HISTORY, Habits, log_of, planted_case, run
from forensics.protocols import Channel
from forensics.records import Evidence, Spans, Step, Table, Trajectory, Undefined
from forensics.runs import Condition

LEAK = Habits(reads_history=0.9)
FIELDS = {
    "trajectory",
    "task",
    "family",
    "channel",
    "attempt_steps",
    "obtained_steps",
    "used",
    "credited",
    "explanation",
}


def evidence(case: Case, question: str, about: str | None = None) -> Evidence:
    found = answers(behaviour, case)[question, about]
    assert isinstance(found, Evidence), found
    return found


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return planted_case(tmp_path_factory.mktemp("leak"), Habits(), LEAK, tasks=30)


def test_credited_wins_are_counted_against_the_truth_of_each_run(leak: Case) -> None:
    """Every run of this world that read the history copied it, and won."""
    runs = list(leak.rollouts("after-0"))
    read = sum(any("history" in step.kinds for _, step in each.actions) for each in runs)
    wins = sum(each.outcome == 1 for each in runs)
    found = evidence(leak, "behaviour.channel_wins", "git-history")
    assert found.estimate == pytest.approx(read / wins)
    counts = {
        key: found.diagnostics[key]
        for key in ("attempted", "obtained", "used", "complete", "credited")
    }
    assert counts == {
        "attempted": read,
        "obtained": read,
        "used": read,
        "complete": read,
        "credited": wins,
    }
    assert found.diagnostics["not copied"] == found.diagnostics["cannot be told"] == 0


def test_the_control_is_the_policy_before_training(leak: Case) -> None:
    before = list(leak.rollouts("before"))
    read = sum(any("history" in step.kinds for _, step in each.actions) for each in before)
    attempts = evidence(leak, "behaviour.channel_attempts", "git-history")
    assert attempts.control is not None and attempts.control.estimate == pytest.approx(
        read / len(before)
    )
    wins = evidence(leak, "behaviour.channel_wins", "git-history")
    assert wins.control is not None and wins.control.estimate == pytest.approx(
        read / sum(each.outcome == 1 for each in before)
    )


def test_the_example_points_at_the_step_that_showed_the_answer(leak: Case) -> None:
    found = evidence(leak, "behaviour.channel_wins", "git-history")
    example = next(
        each
        for each in leak.rollouts("after-0")
        if each.id == found.diagnostics["example_trajectory"]
    )
    step = example.steps[int(found.diagnostics["example_step"] or 0)]
    assert step.channels == ("git-history",) and str(example.submission) in step.text
    spans = [artifact for artifact in found.artifacts if isinstance(artifact, Spans)]
    assert len(spans) == 3 and spans[0].trajectory == example.id


def test_rows_of_findings(leak: Case) -> None:
    rows = list(chain_rows(leak))
    assert all(row.keys() >= FIELDS for row in rows) and json.loads(json.dumps(rows)) == rows
    by_id = {each.id: each for each in leak.rollouts("after-0")}
    read = {
        name
        for name, each in by_id.items()
        if any("history" in step.kinds for _, step in each.actions)
    }
    assert {row["trajectory"] for row in rows} == read
    for row in rows:
        steps = by_id[row["trajectory"]].steps
        assert all("history" in steps[i].kinds for i in row["attempt_steps"])
        assert all("git-history" in steps[i].channels for i in row["obtained_steps"])
        assert row["used"] is True and row["credited"] is True and row["side"] == "after-0"


def test_rows_of_the_before_side_on_request(leak: Case) -> None:
    rows = list(chain_rows(leak, sides=["before"]))
    assert rows and {row["side"] for row in rows} == {"before"}


def test_rows_without_logs_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        list(chain_rows(Case(folder=tmp_path), sides=["after-0"]))


def test_logs_without_an_environment_name_their_channels_by_their_marks(leak: Case) -> None:
    bare = replace(leak, environment=None)
    assert [channel.name for channel in survey(bare, ["before", "after-0"], 16).channels] == [
        "git-history"
    ]
    assert evidence(bare, "behaviour.channel_wins", "git-history").estimate == pytest.approx(
        evidence(leak, "behaviour.channel_wins", "git-history").estimate
    )


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(12)), keep=st.integers(1, 4))
def test_control_texts_do_not_depend_on_the_order(
    order: list[int], keep: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Several texts a task, more tasks than are kept: the same ones are chosen from any order."""

    def showing(number: int) -> Trajectory:
        step = Step(role="tool", text=f"text {number}", channels=("git-history",))
        return Trajectory(
            id=f"{number}",
            task=f"task {number % 5}",
            policy="p",
            environment="e",
            seed=0,
            steps=(step,),
            outcome=None,
            end="terminated",
        )

    folder = tmp_path_factory.mktemp("order")
    chosen = []
    for name, numbers in (("sorted", range(12)), ("shuffled", order)):
        log = log_of(folder / f"{name}.parquet", [showing(number) for number in numbers])
        case = Case(folder=folder, stored={("after-0", ()): log})
        chosen.append(survey(case, ["after-0"], keep).donors["git-history"])
    assert chosen[0] == chosen[1] and len(chosen[0]) == keep


def test_without_any_channel_the_channel_questions_are_undefined(
    leak: Case, tmp_path: Path
) -> None:
    def unmarked(each: Trajectory) -> Trajectory:
        return each.model_copy(
            update={"steps": tuple(s.model_copy(update={"channels": ()}) for s in each.steps)}
        )

    bare = rewritten(
        replace(leak, environment=None), tmp_path, lambda runs: [unmarked(each) for each in runs]
    )
    found = answers(behaviour, bare)
    assert isinstance(found["behaviour.channel_wins", None], Undefined)
    assert isinstance(found["behaviour.turns", None], Evidence)


def test_after_alone_gives_shares_without_a_control(leak: Case) -> None:
    alone = without_logs(leak, "before")
    assert evidence(alone, "behaviour.channel_wins", "git-history").control is None
    found = answers(behaviour, alone)
    assert all(
        isinstance(found[f"behaviour.{q}", None], Undefined)
        for q in ("turns", "action_mix", "echo_trap")
    )


def test_seeds_of_one_recipe_are_pooled_and_shown(tmp_path: Path) -> None:
    case = planted_case(
        tmp_path, Habits(), Habits(reads_history=1.0), Habits(reads_history=0.0), tasks=20
    )
    found = evidence(case, "behaviour.channel_wins", "git-history")
    first, second = (found.diagnostics[f"share of wins, after-{n}"] for n in (0, 1))
    assert first == 1 and second == 0 and 0 < found.estimate < 1
    assert found.clusters == 20 and found.diagnostics["runs"] == 160


def test_wins_without_a_submission_are_undefined_not_zero(leak: Case, tmp_path: Path) -> None:
    bare = rewritten(
        leak, tmp_path, lambda runs: [each.model_copy(update={"submission": None}) for each in runs]
    )
    assert isinstance(answers(behaviour, bare)["behaviour.channel_wins", "git-history"], Undefined)


def test_some_wins_without_a_submission_widen_the_interval(leak: Case, tmp_path: Path) -> None:
    def every_third(runs: list[Trajectory]) -> list[Trajectory]:
        return [
            each.model_copy(update={"submission": None}) if n % 3 == 0 else each
            for n, each in enumerate(runs)
        ]

    full = evidence(leak, "behaviour.channel_wins", "git-history")
    part = evidence(rewritten(leak, tmp_path, every_third), "behaviour.channel_wins", "git-history")
    assert (
        part.estimate < full.estimate
        and part.interval is not None
        and part.interval.contains(full.estimate)
    )
    assert part.summary.startswith("At least")


def test_what_is_shown_and_never_copied_is_a_lower_bound(leak: Case, tmp_path: Path) -> None:
    """A channel that shows outputs instead of the fix: nobody can copy it, and
    yet it may have made the wins.
    """

    def derived(each: Trajectory) -> Trajectory:
        steps = tuple(
            s.model_copy(update={"text": "2 -> 7"}) if s.channels else s for s in each.steps
        )
        return each.model_copy(update={"steps": steps})

    outputs = rewritten(leak, tmp_path, lambda runs: [derived(each) for each in runs])
    found = evidence(outputs, "behaviour.channel_wins", "git-history")
    assert found.estimate == 0 and found.interval is not None and found.interval.high > 0.9


def test_errored_runs_say_nothing_about_the_policy(leak: Case, tmp_path: Path) -> None:
    def some_errored(runs: list[Trajectory]) -> list[Trajectory]:
        extra = [
            each.model_copy(update={"id": f"{each.id}-e", "end": "errored", "steps": ()})
            for each in runs[::2]
        ]
        return [*runs, *extra]

    errored = rewritten(leak, tmp_path, some_errored)
    for question, about in (
        ("behaviour.turns", None),
        ("behaviour.channel_attempts", "git-history"),
    ):
        assert (
            evidence(errored, question, about).estimate == evidence(leak, question, about).estimate
        )


def test_the_action_table_holds_the_rates_of_each_kind(leak: Case) -> None:
    found = evidence(leak, "behaviour.action_mix")
    table = found.artifacts[0]
    assert (
        isinstance(table, Table)
        and found.control is not None
        and found.control.p_value == pytest.approx(0.001)
    )
    rates = {row[0]: row[1:] for row in table.rows}
    assert rates["submit"][:2] == (1.0, 1.0) and rates["history"][1] == pytest.approx(0.9, abs=0.1)


def test_breakage_is_the_share_that_never_hands_in(tmp_path: Path) -> None:
    case = planted_case(tmp_path, Habits(), Habits(reads_history=1.0, thrown_off=0.3), tasks=40)
    found = evidence(case, "behaviour.breakage_runs")
    cut = sum(
        each.end == "truncated"
        for each in case.rollouts("after-0", Condition(scrubbed=("git-history",)))
    )
    assert (
        found.estimate == pytest.approx(cut / 160)
        and found.control is not None
        and found.control.estimate == 0
    )
    table = found.artifacts[0]
    assert isinstance(table, Table) and sum(row[3] for row in table.rows) == pytest.approx(1)


def test_wins_on_answers_that_were_cut_off_are_counted(tmp_path: Path) -> None:
    case = planted_case(tmp_path, Habits(), LEAK, tasks=20)

    def cut(one: Trajectory) -> Trajectory:
        if int(one.id[-1], 36) % 2 or one.outcome is None:
            return one
        return one.model_copy(
            update={"end": "truncated", "end_reason": "last action cut off; graded"}
        )

    assert evidence(case, "behaviour.cut_off").estimate == 0.0
    (tmp_path / "cut").mkdir()
    marked = rewritten(case, tmp_path / "cut", lambda runs: [*map(cut, runs)])
    found = evidence(marked, "behaviour.cut_off")
    wins = [one for one in marked.rollouts("after-0") if one.outcome == 1]
    assert 0.1 < found.estimate < 0.9
    assert found.estimate == pytest.approx(sum(o.end == "truncated" for o in wins) / len(wins))
    assert "had cut off" in found.summary and found.control is not None


def test_tampering_counts_bent_wins(tmp_path: Path) -> None:
    bend = Channel(
        name="test-edit",
        family="tampering",
        attempts=("edit-tests",),
        description="",
        honest_reward="visible",
        bent_reward="submitted",
    )

    def bent(task: int, sample: int) -> Trajectory:
        tampers = sample == 0
        steps = (
            Step(role="assistant", text="edit tests", kinds=("edit-tests" if tampers else "edit",)),
        )
        return Trajectory(
            id=f"{task}-{sample}",
            task=f"{task}",
            policy="p",
            environment="e",
            seed=0,
            sample=sample,
            steps=steps,
            outcome=1.0,
            end="terminated",
            rewards={"submitted": 1.0, "visible": 0.0 if tampers else 1.0},
        )

    log = log_of(tmp_path / "log.parquet", [bent(task, n) for task in range(10) for n in range(4)])
    world = replace(
        planted_case(tmp_path, Habits(), Habits(), tasks=2).environment, channels=(bend,)
    )
    case = Case(folder=tmp_path, environment=world, stored={("after-0", ()): log})
    assert evidence(case, "behaviour.channel_wins", "test-edit").estimate == pytest.approx(0.25)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError):
        behaviour.configured(colour="blue")


def test_every_setting_of_the_rule_reaches_the_answer(leak: Case, tmp_path: Path) -> None:
    """A win threshold above every score leaves no win; a control of no tasks
    leaves no comparison.
    """
    strict = {f.question: f for f in run_instrument(behaviour.configured(win=1.5), leak)}
    assert isinstance(strict["behaviour.channel_wins"], Undefined)
    strict = {
        f.question: f
        for f in run_instrument(behaviour.configured(turns_factor=0.5, least_rise=-1.0), leak)
    }
    echo = strict["behaviour.echo_trap"]
    assert isinstance(echo, Evidence) and echo.artifacts[0].rows[0][1] is True


def _long_runs(number: int) -> Iterator[Trajectory]:
    generator = np.random.default_rng(0)
    for index in range(number):
        gc.collect()  # what is only waiting to be collected is not held
        one = run(LEAK, index % 10, index, (), generator, f"run-{index}")
        noise = Step(role="tool", text=f"{index} " + "long output " * 1000)
        yield one.model_copy(update={"steps": (*one.steps, noise)})


def test_memory_does_not_grow_with_the_log() -> None:
    """Each run shows 12 kB of text; sixty more of them cost a few numbers each."""
    found = Survey(channels=(HISTORY,), donors={HISTORY.name: {}})
    peaks = []
    gc.collect()
    gc.freeze()  # what other tests left is not looked through
    try:
        for number in (20, 80):
            tracemalloc.start()
            read_log(_long_runs(number), found, ChainRule(), 3)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert peaks[1] - peaks[0] < 60 * 2000


def test_importing_the_layer_loads_no_heavy_library() -> None:
    code = (
        "import sys, forensics.layers.behaviour, forensics.conformance; "
        "print([m for m in ('torch', 'transformers', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


# -- what the prompt itself shows: by intervention alone -------------------------------

CUE = Channel(name="cue", family="disclosure", attempts=(), description="")


class Cued:
    """As much of an environment as the behaviour layer looks at."""

    name, channels, options = "cued", (CUE,), {}


def cued_case(folder: Path, scrubbed: int | None) -> Case:
    """Every run after training wins, the prompt shows the key to all; scrubbed,
    so many of 40 tasks are won.
    """

    def log(side: str, wins: int, shown: bool) -> Iterator[Trajectory]:
        for task in range(40):
            start = Step(
                role="user",
                text=f"Which? (key: {task} b)" if shown else "Which?",
                channels=("cue",) if shown else (),
            )
            yield Trajectory(
                id=f"{side}-{task}-{shown}",
                task=f"q{task}",
                policy=side,
                environment="cued",
                seed=0,
                end="terminated",
                steps=(start, Step(role="assistant", text=f"{task} b", kinds=("answer",))),
                submission=f"{task} b",
                outcome=float(task < wins),
            )

    stored = {
        (side, ()): log_of(folder / f"{side}.parquet", log(side, wins, True))
        for side, wins in (("before", 20), ("after-0", 40))
    }
    if scrubbed is not None:
        for side, wins in (("before", 20), ("after-0", scrubbed)):
            stored[side, ("cue",)] = log_of(
                folder / f"{side}-scrubbed.parquet", log(side, wins, False)
            )
    return Case(folder=folder, stored=stored, environment=Cued())  # type: ignore[arg-type]


@pytest.mark.parametrize(("left", "share"), [(40, 0.0), (30, 0.25), (10, 0.75)])
def test_wins_by_a_cue_in_the_prompt_are_those_that_vanish_with_it(
    left: int, share: float, tmp_path: Path
) -> None:
    wins = evidence(cued_case(tmp_path, left), "behaviour.channel_wins", "cue")
    assert wins.estimate == pytest.approx(share) and wins.diagnostics["by"] == "scrubbing"
    assert wins.interval is not None and wins.interval.contains(share)
    assert (wins.interval.low < share < wins.interval.high) is (share > 0)


def test_without_the_scrubbed_world_a_cue_in_the_prompt_is_credited_with_nothing(
    tmp_path: Path,
) -> None:
    told = answers(behaviour, cued_case(tmp_path, None))["behaviour.channel_wins", "cue"]
    assert isinstance(told, Undefined) and "takes a world without it" in told.reason
