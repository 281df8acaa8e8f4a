"""`forensics leaks` on tiny repositories of real git: each way of planting is found, what was
there before is no hit, and a hostile repository runs nothing.
"""

import gzip
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.cli.main import run
from forensics.errors import UserError
from forensics.repositories import Leaks, find_leaks
from forensics.repositories.fix import _shared
from forensics.repositories.scrub import scrub_repository
from tests.forensics.leak_plants import IN_FILES, IN_GIT, Real, Way, git

BEFORE = b"""def price(basket):
    total = 0
    for item in basket:
        total += item.cost
    return total
"""
AFTER = b"""def price(basket):
    total = 0
    for item in basket:
        total += item.cost * item.quantity
    discount = best_discount(basket, total)
    if discount.expires_before(basket.checkout_time):
        raise ExpiredDiscount(f'{discount.name} has run out')
    return total - discount.amount
"""
TEST = b"""def test_an_expired_discount_is_refused():
    with pytest.raises(ExpiredDiscount):
        price(basket_with(discount='easter', checkout_time=LATE))
"""
OTHER = b"def stock(shelf):\n    return sum(item.quantity for item in shelf)\n"


@pytest.fixture
def real(tmp_path: Path) -> Real:
    """A source with a fix and its tests, and the parent in `tmp_path / 'copy'`."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    git(source, "init", "-q", "-b", "main")
    (source / "shop.py").write_bytes(BEFORE)
    (source / "shelf.py").write_bytes(OTHER)
    (source / ".gitignore").write_text("*.log\n.venv/\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "A shop")
    git(tmp_path, "clone", "-q", "--no-hardlinks", "source", "copy")
    git(copy, "remote", "remove", "origin")
    parent = git(source, "rev-parse", "HEAD").decode().strip()
    (source / "shop.py").write_bytes(AFTER)
    (source / "tests").mkdir()
    (source / "tests" / "test_shop.py").write_bytes(TEST)
    git(source, "add", "-A")
    git(source, "commit", "-qm", "Discounts that have run out are refused")
    commit = git(source, "rev-parse", "HEAD").decode().strip()
    patch = git(source, "diff", parent, commit)
    (tmp_path / "fix.diff").write_bytes(patch)
    files = {"shop.py": AFTER, "tests/test_shop.py": TEST}
    return Real(source, commit, parent, "Discounts that have run out are refused", patch, files)


def searched(real: Real, **more: Path) -> Leaks:
    place = real.source.parent
    return find_leaks(place / "copy", place / "fix.diff", **more)  # type: ignore[arg-type]


def places(found: Leaks) -> list[str]:
    return [hit.place for hit in [*found.fix, *found.tests]]


def test_a_clean_copy_has_none_and_is_not_called_innocent(real: Real) -> None:
    found = searched(real)
    assert not found.found
    assert found.searched["objects"] == 5 and found.searched["files"] > 5


@pytest.mark.parametrize("way", [*IN_GIT, *IN_FILES], ids=lambda way: way.__name__)
def test_each_way_of_planting_is_found(real: Real, way: Way) -> None:
    copy = real.source.parent / "copy"
    (copy / ".git" / "info" / "exclude").write_text("")
    where = way(copy, real, random.Random(4))
    found = searched(real)
    assert any(place.startswith(where or "object ") for place in places(found)), way
    git_hits = [hit for hit in [*found.fix, *found.tests] if hit.place.startswith("object ")]
    assert all("scrub-git" in hit.cure for hit in git_hits)


REACHED: dict[str, tuple[Callable[..., object], str]] = {
    way.__name__: (way, words)
    for way, words in zip(
        IN_GIT,
        (
            "unreachable",
            "unreachable",
            "refs/stash",
            "no reference names",
            "refs/tags/v99",
            "refs/remotes/origin/main",
            "ORIG_HEAD",
            "refs/notes/commits",
            "no reference names",
        ),
        strict=False,
    )
}


@pytest.mark.parametrize("name", REACHED)
def test_it_says_how_an_object_is_reached(real: Real, name: str) -> None:
    way, words = REACHED[name]
    way(real.source.parent / "copy", real, random.Random(4))
    assert words in str(searched(real).fix[0].reached)


def _tag_message(copy: Path, real: Real) -> None:
    git(copy, "tag", "-a", "v1", "-F", "-", given=b"Release\n\n" + real.patch)


def _tag_of_a_tag(copy: Path, real: Real) -> None:
    _tag_message(copy, real)
    git(copy, "tag", "-am", "again", "v2", "v1")
    git(copy, "tag", "-d", "v1")


def _tag_on_a_blob(copy: Path, real: Real) -> None:
    blob = git(copy, "hash-object", "-w", "--stdin", given=real.largest[1]).decode().strip()
    git(copy, "tag", "-am", "a file", "v2", blob)


def _replaced(copy: Path, real: Real) -> None:
    blob = git(copy, "hash-object", "-w", "--stdin", given=real.largest[1]).decode().strip()
    git(copy, "replace", git(copy, "rev-parse", "HEAD:shop.py").decode().strip(), blob, "-f")


def _tag_on_a_tree(copy: Path, real: Real) -> None:
    blob = git(copy, "hash-object", "-w", "--stdin", given=real.largest[1]).decode().strip()
    tree = git(copy, "mktree", given=f"100644 blob {blob}\tkept.py\n".encode()).decode().strip()
    git(copy, "tag", "v3", tree)


@pytest.mark.parametrize(
    "way,words,tagged",
    [
        (_tag_message, "reachable from refs/tags/v1", True),
        (_tag_of_a_tag, "reachable from refs/tags/v2", True),
        (_tag_on_a_blob, "reachable from refs/tags/v2", False),
        (_tag_on_a_tree, "reachable from refs/tags/v3, as kept.py", False),
        (_replaced, "reachable from refs/replace/", False),
    ],
)
def test_what_a_tag_or_a_replacement_names_is_named(
    real: Real, way: Callable[[Path, Real], None], words: str, tagged: bool
) -> None:
    """A tag's own message stays where it points to an ancestor: `scrub-git` keeps such tags."""
    copy, clean = (real.source.parent / name for name in ("copy", "clean"))
    way(copy, real)
    (hit,) = searched(real).fix
    assert words in str(hit.reached) and "commit " not in str(hit.reached)
    assert ("git tag -d" in hit.cure) == tagged and "scrub-git" in hit.cure
    if way is not _tag_of_a_tag:
        scrub_repository(copy, "HEAD", clean)
        assert find_leaks(clean, real.source.parent / "fix.diff").found == tagged


