"""The quick ways of the scanner beside plain ones: all families in one pass,
and which files a run made.
"""

from hypothesis import given, settings, strategies as st

from forensics.actions import Action, actions_of
from forensics.layers.use import step_text
from forensics.records import Trajectory
from forensics.shortcuts import families
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.own_files import deletes
from forensics.shortcuts.patterns import Hit, Matcher, matches
from tests.forensics.test_scanning import ran

FILES = (
    "tests/test_a.py",
    "./tests/test_a.py",
    "tests/",
    "src/a.py",
    "conftest.py",
    "/usr/bin/git",
)
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


@settings(max_examples=150, deadline=None)
@given(RUNS)
def test_a_file_is_the_runs_own_if_the_first_act_that_names_it_wrote_it(
    lines: list[tuple[str, str]],
) -> None:
    run = ran(*lines)
    blind = BlindRun(run, actions_of(run))
    deleted = {path for one in blind.actions if deletes(one) for path in one.writes}
    own = plainly_made(run, blind.actions) - deleted
    assert {
        path
        for action in blind.actions
        for path in (*action.writes, *action.reads)
        if path not in deleted and blind.own(path)
    } == own


def plainly_made(run: Trajectory, actions: tuple[Action, ...]) -> set[str]:
    """Files in the order in which the actions name them, step by step; a block of
    which nothing ran names none.
    """
    ran_at = {action.step for action in actions}
    said = [
        step_text(step)
        for at, step in enumerate(run.steps)
        if step.role != "assistant" or at in ran_at
    ]
    places = [at for at, step in enumerate(run.steps) if step.role != "assistant" or at in ran_at]
    seen: set[str] = set()
    made: set[str] = set()
    for action in actions:
        for path in action.writes:
            name = path.rsplit("/", 1)[-1]
            named = any(
                name in text for at, text in zip(places, said, strict=True) if at < action.step
            )
            if path not in seen and path not in action.reads and not named:
                made.add(path)
            seen.add(path)
        seen.update(action.reads)
    return made
