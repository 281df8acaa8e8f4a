"""The measures of runs against their definitions written plainly: what is done to be fast changes no number."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forensics.acts import acts_of
from forensics.layers import degeneracy as fast
from forensics.layers.actions import Turn, answer_of, turns_of
from forensics.layers.words import normalised, words
from forensics.readers.finding import open_logs
from forensics.records import Step, Trajectory
from forensics.scanning import families
from forensics.scanning.matching import Hit, hits_of, matches
from forensics.scanning.scene import Scene

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGS = ("gemini3_miniswe", "sweagent_demos", "tau_bench", "inspect_logs", "trl_grpo_rollouts")
PIECES = st.sampled_from([
    "line 12", "lines: 7", "LINE\t3", "3 lines", "17 Lines", "row 9", "col:4", "columns 1", " 12: x = 1", "7|",
    "5\tdef f(", "\u0661: y", "l\u0130ne 4", "3 l\u0131nes", "Line\u00a08", "\x1f", "\x85", "\u2028", " ", "\n",
    "\n\n", "  ", "foo.bar(a, b)", "é", "don't", "==", "a b a b", "the", "quick", "_x1", "日本", "12", ":", "`", "x",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.lists(PIECES, max_size=40).map(" ".join) | st.text(max_size=60)


def plain_normalised(text: str) -> str:
    return " ".join(re.sub(r"\b(line|lines|row|column|col)(\s+|:\s*)\d+", r"\1 #", text, flags=re.I).split())


def plain_lines(observation: str) -> list[str]:
    numbered = (re.sub(r"^\s*\d+\s*[:|\t]\s*", "", line) for line in observation.splitlines() if line.strip())
    return [re.sub(r"\b\d+(?=\s+lines?\b)", "#", plain_normalised(line), flags=re.I) for line in numbered]


def plain_grams(text: str, size: int) -> list[tuple[str, ...]]:
    found = words(text)
    return [tuple(found[i : i + size]) for i in range(len(found) - size + 1)]


def plain_echo(run: Trajectory, turns: list[Turn], size: int) -> float | None:
    written = copied = 0
    for turn in turns:
        own = plain_grams(turn.written, size)
        before = run.steps[turn.step - 1] if turn.step else None
        if own and before is not None and before.role != "assistant":
            shown = set(plain_grams(before.text, size))
            written += len(own)
            copied += sum(gram in shown for gram in own)
    return copied / written if written else None


def plain_repeats(text: str, size: int) -> float | None:
    found = plain_grams(text, size)
    return None if len(found) < fast.FEWEST_GRAMS else 1 - len(set(found)) / len(found)


def same_measures(run: Trajectory) -> None:
    turns = turns_of(run)
    told = fast.degeneracy(run)
    text = "\n".join(turn.written for turn in turns)
    assert told["repeated n-grams"] == plain_repeats(text, 4)
    assert told["echoed observation"] == plain_echo(run, turns, 8)
    assert told["longest repeated suffix"] == fast.repeated_suffix(words(text))
    for turn in turns:
        lines = plain_lines(turn.observation)
        assert answer_of(turn.observation) == (frozenset(lines), len(lines))
        assert normalised(turn.command) == plain_normalised(turn.command)


def same_hits(run: Trajectory) -> None:
    scene = Scene(run, acts_of(run))
    for family in families():
        plain = []
        for act in scene.acts:
            chosen = next((pattern for pattern in family.attempt if matches(pattern, act, scene)), None)
            if chosen is not None and not any(matches(twin, act, scene) for twin in family.twin):
                plain.append(Hit(act, chosen.id))
        assert hits_of(family, scene) == tuple(plain)


def made(*texts: str) -> Trajectory:
    steps = [Step(role="tool" if at % 2 == 0 else "assistant", text=text) for at, text in enumerate(texts)]
    return Trajectory(
        id="r", task="t", policy="p", environment="e", seed=0, steps=tuple(steps), outcome=None, end="terminated"
    )


@given(st.lists(TEXTS, min_size=2, max_size=6))
@example(["a b c d e f g h i j", "x a b c d e f g h y"])
@example(["ab cd e f g h i", "a b c d e f g h i"])
@example(["l\u0130ne 5\nrow:6", "l\u0131ne 5"])
def test_on_any_text(texts: list[str]) -> None:
    same_measures(made(*texts))


@given(TEXTS, TEXTS, TEXTS, st.sampled_from([0, fast.MOST_SEARCHED]))
def test_a_copy_is_found_wherever_it_stands(front: str, copy: str, behind: str, searched: int) -> None:
    run = made(f"{front} {copy} {behind}", f"{behind}{copy} {front}")
    own = words(run.steps[1].text)
    before, fast.MOST_SEARCHED = fast.MOST_SEARCHED, searched  # 0: the grams of the observation are listed
    try:
        for size in (1, 2, 3, 8):
            shown = set(plain_grams(run.steps[0].text, size))
            plain = sum(gram in shown for gram in plain_grams(run.steps[1].text, size))
            assert fast._copied(own, run.steps[0].text, size) == plain
    finally:
        fast.MOST_SEARCHED = before


def test_more_words_than_fit_into_one_number() -> None:
    text = " ".join(f"w{n}" for n in range(60_000)) + " w0 w1 w2 w3"
    assert fast.repeated_ngrams(words(text)) == plain_repeats(text, 4) == pytest.approx(1 / 60_001)


@pytest.mark.skipif(not DATA.exists(), reason="needs the shared data")
@pytest.mark.parametrize("name", LOGS)
def test_on_real_logs(name: str) -> None:
    runs = [found for found in open_logs(DATA / name) if isinstance(found, Trajectory)][:40]
    assert runs
    for run in runs:
        same_measures(run)
        same_hits(run)
