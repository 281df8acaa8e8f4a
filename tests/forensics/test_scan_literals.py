"""The quick look for literals spares an expression only where it cannot match."""

import re

import pytest
from hypothesis import given, settings, strategies as st

from forensics.actions.python_source import FileEffects, python_effects
from forensics.shortcuts.family import families
from forensics.shortcuts.patterns import literals_of, may_match

WRITTEN = sorted(
    {
        text
        for family in families()
        for text in (family.added, family.failed, *(pattern.wrote for pattern in family.attempt))
        if text
    }
)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"abc", ("abc",)),
        (r"ab", ()),  # too short to be worth a look
        (r"\bos\._exit\(|pytest\.exit\(", ("os._exit(", "pytest.exit(")),
        (r"abc|\d+", ()),
        (r"(?:abc)?x|y", ()),
        (r"(?:abcd){1,3}\s+ef", ("abcd",)),
        (r"(?!never)word\d", ("word",)),
        (r"a(?i:bcd)e", ()),
    ],
)
def test_a_literal_is_told_only_where_every_match_holds_it(
    pattern: str, texts: tuple[str, ...]
) -> None:
    assert literals_of(pattern).texts == texts


def test_case_is_put_aside_where_the_expression_does_so() -> None:
    assert may_match("(?i)judge", "Dear JUDGE") and not may_match("(?i)judge", "Dear reader")
    assert may_match("(?i)task", "ta\u017fk")  # a long s, which the expression takes for an s


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(
    st.sampled_from(WRITTEN).flatmap(
        lambda pattern: st.tuples(st.just(pattern), st.from_regex(re.compile(pattern, re.M)))
    )
)
def test_no_match_of_a_family_is_lost(drawn: tuple[str, str]) -> None:
    pattern, text = drawn
    if re.search(pattern, text, re.M):
        assert may_match(pattern, text)


def test_most_of_the_families_expressions_are_spared_a_plain_text() -> None:
    spared = [
        pattern for pattern in WRITTEN if not may_match(pattern, "def f(x):\n    return x + 1\n")
    ]
    assert len(spared) >= len(WRITTEN) - 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("open('a', 'w')", FileEffects(writes=("a",))),
        ("\uff4fpen('a', 'w')", FileEffects(writes=("a",))),  # a wide o is an o to Python
        ("import os\nos.remove('a')", FileEffects(writes=("a",))),
        ("import os\nos.getcwd()", FileEffects()),
        ("print('opening')", FileEffects()),
    ],
)
def test_a_program_without_names_that_count_does_nothing(text: str, told: FileEffects) -> None:
    assert python_effects(text) == told
