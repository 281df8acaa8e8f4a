"""Words as numbers: equal where the words are, and only there, against the words themselves."""

import sys
from collections.abc import Hashable, Sequence

import pytest
from hypothesis import example, given, strategies as st

from forensics.layers.text_words import grams, words
from forensics.layers.word_numbers import Numbers, gram_numbers, word_numbers

PIECES = st.sampled_from(
    [
        "a",
        "ab",
        "implement",
        "implementation",
        "implementations",
        "implementable",
        "implementation_of",
        "x" * 8,
        "x" * 9,
        "x" * 16,
        "x" * 17,
        "x" * 25,
        "x" * 24 + "y",
        "_",
        "0",
        "\0",
        "\x7f",
        " ",
        "\n",
        "\x1c",
        "\x85",
        "\u2028",
        "\u00a0",
        "(",
        ")",
        "==",
        "é",
        "naïve",
        "日本語",
        "…",
        "\u0301",
        "𝒳",
        "😀",
        "\ud800",
        "\uffff",
        "`",
        "\t",
    ]
)
TEXTS = (
    st.lists(PIECES, max_size=30).map("".join)
    | st.lists(PIECES, max_size=30).map(" ".join)
    | st.text()
)


def same_partition(numbers: Numbers, things: Sequence[Hashable]) -> None:
    """Equal numbers where the things are equal and only there, each below how many there are."""
    found = numbers.tolist()
    assert len(found) == len(things) and all(0 <= number < len(things) for number in found)
    assert len(set(zip(found, things, strict=True))) == len(set(found)) == len(set(things))


def same_words(texts: list[str]) -> None:
    numbers, text = word_numbers(texts)
    assert text.tolist() == [place for place, text in enumerate(texts) for _ in words(text)]
    same_partition(numbers, [word for text in texts for word in words(text)])


@given(st.lists(TEXTS, max_size=6))
@example([])
@example(["", "", "a"])
@example(["x" * 8 + "y" * 8 + "z", "x" * 8 + "z" * 8 + "z", "x" * 8 + "y" * 8 + "z"])
def test_words_are_told_apart(texts: list[str]) -> None:
    same_words(texts)


@pytest.mark.slow
def test_every_character_is_of_the_same_kind_as_in_a_pattern() -> None:
    for start in range(0, sys.maxunicode + 1, 1 << 16):
        same_words(["".join(f"a{chr(code)}b" for code in range(start, start + (1 << 16)))])


def test_long_words_that_differ_only_at_their_ends() -> None:
    same_words([" ".join("w" * length + end for length in range(40) for end in ("", "a", "b"))] * 2)


@given(st.lists(st.sampled_from("abc"), max_size=40))
@example([f"w{number}" for number in range(70_000)] + ["w0", "w1", "w2", "w3", "w4"] * 3)
def test_runs_of_words_are_told_apart(sequence: list[str]) -> None:
    numbers, _ = word_numbers([" ".join(sequence)])
    expected = list(grams(sequence, 4))
    found = gram_numbers(numbers, 4)
    assert (
        len(set(zip(found.tolist(), expected, strict=True)))
        == len(set(found.tolist()))
        == len(set(expected))
    )
