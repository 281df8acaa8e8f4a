"""`scrub-git`: what is later cannot be reached by any command or byte; the past stays as it was."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forensics.cli.main import build_app
from forensics.errors import UserError
from forensics.repositories import Scrubbed, scrub_repository
from forensics.repositories.scrub import Copy, NotProved, prove
from tests.forensics.scrub_states import SECRET, STATES, branches, commit, git, hooked, later, past

COMMANDS = (
    "log --all --reflog -p --format=raw", "reflog --all", "stash list -p", "for-each-ref",
    "fsck --full --lost-found", "fsck --unreachable --no-reflogs --dangling", "notes list",
    "worktree list", "submodule status", "rev-list --all --objects --reflog", "remote -v",
    "fetch --all", "branch -a -vv", "tag -n9", "show-ref --head -d", "replace -l", "status",
    "cat-file --batch-all-objects --batch", "config --list --show-origin --local",
    "rerere status", "rerere diff", "bisect log", "ls-files -s --resolve-undo -u", "diff HEAD",
    "show :/xyzzy", "show ORIG_HEAD", "show FETCH_HEAD", "show HEAD@{1}", "sparse-checkout list",
    "count-objects -vH", "lfs ls-files", "grep xyzzy HEAD", "log -g --all", "bundle list-heads",
)  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("template") / "source"
    return folder, past(folder)


@pytest.fixture
def source(template: tuple[Path, str], tmp_path: Path) -> Path:
    shutil.copytree(template[0], tmp_path / "source", symlinks=True)
    return tmp_path / "source"


def all_ids(folder: Path) -> set[str]:
    words = (
        "--no-replace-objects",
        "cat-file",
        "--batch-all-objects",
        "--batch-check=%(objectname)",
    )
    git_dir = folder / ".git" if (folder / ".git").exists() else folder
    return set(git(folder.parent, f"--git-dir={git_dir}", "--no-replace-objects", *words).split())


def reached_by(template: tuple[Path, str]) -> set[str]:
    return set(
        git(
            template[0], "rev-list", "--objects", "--no-object-names", template[1], "v1-annotated"
        ).split()
    )


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def assert_sealed(copy: Path, late: set[str]) -> None:
    for command in COMMANDS:
        said = git(copy, *command.split(), ok=False)
        assert SECRET not in said, command
        assert not late & set(said.replace(":", " ").split()), command
    asked = "".join(f"{name}\n" for name in late)
    told = git(copy, "cat-file", "--batch-check", stdin=asked).splitlines()
    assert all(line.endswith(" missing") for line in told) and len(told) == len(late)
    for path in files(copy):
        held = path.read_bytes()
        assert SECRET.encode() not in held, path
        for name in late:
            assert name.encode() not in held and bytes.fromhex(name) not in held, path


def assert_tree(copy: Path, at: str) -> None:
    assert git(copy, "status", "--porcelain", "--ignored", "-uall") == ""
    rows = [row for row in git(copy, "ls-tree", "-rz", at).split("\0") if row]
    for row in rows:
        about, name = row.split("\t")
        mode, _, blob = about.split()
        path = copy / name
        if mode == "120000":
            assert path.is_symlink()
        elif mode != "160000":
            assert git(copy, "hash-object", f"--path={name}", str(path)) == blob
            assert bool(path.lstat().st_mode & stat.S_IXUSR) == (mode == "100755")
    found = {p for p in copy.rglob("*") if not p.is_dir() or p.is_symlink()}
    own = {p for p in found if ".git" not in p.relative_to(copy).parts}
    assert len(own) == len([row for row in rows if not row.startswith("160000")])


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_nothing_later_is_left(
    state: Callable[[Path], None], source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    state(source)
    kept, at = reached_by(template), template[1]
    late = all_ids(source) - kept
    made = scrub_repository(source, at, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert late
    assert_sealed(copy, late)
    assert_tree(copy, at)
    assert all_ids(copy) == kept
    assert git(copy, "fsck", "--full", "--strict") == ""
    assert git(copy, "rev-parse", "HEAD") == at and git(copy, "branch", "--show-current") == "main"
    assert git(copy, "tag").split() == ["v1", "v1-annotated"] and made.tags == 2
    assert (copy / "a.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert not (tmp_path / "ran").exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_what_was_removed_is_counted(
    source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    branches(source)
    (source / "x.log").write_text("ignored\n")
    made = scrub_repository(source, template[1], tmp_path / "copy")
    assert made.found["commit objects"] == (5, 4) and made.found["tags"] == (5, 2)
    assert made.found["branches"] == (3, 1) and made.found["untracked files"] == (1, 0)
    assert any("1 tags of ancestors were made later" in note for note in made.notes)
    assert any("1 files are LFS pointers" in note for note in made.notes)


def test_untracked_files_that_are_later_are_not_kept(
    source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    later(source, "new.txt")
    git(source, "rm", "-q", "--cached", "new.txt")
    git(source, "bundle", "create", "-q", "later.bundle", "HEAD")
    (source / "build").mkdir()
    (source / "build" / "out.log").write_text("built\n")
    made = scrub_repository(source, template[1], tmp_path / "copy", keep_untracked=True)
    assert (tmp_path / "copy" / "build" / "out.log").read_text() == "built\n"
    assert not {"new.txt", "later.bundle"} & {p.name for p in (tmp_path / "copy").iterdir()}
    assert made.found["untracked files"] == (3, 1)


def test_submodules_are_scrubbed_or_left_out(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    first = past(inner)
    past(outer)
    git(outer, "submodule", "--quiet", "add", str(inner), "lib/inner")
    git(outer, "submodule", "--quiet", "add", str(inner), "gone")
    at = commit(outer, "with.txt", "modules\n", 5)
    late = later(inner)
    git(outer / "lib" / "inner", "pull", "-q", "--ff-only")
    later(outer)
    shutil.rmtree(outer / ".git" / "modules" / "gone")
    made = scrub_repository(outer, at, tmp_path / "copy")
    assert made.submodules["lib/inner"] == f"scrubbed at {first}"
    assert made.submodules["gone"].startswith("left out")
    assert_sealed(tmp_path / "copy" / "lib" / "inner", {late})
    assert_sealed(tmp_path / "copy", {late})
    assert git(tmp_path / "copy", "status", "--porcelain") == ""


def test_a_shallow_source_stays_shallow(
    source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    later(source)
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{source}", "shallow")
    late = git(source, "rev-parse", "HEAD")
    made = scrub_repository(tmp_path / "shallow", template[1], tmp_path / "copy")
    assert any("shallow" in note for note in made.notes)
    assert git(tmp_path / "copy", "fsck", "--full", "--strict") == ""
    assert_sealed(tmp_path / "copy", {late})


def test_a_broken_source_is_one_sentence(
    source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    later(source)
    gone = git(source, "rev-parse", f"{template[1]}:side.txt")
    file = source / ".git" / "objects" / gone[:2] / gone[2:]
    held = file.read_bytes()
    file.chmod(0o644)
    file.unlink()
    with pytest.raises(UserError, match="not whole"):
        scrub_repository(source, template[1], tmp_path / "copy")
    other = git(source, "rev-parse", f"{template[1]}:run.sh")
    file.write_bytes((source / ".git" / "objects" / other[:2] / other[2:]).read_bytes())
    with pytest.raises(UserError):  # an object under another's name
        scrub_repository(source, template[1], tmp_path / "copy")
    file.write_bytes(held)
    scrub_repository(source, template[1], tmp_path / "copy")


@pytest.mark.parametrize("name", [".git/hooks/evil", "../evil", ".GIT/config"])
def test_a_tree_that_would_write_elsewhere_is_refused(
    name: str, source: Path, tmp_path: Path
) -> None:
    blob = git(source, "hash-object", "-w", "--stdin", stdin="evil\n")
    top, leaf = name.split("/", 1)
    for part in reversed(leaf.split("/")):
        kind, mode = ("blob", "100644") if part == leaf.split("/")[-1] else ("tree", "040000")
        blob = git(source, "mktree", stdin=f"{mode} {kind} {blob}\t{part}\n")
    tree = git(source, "mktree", stdin=f"040000 tree {blob}\t{top}\n")
    at = git(source, "commit-tree", tree, "-m", "evil")
    with pytest.raises(UserError):
        scrub_repository(source, at, tmp_path / "copy")
    assert not (tmp_path / "copy").exists() and not (tmp_path / "evil").exists()


def run(*words: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(build_app(), ["scrub-git", *words])
    return done.exit_code, done.stdout, done.exception


def test_the_command_in_place(source: Path, template: tuple[Path, str]) -> None:
    hooked(source)
    late = all_ids(source) - reached_by(template)
    code, said, _ = run(str(source), "--at", template[1], "--in-place", "--json")
    assert code == 0 and json.loads(said)["commit"] == template[1]
    assert_sealed(source, late)
    assert [p.name for p in source.parent.iterdir()] == ["source"]


def test_bad_input_is_one_sentence(
    source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    at = template[1]
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    for place, name, copy, said in (
        (source, at, full, "there already"),
        (source, "nothing", tmp_path / "c", "names no commit"),
        (source, "--all", tmp_path / "c", "names no commit"),
        (full, at, tmp_path / "c", "no git repository"),
        (source, at, source / ".git" / "c", "lies inside"),
    ):
        with pytest.raises(UserError, match=said):
            scrub_repository(place, name, copy)
    assert (full / "mine").read_text() == "mine" and not (tmp_path / "c").exists()
    error = run(str(source), "--at", at)[2]
    assert isinstance(error, UserError) and "--out" in str(error)


@pytest.mark.parametrize("name", ["HEAD", "index", "config"])
def test_files_of_git_that_say_nothing_are_no_matter(
    name: str, source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    late = later(source)
    (source / ".git" / name).write_bytes(b"[core\0\xff\nbroken")
    scrub_repository(source, template[1], tmp_path / "copy")
    assert_sealed(tmp_path / "copy", {late})


@pytest.mark.parametrize("name", ["refs/heads/pipe", "objects/info/alternates", "index", "circle"])
def test_what_git_would_wait_for_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    (source / ".git" / name).unlink(missing_ok=True)
    if name == "circle":
        (source / ".git" / name).symlink_to(name)
    else:
        os.mkfifo(source / ".git" / name)
    with pytest.raises(UserError, match="neither file nor folder"):
        scrub_repository(source, "HEAD", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_objects_may_be_named_by_sha256(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "--object-format=sha256")
    at = commit(source, "f.txt", "one\n", 1)
    late = later(source)
    scrub_repository(source, at, tmp_path / "copy")
    assert_sealed(tmp_path / "copy", {late})
    assert len(git(tmp_path / "copy", "rev-parse", "HEAD")) == 64


def test_the_branch_is_named_as_in_the_origin(source: Path, tmp_path: Path) -> None:
    at = git(source, "rev-parse", "HEAD")
    git(source, "branch", "-m", "main", "fix-the-later-bug")
    assert scrub_repository(source, at, tmp_path / "one").branch == "main"
    git(source, "update-ref", "refs/remotes/origin/stable", at)
    git(source, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/stable")
    assert scrub_repository(source, at, tmp_path / "two").branch == "stable"
    assert scrub_repository(source, at, tmp_path / "three", branch="x/y").branch == "x/y"
    with pytest.raises(UserError):
        scrub_repository(source, at, tmp_path / "four", branch="a..b")


PLANTS: dict[str, Callable[[Path], object]] = {
    "object": lambda copy: git(copy, "hash-object", "-w", "--stdin", stdin=SECRET),
    "ref": lambda copy: git(copy, "branch", "later"),
    "file": lambda copy: (copy / ".git" / "FETCH_HEAD").write_text(SECRET),
    "alternate": lambda copy: (copy / ".git/objects/info/alternates").write_text("/"),
    "remote": lambda copy: git(copy, "remote", "add", "origin", "/nowhere"),
    "changed": lambda copy: (copy / "f.txt").write_text(SECRET),
    "untracked": lambda copy: (copy / "x.log").write_text(SECRET),
    "mode": lambda copy: (copy / "run.sh").chmod(0o644),
}


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_the_proof_fails_on_what_is_planted(
    plant: str, source: Path, template: tuple[Path, str], tmp_path: Path
) -> None:
    later(source)
    copy = tmp_path / "copy"
    made: Scrubbed = scrub_repository(source, template[1], copy)
    names = ("refs/tags/v1", "refs/tags/v1-annotated")
    tags = {name: git(copy, "rev-parse", name) for name in names}
    whole = Copy(copy, made.commit, made.branch, tags, [])
    prove(whole, [])
    (copy / ".git" / "objects" / "info").mkdir(exist_ok=True)
    PLANTS[plant](copy)
    with pytest.raises(NotProved):
        prove(whole, [])
