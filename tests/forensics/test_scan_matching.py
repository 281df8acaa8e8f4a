"""The quick ways of the scanner beside plain ones: all families in one pass,
and which files a run made.
"""

from hypothesis import given, settings, strategies as st

from forensics.actions import actions_of
from forensics.shortcuts import families
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.patterns import Hit, Matcher, matches
from tests.forensics.test_scanning import ran

FILES = (
    "tests/test_a.py", "./tests/test_a.py", "tests/", "src/a.py", "conftest.py", "/usr/bin/git",
)  # fmt: skip
LINES = st.one_of(
    st.sampled_from(
        [example.line for family in families() for example in family.example if example.line]
    ),
    st.builds(
        "{} {}".format,
        st.sampled_from(["cat", "rm", "touch", "echo 'assert 1' >", "mv src/a.py", "ls"]),
        st.sampled_from(FILES),
    ),
    st.sampled_from(
        [
            "git stash list",
            "git stash push",
            "echo 'import inspect; inspect.stack()' > a.py",
            "cat 'a",
        ]
    ),
)
RUNS = st.lists(
    st.tuples(LINES, st.sampled_from(["", "test_a.py", "a.py and conftest.py", "abc"])), max_size=6
)


@settings(max_examples=150, deadline=None)
@given(RUNS)
def test_one_pass_over_the_acts_finds_what_each_pattern_finds(lines: list[tuple[str, str]]) -> None:
    run = ran(*lines)
    blind, matcher = BlindRun(run, actions_of(run)), Matcher(families())
    for _ in range(2):  # the second time by what it remembers
        for family, hits in zip(families(), matcher.hits(blind), strict=True):
            first = (
                (action, next((p for p in family.attempt if matches(p, action, blind)), None))
                for action in blind.actions
            )
            assert hits == tuple(
                Hit(action, pattern.id)
                for action, pattern in first
                if pattern is not None
                and not any(matches(twin, action, blind) for twin in family.twin)
            )