def test_what_the_tree_holds_before_the_fix_is_no_hit(real: Real) -> None:
    copy = real.source.parent / "copy"
    (copy / "copy_of_shop.py").write_bytes(BEFORE)
    git(copy, "add", "-A")
    git(copy, "commit", "-qm", "The same again")
    assert not searched(real).found


def test_tests_of_the_patch_count_apart(real: Real) -> None:
    (real.source.parent / "copy" / "hidden.log").write_bytes(b"x\n" + TEST)
    found = searched(real)
    assert not found.fix
    assert [hit.place for hit in found.tests] == ["hidden.log"]


def test_the_history_before_the_commit_counts_with_its_own_cure(real: Real) -> None:
    copy = real.source.parent / "copy"
    for content in (AFTER + b"# later\n", BEFORE):
        (copy / "shop.py").write_bytes(content)
        git(copy, "commit", "-qam", "Tried")
    (hit,) = searched(real).fix
    assert "the history of the commit itself" in str(hit.reached)
    assert "shallow" in hit.cure


def test_a_mailed_patch_names_its_commit(real: Real) -> None:
    place = real.source.parent
    (place / "fix.diff").write_bytes(git(real.source, "format-patch", "--stdout", "-1"))
    git(place / "copy", "fetch", "-q", "../source")
    told = searched(real).fix[0]
    assert told.place == f"object {real.commit[:12]}" and "commit" in told.strength


def test_an_index_entry_of_a_linked_worktree(real: Real) -> None:
    copy = real.source.parent / "copy"
    git(copy, "worktree", "add", "-q", "--detach", "../beside")
    (copy.parent / "beside" / "shop.py").write_bytes(AFTER)
    git(copy.parent / "beside", "add", "shop.py")
    assert searched(real).fix[0].reached == "unreachable"  # staged there, in no commit
    told = find_leaks(copy.parent / "beside", copy.parent / "fix.diff").fix
    assert [hit.reached for hit in told] == ["reachable from the index", None]


def test_an_image_with_a_later_package_and_a_cache(real: Real, tmp_path: Path) -> None:
    image = tmp_path / "image"
    folder = image / "usr/lib/python3/site-packages/shop"
    folder.mkdir(parents=True)
    (folder / "shop.py").write_bytes(AFTER)
    (image / "root").mkdir()
    (image / "root" / ".bash_history").write_bytes(b"cat > x <<E\n" + AFTER + b"E\n")
    (image / "usr" / "a.gz").write_bytes(gzip.compress(AFTER + b"\n# longer\n"))
    found = searched(real, image_root=image)
    kinds = {hit.place: hit.kind for hit in found.fix}
    assert kinds == {
        "(image)/usr/lib/python3/site-packages/shop/shop.py": "installed Python package",
        "(image)/root/.bash_history": "a shell's history",
        "(image)/usr/a.gz": "file",
    }
    assert {hit.strength for hit in found.fix} == {"whole file", "whole patch"}
    (package,) = [hit for hit in found.fix if hit.strength == "whole file"]
    assert package.cure.startswith("install a version")


