"""The measures of runs against their definitions written plainly: what is done
to be fast changes no number.
"""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from forensics.layers import degeneracy as fast
from forensics.layers.actions import (
    Answer,
    Exchange,
    Turn,
    _glance,
    alternating,
    answer_of,
    exchanges_of,
    idle_repeats,
    turns_of,
)
from forensics.layers.text_words import normalised, words
from forensics.readers import read_logs
from forensics.records import Step, Trajectory
from tests.episodes import episode_of

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGS = ("gemini3_miniswe", "sweagent_demos", "tau_bench", "inspect_logs", "trl_grpo_rollouts")
PIECES = st.sampled_from(
    [
        "line 12",
        "lines: 7",
        "LINE\t3",
        "3 lines",
        "17 Lines",
        "row 9",
        "col:4",
        "columns 1",
        " 12: x = 1",
        "7|",
        "5\tdef f(",
        "\u0661: y",
        "l\u0130ne 4",
        "3 l\u0131nes",
        "Line\u00a08",
        "\x1f",
        "\x85",
        "\u2028",
        " ",
        "\n",
        "\n\n",
        "  ",
        "foo.bar(a, b)",
        "é",
        "don't",
        "==",
        "a b a b",
        "the",
        "quick",
        "_x1",
        "日本",
        "12",
        ":",
        "`",
        "x",
    ]
)
TEXTS = (
    st.lists(PIECES, max_size=40).map("".join)
    | st.lists(PIECES, max_size=40).map(" ".join)
    | st.text(max_size=60)
)


def plain_normalised(text: str) -> str:
    return " ".join(
        re.sub(r"\b(line|lines|row|column|col)(\s+|:\s*)\d+", r"\1 #", text, flags=re.I).split()
    )


def plain_lines(observation: str) -> list[str]:
    numbered = (
        re.sub(r"^\s*\d+\s*[:|\t]\s*", "", line)
        for line in observation.splitlines()
        if line.strip()
    )
    return [
        re.sub(r"\b\d+(?=\s+lines?\b)", "#", plain_normalised(line), flags=re.I)
        for line in numbered
    ]


def plain_grams(text: str, size: int) -> list[tuple[str, ...]]:
    found = words(text)
    return [tuple(found[i : i + size]) for i in range(len(found) - size + 1)]


def plain_echo(run: Trajectory, turns: list[Turn], size: int) -> float | None:
    written = copied = echoing = 0
    for turn in turns[1:]:
        own = plain_grams(turn.written, size)
        before = run.steps[turn.step - 1]
        if len(words(turn.written)) >= fast.LONG_TURN and before.role != "assistant":
            shown = set(plain_grams(before.text, size))
            echoing += 1
            written += len(own)
            copied += sum(gram in shown for gram in own)
    return copied / written if echoing >= fast.ECHOING else None


def plain_repeats(text: str, size: int) -> float | None:
    found = plain_grams(text, size)
    return None if len(found) < fast.FEWEST_GRAMS else 1 - len(set(found)) / len(found)


def plain_suffix(texts: list[str]) -> float | None:
    """Turns that were said twice in full, and not three times, are no loop."""
    said = [(word, turn) for turn, text in enumerate(texts) for word in words(text)][-fast.TAIL :]
    end = [word for word, _ in said]
    longest = 0
    for period in range(1, len(end) // 2 + 1):
        same = [end[i] == end[i - period] for i in range(len(end) - 1, period - 1, -1)]
        covered = period + [*same, False].index(False)
        begins = said[-period][1] != said[-period - 1][1]
        if covered >= (3 if begins else 2) * period and covered >= fast.FEWEST_GRAMS:
            longest = max(longest, covered)
    return longest / len(end) if len(end) >= fast.FEWEST_GRAMS else None


def plain_exchanges(turns: list[Turn]) -> list[Exchange]:
    answers = [plain_lines(turn.observation) for turn in turns]
    return [
        (plain_normalised(turn.command), Answer(frozenset(lines), len(lines)))
        for turn, lines in zip(turns, answers, strict=True)
    ]


def same_measures(run: Trajectory) -> None:
    turns = turns_of(run)
    told = fast.degeneracy(run)
    text = "\n".join(turn.written for turn in turns)
    measured = (
        plain_repeats(text, 4),
        plain_suffix([turn.written for turn in turns]),
        plain_echo(run, turns, 8),
    )
    assert (
        told["repeated n-grams"],
        told["longest repeated suffix"],
        told["echoed observation"],
    ) == measured
    plain = plain_exchanges(turns)
    assert idle_repeats(exchanges_of(turns)) == idle_repeats(plain)
    assert alternating(exchanges_of(turns)) == alternating(plain)
    for turn in turns:
        lines = plain_lines(turn.observation)
        assert answer_of(turn.observation) == (frozenset(lines), len(lines))
        assert normalised(turn.command) == plain_normalised(turn.command)


def made(*texts: str) -> Trajectory:
    steps = [
        Step(role="tool" if at % 2 == 0 else "assistant", text=text)
        for at, text in enumerate(texts)
    ]
    return episode_of(steps=tuple(steps), outcome=None)


@given(st.lists(TEXTS, min_size=2, max_size=6))
@example(["a b c d e f g h i j", "x a b c d e f g h y"])
@example(["ab cd e f g h i", "a b c d e f g h i"])
@example(["l\u0130ne 5\nrow:6", "l\u0131ne 5"])
def test_on_any_text(texts: list[str]) -> None:
    same_measures(made(*texts))


@given(TEXTS, TEXTS, TEXTS)
def test_a_copy_is_found_wherever_it_stands(front: str, copy: str, behind: str) -> None:
    same_measures(made(f"{front} {copy} {behind}", f"{behind}{copy} {front}"))


@given(TEXTS, TEXTS)
@example("sed -n 5p x line 7", "sed -n 5p x  line: 8")
def test_a_glance_never_tells_apart_what_is_the_same_action(one: str, other: str) -> None:
    assert _glance(plain_normalised(one)) == _glance(one)
    assert plain_normalised(one) != plain_normalised(other) or _glance(one) == _glance(other)


@pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")
@pytest.mark.parametrize("name", LOGS)
def test_on_real_logs(name: str) -> None:
    runs = [found for found in read_logs(DATA / name) if isinstance(found, Trajectory)][:40]
    assert runs
    for run in runs:
        same_measures(run)
