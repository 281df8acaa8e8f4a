"""What an investigation may cost is bounded and said before it starts, whatever it
finds; and one that is killed goes on where it stopped.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from experiments.phantom_gain.resplits import instruments
from forensics import Budget, investigate
from forensics.case import Case
from forensics.errors import MissingInput
from forensics.harness import HarnessWorld, read_harness
from forensics.instruments import (
    LAYERS,
    Instrument,
    Plays,
    chosen_instruments,
    installed_instruments,
    run_instrument,
)
from forensics.investigation.concluded import Costs, cost_lines, plays_of, time_line
from forensics.policies.scripted import scripted_policy
from forensics.progress import Pace
from forensics.records import Evidence
from forensics.subjects import held_subjects
from forensics.subjects.agent import AgentPolicy
from tests.forensics.scripted_chat import harness
from tests.subjects import playing

ROOT = Path(__file__).parents[1]
PLAYS = ("score", "ablation", "blind-play", "cliffs", "elicitation", "exchange", "renaming")
NONE = Plays(0, 0)
PLAYS = (*PLAYS, "placebo-training", "sufficiency", "variants")


def scripted_case(folder: Path, name: str, tasks: int = 40) -> Case:
    """A stranger's world with both of its policies."""
    world = import_module(f"tests.strangers.{name}")
    sides = scripted_policy(world.BEFORE), scripted_policy(world.AFTER)
    return Case(
        folder=folder,
        environment=world.World(),
        budget=Budget(tasks=tasks, samples=2),
        subjects=held_subjects(*sides),
    )


def tools_of_families() -> list[Instrument]:
    found = chosen_instruments(instruments())
    return sorted(found, key=lambda tool: (LAYERS.index(tool.layer), tool.name))


def played(case: Case) -> int:
    files = (case.folder / "trajectories").glob("*.parquet")
    return sum(pq.read_metadata(file).num_rows for file in files)


# played one by one: fields; kinds of action
@pytest.mark.parametrize("name", ["b_ticket_desk", "a_timetable_halves"])
def test_no_bound_is_exceeded(tmp_path: Path, name: str) -> None:
    case, tools = scripted_case(tmp_path, name), tools_of_families()
    first, closer = plays_of(case, tools), dict[str, Plays]()
    assert not played(case), "bounds play nothing"
    for tool in tools:
        was = played(case)
        answers = list(run_instrument(tool, case))
        if tool.name == "score":
            assert (played(case),) * 2 == first["score"], "known exactly"
            now = played(case)
            closer = plays_of(case, tools)
            assert all(closer.get(one, NONE).most <= plays.most for one, plays in first.items())
            assert sum(most for _, most in closer.values()) < sum(
                most for _, most in first.values()
            )
            assert played(case) == now
        elif tool.unit == "episode":
            assert played(case) - was <= closer.get(tool.name, NONE).most, tool.name
        elif tool.name == "blind-play":
            taken = [
                one.diagnostics["replays"]
                for one in answers
                if isinstance(one, Evidence) and "replays" in one.diagnostics
            ]
            assert 0 < max(map(int, taken)) <= closer["blind-play"].most  # type: ignore[arg-type]
    assert first.keys() <= set(PLAYS)


def test_what_is_likely_is_what_first_looks_play(tmp_path: Path) -> None:
    """In this world each of these is settled by its first look."""
    case = scripted_case(tmp_path, "b_config_banner", 80)
    (score,) = chosen_instruments(["score"])
    list(run_instrument(score, case))
    tools = chosen_instruments(["ablation", "exchange", "renaming", "variants"])
    known = plays_of(case, tools)
    assert sum(likely < most for likely, most in known.values()) == 3
    for tool in tools:
        was = played(case)
        list(run_instrument(tool, case))
        assert played(case) - was == known[tool.name].likely, tool.name