def test_lines_that_stand_elsewhere_are_found_by_their_neighbours(real: Real) -> None:
    place = real.source.parent
    for number in range(200):  # words are rare only where there is something to be rare in
        (place / "copy" / f"other_{number}.py").write_text(f"value = {number}\n")
    git(place / "copy", "add", "-A")
    git(place / "copy", "commit", "-qm", "More files")
    moved = OTHER + b"".join(BEFORE.splitlines(keepends=True)[1:4])
    (place / "copy" / "shelf.py").write_bytes(moved)
    patch = git(place / "copy", "diff")
    git(place / "copy", "checkout", "-q", "shelf.py")
    (place / "fix.diff").write_bytes(patch)
    assert not searched(real).found
    (place / "copy" / "x.log").write_bytes(b"kept\n" + moved)
    (hit,) = searched(real).fix
    assert hit.place == "x.log" and "neighbouring" in hit.strength


def test_few_lines_are_told_as_nearest_and_are_no_hit(real: Real) -> None:
    line = AFTER.split(b"\n")[7]
    (real.source.parent / "copy" / "x.log").write_bytes(line)
    found = searched(real)
    assert not found.found
    assert found.nearest is not None and found.nearest.place == "x.log"
    assert found.nearest.strength == "1 of 5 added lines"


def test_what_is_not_searched_is_named(real: Real) -> None:
    copy = real.source.parent / "copy"
    (copy / "outside").symlink_to("/usr")
    with zipfile.ZipFile(copy / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"a" * 1000)
    whole = (copy / "bomb.zip").read_bytes()
    (copy / "broken.zip").write_bytes(whole[:40])
    (copy / "broken.bundle").write_bytes(b"# v2 git bundle\n\nPACKrubbish")
    told = dict(searched(real).unread)
    assert {"outside", "broken.zip", "broken.bundle"} <= told.keys()


def test_a_broken_object_is_named_and_the_rest_is_read(real: Real) -> None:
    copy = real.source.parent / "copy"
    name = git(copy, "hash-object", "-w", "--stdin", given=b"rubbish").decode().strip()
    git(copy, "hash-object", "-w", "--stdin", given=AFTER)
    file = copy / ".git" / "objects" / name[:2] / name[2:]
    file.chmod(0o644)
    file.write_bytes(b"no zlib")
    found = searched(real)
    assert any(name in place for place, _ in found.unread)
    assert found.fix


def test_nothing_of_the_repository_is_run(real: Real, tmp_path: Path) -> None:
    copy, mark = tmp_path / "copy", tmp_path / "ran"
    with (copy / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "touch {mark}"\n\tpager = "touch {mark}"\n')
        config.write(f'[filter "x"]\n\tclean = "touch {mark}"\n\tsmudge = "touch {mark}"\n')
    (copy / ".gitattributes").write_text("* filter=x\n")
    searched(real)
    assert not mark.exists()
    assert os.listdir(copy / ".git" / "objects" / "info") == []


def test_the_command(real: Real, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy, patch = str(tmp_path / "copy"), str(tmp_path / "fix.diff")
    assert run(["leaks", copy, "--patch", patch]) == 0
    assert "none found in what was searched: 5 objects" in capsys.readouterr().out
    (tmp_path / "copy" / "a.log").write_bytes(AFTER.replace(b"basket:", b"basket:\x1b[31m"))
    assert run(["leaks", copy, "--patch", patch]) == 1
    said = capsys.readouterr().out
    assert "a.log" in said and "whole patch" in said and "\x1b" not in said
    assert run(["leaks", copy, "--patch", patch, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["found"] and told["fix"][0]["place"] == "a.log"


def test_bad_input_is_one_sentence(real: Real, tmp_path: Path) -> None:
    copy, patch = tmp_path / "copy", tmp_path / "fix.diff"
    empty = tmp_path / "empty.diff"
    empty.write_text("nothing\n")
    with pytest.raises(UserError, match="changes no file"):
        find_leaks(copy, empty)
    with pytest.raises(UserError, match="does not apply"):
        find_leaks(real.source, patch)
    with pytest.raises(UserError, match="names no commit"):
        find_leaks(copy, patch, at="nowhere")
    with pytest.raises(UserError, match="no git repository"):
        find_leaks(tmp_path, patch)
    with pytest.raises(UserError, match="unpacked image"):
        find_leaks(copy, patch, image_root=tmp_path / "none")
    with pytest.raises(UserError, match="no patch"):
        find_leaks(copy, tmp_path / "none.diff")


@pytest.mark.parametrize(("bits", "holds"), [(23.9, False), (24.0, True)])
def test_lines_that_say_little_are_no_hit_however_many_of_the_fix_they_are(
    bits: float, holds: bool
) -> None:
    lines, found = {b"return left": bits}, {b"return left"}
    assert _shared(found, "a.py", lines, False).holds is holds
    assert not _shared(found, "a.py", lines | {b"other": 3.1 * bits}, False).holds  # a quarter
