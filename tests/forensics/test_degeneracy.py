"""Degeneracy measures: both ends, closed forms, benign twins, and real degenerate outputs."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.layers.actions import exchanges_of, idle_repeats, turns_of
from forensics.layers.degeneracy import (
    MEASURES,
    compression_ratio,
    degeneracy,
    measures_of_writing,
    repeated_suffix,
)
from forensics.layers.text_words import words
from forensics.records import Step, Trajectory
from tests.episodes import episode_of

DATA = Path(__file__).parents[3] / "shared" / "data"


def repeated_ngrams(text: str) -> float | None:
    return measures_of_writing([text], [None])[0]


def played(*turns: tuple[str, str], kinds: tuple[str, ...] = ("act",)) -> Trajectory:
    steps = [Step(role="user", text="go")]
    for action, answer in turns:
        steps += [Step(role="assistant", text=action, kinds=kinds), Step(role="tool", text=answer)]
    return episode_of(steps=tuple(steps), outcome=None)


def idle(*turns: tuple[str, str]) -> list[bool]:
    return idle_repeats(exchanges_of(turns_of(played(*turns))))


def test_repeating_with_the_same_answer_is_idle() -> None:
    assert idle(("test", "1 failed"), ("test", "1 failed"), ("test", "1 failed")) == [
        False,
        True,
        True,
    ]


def test_the_command_counts_and_not_the_thought_around_it() -> None:
    thoughts = [f"THOUGHT: try {n}\n\n```bash\nmake test\n```" for n in range(3)]
    assert idle(*((thought, "fail") for thought in thoughts)) == [False, True, True]
    reasoned = [f"<think>attempt {n}</think>make test" for n in range(3)]
    assert idle(*((thought, "fail") for thought in reasoned)) == [False, True, True]
    others = [f"THOUGHT: again\n\n```bash\nmake test{n}\n```" for n in range(3)]
    assert not any(idle(*((other, "fail") for other in others)))


def test_polling_is_not_idle() -> None:
    assert not any(idle(*(("status", f"{10 * n} percent") for n in range(6))))


def test_a_test_run_after_an_edit_is_not_idle() -> None:
    turns = [
        ("test", "fail"),
        ("edit 1 a", "done"),
        ("test", "fail"),
        ("edit 1 b", "done"),
        ("test", "fail"),
    ]
    assert not any(idle(*turns))


def test_a_changing_line_number_does_not_hide_a_loop() -> None:
    turns = [("make", f"sh: line {n}: no rule") for n in (3, 17, 40)]
    assert idle(*turns) == [False, True, True]
    assert not any(idle(*(("make", f"sh: exit {n}: no rule") for n in (3, 17, 40))))


def test_a_log_that_grows_by_new_lines_is_polling() -> None:
    turns = [
        ("cat log", "\n".join(f"epoch {i} loss {1 / (i + 1):.3f}" for i in range(n)))
        for n in (1, 2, 3)
    ]
    assert not any(idle(*turns))


def test_a_list_of_failures_that_gets_shorter_is_progress() -> None:
    assert not any(
        idle(("test", "failed\nfailed\nfailed"), ("test", "failed\nfailed"), ("test", "failed"))
    )


def test_all_measures_are_zero_on_a_healthy_run() -> None:
    healthy = played(
        ("open the first file", "a"), ("look for the bug in it", "b"), ("mend it and hand in", "c")
    )
    found = degeneracy(healthy)
    assert tuple(found) == MEASURES
    assert {
        found[name] for name in MEASURES if name not in ("compression ratio", "echoed observation")
    } == {0.0}
    assert found["echoed observation"] is None  # no action is long enough to say


def test_too_short_is_undefined_never_zero() -> None:
    nothing = played()
    assert set(degeneracy(nothing).values()) == {None}
    assert repeated_ngrams("one two three") is None and compression_ratio("short") is None


@given(st.integers(1, 6), st.integers(2, 8), st.integers(0, 20), st.integers(0, 5))
def test_a_loop_at_the_end_is_measured_exactly(
    period: int, times: int, healthy: int, cut: int
) -> None:
    """`healthy` different words, then a loop of different words, cut off
    anywhere in its last round.
    """
    loop = [f"loop{i}" for i in range(period)] * times + [f"loop{i}" for i in range(period)][
        : cut % period
    ]
    sequence = [f"word{i}" for i in range(healthy)] + loop
    found = len(loop) if len(loop) >= 4 else 0  # less is hardly more than a fence or an ellipsis
    expected = found / len(sequence) if len(sequence) >= 4 else None
    assert repeated_suffix(sequence) == expected


def test_monologue_counts_actions_without_an_answer_or_an_act() -> None:
    steps = (
        Step(role="user", text="go"),
        Step(role="assistant", text="let me think"),
        Step(role="assistant", text="more"),
        Step(role="tool", text="?"),
        Step(role="assistant", text="open 1", kinds=("open",)),
        Step(role="tool", text="a"),
    )
    run = played().model_copy(update={"steps": steps})
    assert degeneracy(run)["monologue"] == pytest.approx(2 / 3)


def test_an_echoed_observation_is_a_share() -> None:
    def told(said: list[str], heard: list[str]) -> float | None:
        steps = [Step(role="user", text=heard[0])]
        for text, shown in zip(said, heard, strict=True):
            steps += [Step(role="assistant", text=text), Step(role="tool", text=shown)]
        run = played().model_copy(update={"steps": tuple(steps)})
        return degeneracy(run)["echoed observation"]

    shown = [" ".join(f"word{turn}x{n}" for n in range(40)) for turn in range(4)]
    own = [" ".join(f"own{turn}x{n}" for n in range(40)) for turn in range(4)]
    assert told(["look", *shown[:3]], shown) == 1
    assert told(["look", *own[:3]], shown) == 0
    assert told([shown[0], own[1], own[2], own[3]], shown) == 0, "the prompt is no observation"
    assert told(["look", shown[0], "look", "look"], shown) is None, "once is no habit"
    moves = ["<answer>step to the left or the right</answer>"] * 4
    assert told(moves, [f"{move} or wait" for move in moves]) is None, "a choice is no echo"


# -- real outputs of other projects ----------------------------------------------------


@pytest.mark.skipif(not DATA.exists(), reason="needs the real data beside the repository")
def test_real_token_floods_and_real_answers_are_told_apart() -> None:
    """A GRPO run on images: its floods of `the the the`, and a terse answer beside them."""
    log = DATA / "trl_grpo_rollouts" / "20251107_024506.jsonl"
    with log.open() as lines:
        rows = [json.loads(line) for line in lines]
    scored = {row["completion"]: (repeated_ngrams(row["completion"]) or 0.0) for row in rows}
    flood = max(scored, key=lambda text: scored[text])
    assert "the the the the" in flood and scored[flood] > 0.5
    healthy = [text for text in scored if text.endswith("</answer>") and text.count("<think>") == 1]
    assert len(healthy) > 10 and np.mean([scored[text] for text in healthy]) < 0.05
    flooded_ratio = compression_ratio(flood)
    assert flooded_ratio is not None and flooded_ratio > max(
        compression_ratio(t) or 0 for t in healthy
    )
    assert max(repeated_suffix(words(text)) or 0 for text in healthy) < 0.2


@pytest.mark.skipif(not DATA.exists(), reason="needs the real data beside the repository")
def test_real_coding_agents_hardly_ever_repeat_idly() -> None:
    """33 whole runs of a strong agent, up to 115 turns long: long is not degenerate."""
    paths = sorted((DATA / "gemini3_miniswe").glob("*.traj.json"))
    shares = []
    for path in paths:
        messages = json.loads(path.read_text())["messages"]
        roles = {"assistant": "assistant", "system": "system", "user": "tool"}
        steps = tuple(Step(role=roles[m["role"]], text=str(m["content"])) for m in messages)
        shares.append(degeneracy(played().model_copy(update={"steps": steps}))["action repetition"])
    assert len(shares) > 30 and max(shares) < 0.1 and np.mean(shares) < 0.01


def test_a_turn_that_was_tried_again_once_is_no_loop_yet() -> None:
    query = words("select name from customers where paid is null")
    first = words("let me see what there is")
    for times, looped in ((2, False), (3, True)):
        turns = [0] * len(first) + [n + 1 for n in range(times) for _ in query]
        found = repeated_suffix([*first, *query * times], turns)
        assert found is not None and (found > 0.5) is looped
    assert (repeated_suffix([*first, *query * 2], [0] * len([*first, *query * 2])) or 0) > 0.5
