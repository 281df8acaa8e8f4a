"""Every study's rule is older than its table, and the checker that says so
fails where it should.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.rules_first import complaints, read_history

ROOT = Path(__file__).parents[2]
STUDY = Path("experiments/study")

# Frozen: the studies that are older than the convention. Nothing is added here; a new
# study has a rule.
OLDER = frozenset(
    f"experiments/{name}"
    for name in (
        "cliffs",
        "dead_groups",
        "degeneration",
        "live_audit",
        "one_feature",
        "phantom_gain",
        "planted_features",
        "progress_advantage",
        "published_cliffs",
        "real_logs",
        "undeclared_shortcuts",
    )
)


def test_every_study_of_this_repository_had_its_rule_before_its_table() -> None:
    try:
        found = complaints(ROOT, OLDER)
    except ValueError as reason:
        pytest.skip(str(reason))
    assert found == []


def test_the_list_of_older_studies_does_not_go_stale() -> None:
    assert [folder for folder in sorted(OLDER) if not (ROOT / folder / "table.md").exists()] == []
    assert [folder for folder in sorted(OLDER) if (ROOT / folder / "rule.md").exists()] == []


class Project:
    """A real repository to play a study's history in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.commit(readme="a project")

    def git(self, *words: str) -> None:
        settings = (
            "user.name=A",
            "user.email=a@b.c",
            "commit.gpgsign=false",
            "core.hooksPath=none",
        )
        given = [word for setting in settings for word in ("-c", setting)]
        subprocess.run(("git", *given, *words), cwd=self.root, check=True, capture_output=True)

    def write(self, **files: str) -> None:
        """`rule`, `table` (json), `page` (the table as markdown), or `readme` with this content."""
        names = {
            "rule": "rule.md",
            "table": "table.json",
            "page": "table.md",
            "readme": "README.md",
        }
        (self.root / STUDY).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (self.root / STUDY / names[name]).write_text(content)

    def commit(self, **files: str) -> None:
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a step")

    def complaints(self, *older: str) -> list[str]:
        return complaints(self.root, frozenset(older))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    if shutil.which("git") is None:
        pytest.skip("there is no git command to make histories with")
    return Project(tmp_path)


def proper(project: Project) -> None:
    project.commit(rule="first")
    project.commit(rule="better")
    project.commit(table="1", page="1")
    project.commit(table="2", page="2", readme="what came out")


def not_yet_committed(project: Project) -> None:
    project.commit(rule="first")
    project.write(table="1", page="1")


def side_branch(project: Project) -> None:
    """The study on a branch, other work on the main one, then a merge."""
    project.git("checkout", "-q", "-b", "side")
    project.commit(rule="first")
    project.commit(table="1")
    project.git("checkout", "-q", "main")
    (project.root / "other.txt").write_text("other work")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "other work")
    project.git("merge", "-q", "--no-ff", "-m", "merge", "side")


@pytest.mark.parametrize("history", [proper, not_yet_committed, side_branch])
def test_a_rule_that_was_first_passes(project: Project, history: Callable[[Project], None]) -> None:
    history(project)
    assert project.complaints() == []


def one_commit(project: Project) -> None:
    project.commit(rule="first", table="1")


def after_the_table(project: Project) -> None:
    project.commit(table="1")
    project.commit(rule="first")


def edited(project: Project) -> None:
    proper(project)
    project.commit(rule="as it came out")


def edited_while_the_table_was_away(project: Project) -> None:
    proper(project)
    project.git("rm", "-q", f"{STUDY}/table.json", f"{STUDY}/table.md")
    project.git("commit", "-q", "-m", "away")
    project.commit(rule="as it came out")
    project.commit(table="1", page="1")


def side_by_side(project: Project) -> None:
    """The rule on one branch, the table on another: neither is the older."""
    project.git("checkout", "-q", "-b", "side")
    project.commit(table="1")
    project.git("checkout", "-q", "main")
    project.commit(rule="first")
    project.git("merge", "-q", "-m", "merge", "side")


def edited_and_not_committed(project: Project) -> None:
    proper(project)
    project.write(rule="as it came out")


@pytest.mark.parametrize(
    ("history", "told"),
    [
        (one_commit, "touches rule.md where table.json is already there"),
        (after_the_table, "adds table.json before the last commit of rule.md"),
        (edited, "touches rule.md where table.json is already there"),
        (edited_while_the_table_was_away, "adds table.json before the last commit of rule.md"),
        (side_by_side, "adds table.json before the last commit of rule.md"),
        (edited_and_not_committed, "its rule.md is not as it was committed"),
    ],
)
def test_a_rule_that_was_not_first_fails(
    project: Project, history: Callable[[Project], None], told: str
) -> None:
    history(project)
    assert any(told in complaint for complaint in project.complaints()), project.complaints()


def test_a_table_without_a_rule_fails_unless_it_is_on_the_list(project: Project) -> None:
    project.commit(table="1")
    [complaint] = project.complaints()
    assert complaint.startswith(f"{STUDY} has a table and no rule.md")
    assert project.complaints(str(STUDY)) == []


def test_a_study_with_a_rule_is_held_to_it_even_on_the_list(project: Project) -> None:
    project.commit(rule="first", table="1")
    assert project.complaints(str(STUDY))


def test_a_study_may_lie_in_the_folder_of_an_older_one(project: Project) -> None:
    project.commit(table="1")
    (project.root / STUDY / "again").mkdir()
    (project.root / STUDY / "again" / "table.json").write_text("1")
    [complaint] = project.complaints(str(STUDY))
    assert complaint.startswith(f"{STUDY}/again has a table and no rule.md")


def test_without_a_history_it_says_why(
    tmp_path_factory: pytest.TempPathFactory, project: Project
) -> None:
    proper(project)
    bare, shallow = tmp_path_factory.mktemp("archive"), tmp_path_factory.mktemp("clone") / "shallow"
    assert "not a git repository" in str(read_history(bare))
    project.git("clone", "-q", "--depth", "1", f"file://{project.root}", str(shallow))
    assert "shallow" in str(read_history(shallow))
    with pytest.raises(ValueError, match="shallow"):
        complaints(shallow)
