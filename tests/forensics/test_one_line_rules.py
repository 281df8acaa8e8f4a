"""Could one line of code win a set, and what stands in rows."""

import random
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.layers.one_line_rules import examine, plain, rows_of, shuffled

ROWS = {
    "Largest of 3, 9, 4?": ["3", "9", "4"],
    "3 9 4 12": ["3", "9", "4", "12"],
    "of 3, 9, and 4.": ["3", "9", "4"],
    "-1; 2.5; 7": ["-1", "2.5", "7"],
    "1\\n20\\n300": ["1", "20", "300"],
    "Words: red, green, blue and pink.": ["red", "green", "blue", "pink"],
    "A) cat B) dog C) a long one\\nAnswer:": ["cat", "dog", "a long one"],
    "a: 12 b: 13 c: 14": ["12", "13", "14"],
    "1. one\\n2. two\\n3. three": ["one", "two", "three"],
    "- x y\\n- z\\n- foo": ["x y", "z", "foo"],
    "Name: Anna\\nAge: 31\\nTown: Rome": ["Name: Anna", "Age: 31", "Town: Rome"],
}
NO_ROWS = [
    "It cost 1,000,000 in all",
    "on 2024-05-01 at 12:30:15",
    "the points (3, 4) and (5, 6)",
    "What is 14 + 16 + 18?",
    "one, two",
    "3, 4",
]


@pytest.mark.parametrize("text", ROWS)
def test_what_stands_in_a_row(text: str) -> None:
    (row,) = rows_of(text.replace("\\n", "\n"))
    assert [text.replace("\\n", "\n")[slice(*span)] for span in row.spans] == ROWS[text]


@pytest.mark.parametrize("text", NO_ROWS)
def test_what_does_not(text: str) -> None:
    assert rows_of(text) == () and shuffled(text, np.random.default_rng(0)) == text


LONG = [" ", "a-", "A) x B) y C) z\n", "1, 2, 3\nabc def\n", "1, 2, 3 x\n"]


@pytest.mark.parametrize("text", LONG)
def test_a_long_text_is_read_in_one_go(text: str) -> None:
    """Whatever takes the square of its length does not come back."""
    many = len(rows_of(text * 5 + "."))
    assert len(rows_of(text * 50_000 + ".")) == (10_000 * many if many > 1 else many)


@given(st.lists(st.integers(-999, 999), min_size=3, max_size=9, unique=True), st.integers(0, 9))
def test_shuffling_moves_alike_things_alone(numbers: list[int], seed: int) -> None:
    text = f"Which is the largest of {', '.join(map(str, numbers))}? Say it."
    other = shuffled(text, np.random.default_rng(seed))
    assert other != text and re.sub(r"-?\d+", "0", other) == re.sub(r"-?\d+", "0", text)
    assert sorted(map(int, re.findall(r"-?\d+", other))) == sorted(numbers)


def lists(draw: random.Random, number: int, ordered: bool) -> tuple[dict[str, str], dict[str, str]]:
    prompts, answers = {}, {}
    for place in range(number):
        drawn = draw.sample(range(10, 100), 5)
        listed = sorted(drawn) if ordered else drawn
        prompts[f"{place}"] = f"List: {', '.join(map(str, listed))}\nWhich is the largest?"
        answers[f"{place}"] = f"{max(drawn)}.0"
    return prompts, answers


def test_a_sorted_list_has_two_lines_of_code() -> None:
    found = examine(*lists(random.Random(0), 160, ordered=True))
    assert found.sentence.startswith(
        "The last number of the prompt is the answer on 160 of 160 tasks; so is the largest number;"
        " nothing in this set tells them apart."
    )
    shuffled_set = examine(*lists(random.Random(0), 160, ordered=False))
    assert shuffled_set.rules[shuffled_set.winning[0]].name == "largest-number"
    assert "so is" not in shuffled_set.sentence


def test_chance_is_the_best_of_the_table() -> None:
    """Where answers hang on nothing, the table wins more than chance once in twenty sets."""
    false = 0
    for seed in range(100):
        draw = random.Random(seed)
        prompts, answers = lists(draw, 60, ordered=False)
        values = list(answers.values())
        draw.shuffle(values)
        false += bool(examine(prompts, dict(zip(answers, values, strict=True))).winning)
    assert false <= 12


@pytest.mark.parametrize(
    ("prompt", "answer", "name"),
    [
        ("{a} and {b}\n{c}\nWhat?", "{c}", "last-number"),
        ("{a} x\nthen {b} of {c}", "{b}", "first-number-of-the-last-line"),
        ("Is it A) {a} B) {b}{b}{b} C) {c}\nLetter?", "B", "letter-of-the-longest-option"),
        ("{a} {b} {c}", "3", "count-of-numbers"),
        ("of x{a}, Y{b}, z{c}", "y{b}", "only-capitalised-item"),
        ("1 2 3 4 5 6 7 8 9 10 {a} 12 {b} {c} 15", "{a}", "eleventh-number"),
    ],
)
def test_rules_by_their_names(prompt: str, answer: str, name: str) -> None:
    draw, prompts, answers = random.Random(0), {}, {}
    for place in range(80):
        values = dict(zip("abc", draw.sample(range(100, 1000), 3), strict=True))
        prompts[f"{place}"], answers[f"{place}"] = prompt.format(**values), answer.format(**values)
    found = examine(prompts, answers)
    best = found.wins.max(initial=0)
    named = {rule.name for rule, wins in zip(found.rules, found.wins, strict=True) if wins == best}
    assert best == 80 and name in named


def test_a_copy_of_a_field_is_a_rule() -> None:
    prompts = {f"{n}": f"(ticket {7 * n + 100}) What is it?" for n in range(50)}
    answers = {f"{n}": f"{n * n}" for n in range(50)}
    fields = {f"{n}": {"note": f"{n * n}"} for n in range(50)}
    assert "note" in examine(prompts, answers, fields).sentence


@pytest.mark.parametrize(
    ("one", "other"), [("1,000", "1000"), ("7.0", "7"), (" Paris.", "paris"), ("**42**", "42")]
)
def test_the_same_answer(one: str, other: str) -> None:
    assert plain(one) == plain(other)