def test_every_instrument_that_plays_says_so() -> None:
    declared = {tool.name for tool in installed_instruments() if tool.episodes is not None}
    assert declared == set(PLAYS)
    units = {tool.name: tool.unit for tool in installed_instruments() if tool.unit != "episode"}
    assert units == {"blind-play": "replay", "cliffs": "continuation"}


def test_without_a_gain_there_is_nothing_to_play(tmp_path: Path) -> None:
    case, tools = scripted_case(tmp_path, "b_ticket_desk", 20), tools_of_families()
    case = playing(case, {"after-0": case.subject("before").open})
    for tool in tools:
        if tool.name == "score":
            list(run_instrument(tool, case))
    assert set(plays_of(case, tools)) == {"score"}


def test_what_cannot_be_done_to_an_agent_costs_nothing(tmp_path: Path) -> None:
    """Neither what it is shown nor its tokens can be changed; it can be refused actions, and drawn
    at other temperatures.
    """
    told: dict[str, Any] = {"url": "http://127.0.0.1:9/v1", "folder": tmp_path / "kept"}
    sides = [AgentPolicy(identity=name, model=name, **told) for name in ("few", "some")]
    case = Case(
        folder=tmp_path,
        environment=HarnessWorld(read_harness(harness(tmp_path / "h", tasks=10))),
        budget=Budget(tasks=10, samples=1),
        subjects=held_subjects(*sides),
    )
    plays = plays_of(case, installed_instruments())
    assert set(plays) == {"score", "ablation", "elicitation"}
    assert plays["elicitation"].most == 10 * 4


def test_lines_are_said_before_the_start_and_closer_ones_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = import_module("tests.strangers.b_ticket_desk")
    seen: list[tuple[str, int]] = []

    def progress(what: str, done: int, of: int) -> None:
        seen.append((what, len(caplog.messages)))

    with caplog.at_level(logging.INFO, "forensics"):
        investigate(
            scripted_policy(world.BEFORE),
            scripted_policy(world.AFTER),
            world.World(),
            budget=Budget(tasks=20, samples=2),
            instruments=["score", "renaming", "blind-play"],
            out=tmp_path / "case",
            device="cpu",
            formats=(),
            progress=progress,
        )
    said = caplog.messages
    assert said[:4] == [
        "score: at most 80 episodes",
        "blind-play: likely some 400, at most 1,080 replays",
        "renaming: likely some 80, at most 480 episodes",
        "All together: likely some 160, at most 560 episodes; likely some 400, at most"
        " 1,080 replays",
    ]
    assert said[4].startswith("The policies' own runs are there") and len(said) > 5
    first = next(lines for what, lines in seen if "open" in what)
    assert first == 4, "before the first episode"


def test_a_bound_that_cannot_be_told_is_no_bound_of_another(tmp_path: Path) -> None:
    def fails(case: Case, config: object) -> int:
        raise MissingInput("Nothing is there.", "Give it.")

    def nothing(case: Case, config: object) -> Iterator[Evidence]:
        yield from ()

    tool = Instrument(
        name="one", layer="score", questions=(), config=None, measure=nothing, episodes=fails
    )
    assert plays_of(scripted_case(tmp_path, "b_ticket_desk"), [tool]) == {}
    assert list(cost_lines({}, {})) == []
    assert Costs(Case(folder=tmp_path)).say([tool]), "logs alone play nothing"


def test_likely_figures_stand_beside_their_bounds() -> None:
    plays = {"a": Plays(1234, 5678), "b": Plays(1, 1), "c": Plays(0, 7), "d": Plays(99, 100)}
    assert list(cost_lines(plays, {"b": "replay", "c": "continuation"})) == [
        "a: likely some 1,200, at most 5,678 episodes",
        "b: at most 1 replay",
        "c: likely none, at most 7 continuations",
        "d: likely some 99, at most 100 episodes",
        "All together: likely some 1,300, at most 5,778 episodes; at most 1 replay; likely none,"
        " at most 7 continuations",
    ]
    assert time_line(5.0, Plays(1800, 90_000)) == (
        "At 5 episodes a second so far, what is left to play likely takes some 6 minutes, at most"
        " 5 hours."
    )
    assert time_line(1234.5, Plays(600, 600)).startswith("At 1,234 episodes a second so far")
    assert time_line(0.25, Plays(10, 10)).endswith("what is left to play takes at most 40 seconds.")


