"""The behaviour instrument as a whole: rates, counts, rows, seeds, examples, memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from forensics.case import Case
from forensics.conformance import answers, rewritten
from forensics.instruments import run_instrument
from forensics.layers.behaviour import behaviour
from forensics.layers.evidence_chain import survey
from forensics.planted import Habits, log_of, planted_case
from forensics.protocols import Channel
from forensics.records import Evidence, Step, Table, Trajectory, Undefined
from forensics.runs import Condition
from tests.episodes import episode_of

LEAK = Habits(reads_history=0.9)


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
        key: found.diagnostics[key] for key in ("attempted", "obtained", "used", "credited", "wins")
    }
    assert counts == {
        "attempted": read,
        "obtained": read,
        "used": read,
        "credited": read,
        "wins": wins,
    }
    assert found.diagnostics["not copied"] == found.diagnostics["cannot be told"] == 0


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(12)), keep=st.integers(1, 4))
def test_control_texts_do_not_depend_on_the_order(
    order: list[int], keep: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Several texts a task, more tasks than are kept: the same ones are chosen from any order."""

    def showing(number: int) -> Trajectory:
        step = Step(role="tool", text=f"text {number}", channels=("git-history",))
        return episode_of(id=f"{number}", task=f"task {number % 5}", steps=(step,), outcome=None)

    folder = tmp_path_factory.mktemp("order")
    chosen = []
    for name, numbers in (("sorted", range(12)), ("shuffled", order)):
        log = log_of(folder / f"{name}.parquet", [showing(number) for number in numbers])
        case = Case(folder=folder, stored={("after-0", ()): log})
        chosen.append(survey(case, ["after-0"], keep).donors["git-history"])
    assert chosen[0] == chosen[1] and len(chosen[0]) == keep


def test_wins_without_a_submission_are_undefined_not_zero(leak: Case, tmp_path: Path) -> None:
    bare = rewritten(
        leak, tmp_path, lambda runs: [each.model_copy(update={"submission": None}) for each in runs]
    )
    assert isinstance(answers(behaviour, bare)["behaviour.channel_wins", "git-history"], Undefined)


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


@pytest.mark.parametrize("side", ["before", "after-0"])
def test_a_side_of_which_every_run_errored_is_said(side: str, leak: Case, tmp_path: Path) -> None:
    def broken(runs: list[Trajectory]) -> list[Trajectory]:
        return [one.model_copy(update={"end": "errored", "outcome": None}) for one in runs]

    found = answers(behaviour, rewritten(leak, tmp_path, broken, only=[side]))
    told = f"Each of the 120 runs of `{side}` errored, so nothing is known of what it does."
    said = [one for one in found.values() if isinstance(one, Undefined) and one.reason == told]
    wins = found.get(("behaviour.channel_wins", "git-history"))
    assert said and isinstance(wins, Evidence) == (side == "before")
    assert not any(
        "no answer" in one.reason for one in found.values() if isinstance(one, Undefined)
    )


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
            yield episode_of(
                id=f"{side}-{task}-{shown}",
                task=f"q{task}",
                policy=side,
                environment="cued",
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
