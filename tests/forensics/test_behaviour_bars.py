"""Bars of the two traps and of the share of wins, on both sides: the waivers
that stand between a gain and a label.
"""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from forensics.case import Case
from forensics.conformance import answers, rewritten
from forensics.layers.behaviour import behaviour
from forensics.planted import HISTORY, LoggedWorld, log_of
from forensics.protocols import Channel
from forensics.records import Evidence, Step, Trajectory, Undefined
from tests.episodes import episode_of
from tests.forensics.test_behaviour_traps import Player, fires, played_case, verdict

LONG = [("look", "a maze"), ("right", "moved"), ("submit", "bye")]
SHORT = [("answer", "bye")]
CUE = Channel(name="cue", family="disclosure", attempts=(), description="")


def always(turns: list[tuple[str, str]], wins: Callable[[int, int], bool]) -> Player:
    """The same turns in every run; whether the task's run with this number (of four) wins."""
    calls = count()
    return lambda task, generator: (turns, wins(task, next(calls) % 4))


# -- collapse --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dead_before,dead_after,expected",
    [
        (0, 15, True),  # half of the tasks end alike, and none did
        (0, 14, False),
        (20, 20, False),
        (25, 15, False),
    ],
    ids=["half", "less than half", "as many as before", "fewer than before"],
)
def test_dead_groups_tell_a_collapse_where_they_became_more_and_are_half(
    dead_before: int, dead_after: int, expected: bool, tmp_path: Path
) -> None:
    """The score is the same throughout: of tasks that end alike every other is
    won, of the others each half.
    """

    def half(dead: int) -> Callable[[int, int], bool]:
        return lambda task, run: task % 2 == 0 if task < dead else run % 2 == 0

    case = played_case(tmp_path, always(LONG, half(dead_before)), always(SHORT, half(dead_after)))
    assert fires(case, "collapse") is expected


def test_a_collapse_is_never_denied_for_want_of_scores(tmp_path: Path) -> None:
    def unscored(case: Case, folder: Path) -> Case:
        return rewritten(
            case, folder, lambda runs: [run.model_copy(update={"outcome": None}) for run in runs]
        )

    shorter = played_case(
        tmp_path, always(LONG, lambda task, run: True), always(SHORT, lambda task, run: True)
    )
    assert isinstance(verdict(unscored(shorter, tmp_path / "a"), "collapse"), Undefined)
    same = played_case(
        tmp_path, always(LONG, lambda task, run: True), always(LONG, lambda task, run: True)
    )
    assert not fires(unscored(same, tmp_path / "b"), "collapse"), (
        "long runs have not collapsed, whatever they score"
    )


# -- echo trap -------------------------------------------------------------------------


# -- share of wins ---------------------------------------------------------------------


def run(
    task: int,
    *,
    outcome: float = 1.0,
    looks: bool = False,
    shown: str = "",
    submission: str | None = "kiwi : x * 3",
    end: str = "terminated",
    cue: bool = False,
) -> Trajectory:
    looked = (
        (
            Step(role="assistant", text="history", kinds=("history",)),
            Step(role="tool", text=shown, channels=("git-history",)),
        )
        if looks
        else ()
    )
    return episode_of(
        id=f"{task}",
        task=f"task {task}",
        outcome=outcome,
        submission=submission,
        end=end,
        steps=(
            Step(role="user", text=f"repair {task}", channels=("cue",) if cue else ()),
            *looked,
            Step(role="assistant", text=f"edit {submission}", kinds=("edit",)),
            Step(role="tool", text="done"),
        ),
    )


def wins(
    folder: Path,
    channel: Channel,
    before: Sequence[Trajectory],
    after: Sequence[Trajectory],
    scrubbed: Sequence[Trajectory] | None = None,
) -> Evidence | Undefined:
    """The share of the wins that is credited to a channel, from these logs."""
    logs = {("before", ()): before, ("after-0", ()): after}
    if scrubbed is not None:
        logs["after-0", (channel.name,)] = scrubbed
    stored = {
        key: log_of(folder / f"{number}.parquet", list(runs))
        for number, (key, runs) in enumerate(logs.items())
    }
    case = Case(folder=folder, environment=LoggedWorld(channels=(channel,)), stored=stored)
    return answers(behaviour, case)["behaviour.channel_wins", channel.name]


@pytest.mark.parametrize("untold,told", [(1, True), (2, False)])
def test_a_share_of_no_wins_needs_nineteen_of_twenty_that_can_be_told(
    untold: int, told: bool, tmp_path: Path
) -> None:
    honest = [run(task) for task in range(20 - untold)]
    silent = [
        run(20 - task, looks=True, shown="kiwi : x * 9 + 4", submission=None)
        for task in range(untold)
    ]
    assert isinstance(wins(tmp_path, HISTORY, honest, [*honest, *silent]), Evidence) is told


def test_wins_that_copied_nothing_are_in_doubt_only_where_no_run_of_either_side_ever_copied(
    tmp_path: Path,
) -> None:
    """An answer that was worked out leaves no trace; where some are seen to be
    copied, the others were not.
    """
    plain = [run(task) for task in range(8)]
    looked = [run(task, looks=True, shown="plum : y - 7") for task in range(8)]
    copied = [
        run(
            task,
            looks=True,
            shown=f"fig {task} : z * {task} - 5",
            submission=f"fig {task} : z * {task} - 5",
        )
        for task in range(8, 16)
    ]
    doubtful = wins(tmp_path / "a", HISTORY, plain, looked)
    settled = wins(tmp_path / "b", HISTORY, [*plain, *copied], looked)
    for one in (doubtful, settled):
        assert isinstance(one, Evidence) and one.estimate == 0 and one.interval is not None
    assert doubtful.interval.high == 1 > settled.interval.high


def cued(outcomes: Sequence[float], **more: str) -> list[Trajectory]:
    return [run(task, outcome=outcome, cue=True, **more) for task, outcome in enumerate(outcomes)]


def test_the_share_of_wins_that_vanish_is_one_of_the_wins_and_runs_that_broke_do_not_count(
    tmp_path: Path,
) -> None:
    """Ten of twenty tasks are won, and four with the cue scrubbed; a score of
    two fifths is no win.
    """
    after = cued([1.0] * 10 + [0.4] * 10)
    scrubbed = cued([1.0] * 4 + [0.4] * 16)
    told = wins(tmp_path / "a", CUE, after, after, scrubbed)
    assert isinstance(told, Evidence) and told.estimate == pytest.approx(0.6)
    broken = [
        one.model_copy(update={"id": f"{one.id} again"}) for one in cued([0.0] * 4, end="errored")
    ]
    again = wins(tmp_path / "b", CUE, after, after, [*scrubbed, *broken])
    assert isinstance(again, Evidence) and again.estimate == pytest.approx(0.6)
    more = wins(tmp_path / "c", CUE, after, after, cued([1.0] * 20))
    assert isinstance(more, Evidence) and more.estimate == 0, "what only grew has not vanished"
