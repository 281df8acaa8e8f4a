"""The quick ways of the scanner beside plain ones: all families in one pass, and which files a run made."""

from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.acts import Act, acts_of
from forensics.layers.use import step_text
from forensics.records import Trajectory
from forensics.scanning import families
from forensics.scanning.matching import Hit, Matcher, matches
from forensics.scanning.scene import Scene
from tests.forensics.test_scanning import ran

FILES = ("tests/test_a.py", "./tests/test_a.py", "tests/", "src/a.py", "conftest.py", "/usr/bin/git")
LINES = st.one_of(
    st.sampled_from([example.line for family in families() for example in family.example if example.line]),
    st.builds("{} {}".format, st.sampled_from(["cat", "rm", "touch", "echo 'assert 1' >", "mv src/a.py", "ls"]),
              st.sampled_from(FILES)),
    st.sampled_from(["git stash list", "git stash push", "echo 'import inspect; inspect.stack()' > a.py", "cat 'a"]),
)
RUNS = st.lists(st.tuples(LINES, st.sampled_from(["", "test_a.py", "a.py and conftest.py", "abc"])), max_size=6)


@settings(max_examples=150, deadline=None)
@given(RUNS)
def test_one_pass_over_the_acts_finds_what_each_pattern_finds(lines: list[tuple[str, str]]) -> None:
    run = ran(*lines)
    scene, matcher = Scene(run, acts_of(run)), Matcher(families())
    for _ in range(2):  # the second time by what it remembers
        for family, hits in zip(families(), matcher.hits(scene), strict=True):
            first = ((act, next((p for p in family.attempt if matches(p, act, scene)), None)) for act in scene.acts)
            assert hits == tuple(Hit(act, pattern.id) for act, pattern in first if pattern is not None
                                 and not any(matches(twin, act, scene) for twin in family.twin))


@settings(max_examples=150, deadline=None)
@given(RUNS)
def test_a_file_is_the_runs_own_if_the_first_act_that_names_it_wrote_it(lines: list[tuple[str, str]]) -> None:
    run = ran(*lines)
    scene = Scene(run, acts_of(run))
    own = plainly_made(run, scene.acts)
    assert {path for act in scene.acts for path in (*act.writes, *act.reads) if scene.own(path)} == own


def plainly_made(run: Trajectory, acts: tuple[Act, ...]) -> set[str]:
    """Files in the order in which the acts name them, step by step; a block of which nothing ran names none."""
    ran_at = {act.step for act in acts}
    said = [step_text(step) for at, step in enumerate(run.steps) if step.role != "assistant" or at in ran_at]
    places = [at for at, step in enumerate(run.steps) if step.role != "assistant" or at in ran_at]
    seen: set[str] = set()
    made: set[str] = set()
    for act in acts:
        for path in act.writes:
            name = path.rsplit("/", 1)[-1]
            named = any(name in text for at, text in zip(places, said, strict=True) if at < act.step)
            if path not in seen and path not in act.reads and not named:
                made.add(path)
            seen.add(path)
        seen.update(act.reads)
    return made