@pytest.mark.parametrize("name,said", [("b_config_banner", 1), ("b_ticket_desk", 0)])
def test_a_world_with_channels_is_cheaper_where_no_gain_survives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, said: int
) -> None:
    """The second world declares none, so all of its gain is tested."""
    case, tools = scripted_case(tmp_path, name), chosen_instruments(["score", "renaming", "cliffs"])
    with caplog.at_level(logging.INFO, "forensics"):
        Costs(case).say(tools)
    assert [one for one in caplog.messages if one.startswith("If no gain")] == said * [
        "If no gain survives scrubbing: likely some 1,300, at most 5,000 continuations; at most 320"
        " episodes"
    ]


def test_a_number_alone_is_a_bound_that_counts_as_likely_too(tmp_path: Path) -> None:
    def tool(name: str, told: int | Plays) -> Instrument:
        kind, config = chosen_instruments(["score"])[0], {"episodes": lambda case, config: told}
        return replace(kind, name=name, **config)

    case = scripted_case(tmp_path, "b_ticket_desk")
    tools = [tool("a", 7), tool("b", Plays(9, 8)), tool("c", Plays(0, 0))]
    assert plays_of(case, tools) == {"a": Plays(7, 7), "b": Plays(8, 8)}


def test_the_pace_is_that_of_whole_batches() -> None:
    """Batches of four take 4 s; what is done with the episodes meanwhile does not count."""
    now, told = [0.0], list[tuple[int, float | None]]()
    pace = Pace(lambda: now[0])
    pace.told = lambda: told.append((pace.episodes, pace.a_second))

    def batches() -> Iterator[int]:
        for number in range(12):
            now[0] += 4.0 if number % 4 == 0 else 0.0
            yield number

    for _ in pace.timed(batches()):
        now[0] += 100
    assert told == [(8, 1.0)] and pace.a_second == 1.0
    assert list(pace.timed(batches())) == list(range(12)) and len(told) == 1
    assert (pace.episodes, pace.seconds, pace.a_second) == (24, 24.0, 1.0)


def test_time_is_told_of_what_is_left_once_it_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reading of the clock is a second later, so an episode takes one."""
    seconds = iter(range(10**6))
    case = scripted_case(tmp_path, "b_ticket_desk", 20)
    case = replace(case, pace=Pace(lambda: float(next(seconds))))
    with caplog.at_level(logging.INFO, "forensics"):
        score = chosen_instruments(["score"])
        assert not Costs(case).say(score)
        assert caplog.messages == [
            "score: at most 80 episodes",
            "All together: at most 80 episodes",
        ]
        list(run_instrument(score[0], case))
    assert case.pace.episodes == 80, "every one is counted"
    assert caplog.messages[2:] == [
        "At 1 episode a second so far, what is left to play takes at most 75 seconds."
    ]


# -- kill -9 ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "what,points,kept",
    [
        ("investigation", (3, 9), ("evidence.jsonl", "ablation.jsonl")),
        ("base", (5, 4), ("checkpoint/model.safetensors",)),
    ],
)
def test_a_run_that_is_killed_twice_gives_the_same_bytes(
    tmp_path: Path, what: str, points: tuple[int, ...], kept: tuple[str, ...]
) -> None:
    """The second point is counted from where the first one left it."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    runs = [f"{whole}=0", *(f"{killed}={number}" for number in points), f"{killed}=0"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.killed", what, *runs],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    codes = [int(line) for line in done.stdout.split("\n") if line.lstrip("-").isdigit()]
    assert codes == [0, -signal.SIGKILL, -signal.SIGKILL, 0], done.stderr[-2000:]
    for name in kept:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
