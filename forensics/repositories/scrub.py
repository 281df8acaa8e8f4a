"""A copy of a repository in which nothing later than a commit can be reached.

1. A fresh repository is built from what the commit reaches: nothing is cleaned, so nothing can be
   forgotten. `git pack-objects` reads the source in its shadow (`git.py`), `git index-pack` names
   each object anew by its contents. Ids stay as they were.
2. One branch, of the source's default name, and the tags that point to ancestors; an annotated tag
   is left out if its tagger date is later than the commit, or not told. A shallow source stays
   shallow, with the boundary that the commit reaches.
3. The tree is checked out as `git clone` would: line ends and encodings by its attributes, which
   git knows itself; no filter, hook or config of the source. So LFS pointers stay pointers.
4. Submodules are scrubbed in the same way at the recorded commit, where the source holds it.
5. The copy is proved before it gets its name.

"Later" is every object that the commit does not reach; the other side of a merge stays.

The proof that the copy holds a commit's past and nothing else:

1. The objects that lie in it, packed or loose, are those that the commit and its tags reach.
2. `git fsck --full --strict` finds each one whole. What it says of an old commit's form is the
   history's own; what it says of missing or unreached objects is a failure.
3. Its git folder holds no file but those that are expected, and its refs are these.
4. Its files are the commit's tree: each one read again and compared, and no other file.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.errors import OutsideFailure, UserError
from forensics.progress import Progress, silent
from forensics.repositories.git import (
    GitFailed,
    Repository,
    complaint,
    environment,
    git_command,
    open_repository,
    run_git,
)

REFS: Final = {
    "branches": "refs/heads/",
    "remote branches": "refs/remotes/",
    "tags": "refs/tags/",
    "notes": "refs/notes/",
    "stashes": "refs/stash",
    "replaced objects": "refs/replace/",
}
FILES: Final = {
    "reflogs": ("logs/**/*",),
    "hooks": ("hooks/*",),
    "states of a merge, rebase, bisect": (
        *("*_HEAD", "BISECT_*", "AUTO_MERGE", "rebase-merge/*", "rebase-apply/*", "sequencer/*"),
    ),
    "messages": ("*_EDITMSG", "*_MSG"),
    "linked working copies": ("worktrees/*/HEAD",),
    "submodules' git folders": ("modules/**/HEAD",),
    "alternates": ("objects/info/alternates", "objects/info/http-alternates"),
    "grafts and shallow boundaries": ("info/grafts", "shallow"),
    "excludes, attributes, sparse checkouts": ("info/exclude", "info/attributes", "info/sparse*"),
    "commit-graphs and other indexes": (
        *("objects/info/commit-graph*", "objects/info/commit-graphs/*"),
        *("objects/pack/multi-pack-index*", "objects/pack/*.bitmap", "sharedindex.*"),
    ),
    "packs of a partial clone": ("objects/pack/*.promisor",),
    "recorded resolutions": ("rr-cache/**/*",),
    "LFS contents": ("lfs/objects/**/*",),
    "bundles": ("**/*.bundle",),
    "logs of git": ("gc.log", "gc.pid"),
}
KINDS: Final = ("commit", "tree", "blob", "tag")
HISTORIES: Final = (b"# v2 git bundle", b"# v3 git bundle", b"PACK")
EXPECTED: Final = re.compile(
    r"HEAD|config|index|packed-refs|shallow|refs/heads/.+"
    r"|objects/pack/pack-[0-9a-f]+\.(pack|idx|rev)"
)
CONFIG: Final = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase"
    r"|precomposeunicode)=(\d|true|false)|extensions\.objectformat=sha256"
)
USUAL: Final = ("main", "master", "trunk", "develop")
ORIGIN: Final = ("refs/remotes/origin/HEAD", "refs/remotes/origin/")
STEPS: Final = 4
LFS: Final = "^version https://git-lfs.github.com/spec/v1"


@dataclass(frozen=True, kw_only=True)
class Scrubbed:
    """What a copy holds. `found`: kind to how many the source had and the copy has; `notes`:
    sentences on what was left out or stays.
    """

    commit: str
    branch: str
    tags: int
    found: dict[str, tuple[int, int]]
    notes: list[str] = field(default_factory=list)
    submodules: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        return asdict(self)


def scrub_repository(
    source: Path,
    at: str,
    copy: Path | None,
    *,
    branch: str | None = None,
    keep_untracked: bool = False,
    progress: Progress = silent,
) -> Scrubbed:
    """Write the copy; `None` puts it in the place of the source. Raises `UserError`, and leaves
    nothing, if the source is broken or the folder is taken.
    """
    place = source if copy is None else copy
    with open_repository(source) as repository:
        _check_place(repository, copy)
        commit = repository.commit_id(at)
        with _building_for(place) as building:
            made = _scrubbed(repository, commit, building, branch, keep_untracked, progress)
            if copy is None:
                _put_in_place(source.resolve(), building)
            else:
                building.rename(copy)
    return made


def _check_place(repository: Repository, copy: Path | None) -> None:
    if copy is not None:
        if copy.is_symlink() or (copy.exists() and not (copy.is_dir() and not any(copy.iterdir()))):
            raise UserError(f"{copy} is there already; name a folder that is not, or is empty")
        for held in (repository.git_dir, repository.common):
            if copy.resolve().is_relative_to(held):
                raise UserError(f"{copy} lies inside of {held}; name a folder outside of it")
        return
    inside = repository.work_tree and repository.work_tree / ".git"
    if inside is None or inside.is_symlink() or not inside.is_dir():
        raise UserError(f"{repository.git_dir} is bare, or lies outside of its copy; use --out")
    if any((repository.common / "worktrees").glob("*")):
        raise UserError(
            "other working copies are linked to this repository; use --out, or remove them "
            "(git worktree remove)"
        )


@contextmanager
def _building_for(place: Path) -> Iterator[Path]:
    """A folder beside the one to be written, gone if the work fails."""
    parent = place.resolve().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{place.resolve().name}-", dir=parent))
    except OSError as error:
        raise UserError(f"{parent} cannot be written to ({error.strerror})") from error
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(source: Path, building: Path) -> None:
    """The copy takes the name of the source, which is deleted."""
    old = Path(tempfile.mkdtemp(prefix=f".{source.name}-old-", dir=source.parent))
    try:
        source.rename(old)
    except OSError as error:
        old.rmdir()
        raise UserError(f"{source} cannot be replaced ({error.strerror}); use --out") from error
    building.rename(source)
    try:
        shutil.rmtree(old)
    except OSError as error:
        raise UserError(f"{old} still holds the source ({error.strerror}); delete it") from error


def _scrubbed(
    repository: Repository,
    commit: str,
    folder: Path,
    branch: str | None,
    keep_untracked: bool,
    progress: Progress,
) -> Scrubbed:
    progress("scrub", 0, STEPS)
    notes: list[str] = []
    branch = branch or default_branch(repository)
    git_dir = _fresh(repository, folder, branch)
    tags = past_tags(repository, commit, notes)
    _carry_objects(repository, [commit, *tags.values()], git_dir)
    progress("scrub", 1, STEPS)
    shallow = _carry_boundary(repository, git_dir, notes)
    lines = "".join(f"create {name} {target}\n" for name, target in tags.items())
    run_git(git_dir, "update-ref", "--stdin", stdin=os.fsencode(lines))
    if tags:
        run_git(git_dir, "pack-refs", "--all")
    run_git(git_dir, "update-ref", f"refs/heads/{branch}", commit)
    run_git(git_dir, "read-tree", "--reset", "-u", commit, work_tree=folder)
    progress("scrub", 2, STEPS)
    kept = prove(Copy(folder, commit, branch, tags, shallow), notes)
    progress("scrub", 3, STEPS)
    submodules = _scrub_submodules(repository, commit, folder, notes)
    _tell_what_stays(git_dir, commit, submodules, notes)
    left = untracked_files(repository, notes)
    carried = carry_untracked(repository, folder, left, notes) if keep_untracked else 0
    found = inventory(repository, kept, len(tags)) | {"untracked files": (len(left), carried)}
    progress("scrub", STEPS, STEPS)
    return Scrubbed(
        commit=commit,
        branch=branch,
        tags=len(tags),
        found={kind: counts for kind, counts in found.items() if any(counts)},
        notes=notes,
        submodules=submodules,
    )


def default_branch(repository: Repository) -> str:
    """The name that the source's own origin gives its main branch, else the usual one that it
    has; of a bare repository that of its HEAD. A branch made for a fix tells nothing.
    """
    at = ("HEAD", "refs/heads/") if repository.work_tree is None else None
    for head, prefix in filter(None, (ORIGIN, at)):
        try:
            told = os.fsdecode(repository.git("symbolic-ref", "--quiet", head)).strip()
        except GitFailed:
            continue
        if told.startswith(prefix):
            return told.removeprefix(prefix)
    said = repository.git("for-each-ref", "--format=%(refname)", "refs/heads")
    has = os.fsdecode(said).split()
    return next((name for name in USUAL if f"refs/heads/{name}" in has), "main")


def _fresh(repository: Repository, folder: Path, branch: str) -> Path:
    """An empty repository: no template, so no hooks."""
    git_dir = folder / ".git"
    git_dir.mkdir()
    stored = f"--object-format={repository.object_format}"
    words = ("init", "--quiet", "--template=", stored, f"--initial-branch={branch}")
    run_git(git_dir, *words, work_tree=folder)
    run_git(git_dir, "config", "core.logAllRefUpdates", "true")
    shutil.rmtree(git_dir / "branches", ignore_errors=True)
    return git_dir


def past_tags(repository: Repository, commit: str, notes: list[str]) -> dict[str, str]:
    """Tags of ancestors that are not later than the commit: name to the id of commit or tag."""
    said = repository.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
    rows = (line.split(" ", 1) for line in os.fsdecode(said).splitlines())
    refs = {name: target for target, name in rows}
    ancestors = set(repository.git("rev-list", commit).decode().split())
    date = int(repository.git("rev-list", "--max-count=1", "--timestamp", commit).split()[0])
    annotated = _tag_objects(repository, sorted(set(refs.values()) - ancestors))
    kept, late = {}, 0
    for name, target in refs.items():
        at, dated = annotated.get(target, (target, date))
        if at in ancestors and dated is not None and dated <= date:
            kept[name] = target
        elif at in ancestors:
            late += 1
    if late:
        notes.append(f"{late} tags of ancestors were made later, or tell no date, and are left out")
    return kept


def _tag_objects(repository: Repository, ids: Sequence[str]) -> dict[str, tuple[str, int | None]]:
    """Of annotated tags: the commit that they point to, and their date in seconds."""
    asked = "\n".join(ids).encode()
    told = repository.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked)
    found = {}
    for line in told.decode().splitlines():
        name, kind = line.split(" ", 1)
        if kind == "tag":
            head = repository.git("cat-file", "tag", name).split(b"\n\n")[0].split(b"\n")
            fields = dict(row.split(b" ", 1) for row in head if b" " in row)
            commit = fields.get(b"object", b"").decode() if fields.get(b"type") == b"commit" else ""
            when = fields.get(b"tagger", b"").split(b" ")[-2:][0]
            found[name] = (commit, int(when) if when.isdigit() else None)
    return found


def _carry_objects(repository: Repository, tips: Sequence[str], git_dir: Path) -> None:
    """What the tips reach, from the source into the copy. Raises `GitFailed`, with the cure."""
    reading = git_command(
        repository.shadow, "pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"
    )
    writing = git_command(git_dir, "index-pack", "--stdin")
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
        asked.write("".join(f"{tip}\n" for tip in tips).encode())
        asked.seek(0)
        how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": said, "env": environment()}
        with subprocess.Popen(reading, stdin=asked, cwd=repository.shadow, **how) as source:
            written = subprocess.run(writing, stdin=source.stdout, cwd=git_dir, **how)
        said.seek(0)
        if source.returncode or written.returncode:
            what = complaint(("pack-objects",), source.returncode, said.read())
            if "No space left" in what:
                raise OutsideFailure(f"the copy cannot be written: {what}; free some space")
            raise GitFailed(
                f"{repository.git_dir} is broken or not whole: {what}; {_cure(repository)}"
            )


def _cure(repository: Repository) -> str:
    if any((repository.common / "objects" / "pack").glob("*.promisor")):
        return (
            "it is a partial clone: fetch the rest (git fetch --refetch --no-filter) or clone whole"
        )
    return "take a whole clone"


def _carry_boundary(repository: Repository, git_dir: Path, notes: list[str]) -> list[str]:
    """Where the history of a shallow source ends, as far as the commit reaches."""
    file = repository.shadow / "shallow"
    if not file.is_file():
        return []
    asked = file.read_bytes()
    told = run_git(git_dir, "cat-file", "--batch-check", stdin=asked).decode().splitlines()
    kept = sorted(line.split(" ")[0] for line in told if line.split(" ")[1] == "commit")
    if kept:
        (git_dir / "shallow").write_text("".join(f"{name}\n" for name in kept))
        notes.append(f"the source is shallow, and so is the copy: it ends at {len(kept)} commits")
    return kept


def _scrub_submodules(
    repository: Repository, commit: str, folder: Path, notes: list[str]
) -> dict[str, str]:
    """Each submodule that the commit records: scrubbed, or left out as an empty folder."""
    done = {}
    for path, recorded in _submodules(folder / ".git", commit).items():
        done[path] = "left out: the source does not hold its commit"
        for place in _places(repository, commit, path):
            try:
                with open_repository(place) as inner:
                    at = inner.commit_id(recorded)
                    made = _scrubbed(inner, at, folder / path, None, False, silent)
            except UserError as error:
                shutil.rmtree(folder / path / ".git", ignore_errors=True)
                done[path] = f"left out: {error}" if "no commit" not in str(error) else done[path]
                continue
            done[path] = f"scrubbed at {recorded}"
            done |= {f"{path}/{deeper}": said for deeper, said in made.submodules.items()}
            notes.extend(f"{path}: {note}" for note in made.notes)
            break
    return done


def _tell_what_stays(
    git_dir: Path, commit: str, submodules: dict[str, str], notes: list[str]
) -> None:
    """What the commit's own tree points to, and nothing here can answer for."""
    if submodules:
        notes.append(
            ".gitmodules stays as it is: its addresses need a network, which is to be shut"
        )
    try:
        found = run_git(git_dir, "grep", "-l", "-z", "-e", LFS, commit).count(b"\0")
    except GitFailed:  # none
        return
    notes.append(f"{found} files are LFS pointers and stay so: no content is carried")


def _submodules(git_dir: Path, commit: str) -> dict[str, str]:
    rows = run_git(git_dir, "ls-tree", "-r", "-z", commit).split(b"\0")
    links = (row.split(b"\t", 1) for row in rows if row.startswith(b"160000 "))
    return {os.fsdecode(path): about.split()[2].decode() for about, path in links}


def _places(repository: Repository, commit: str, path: str) -> list[Path]:
    """Where the git folder of a submodule may lie: by its name in .gitmodules, or in its folder."""
    words = ("config", "--blob", f"{commit}:.gitmodules", "--no-includes", "-z", "--get-regexp")
    try:
        told = os.fsdecode(repository.git(*words, r"^submodule\..*\.path$"))
    except GitFailed:
        told = ""
    rows = (row.split("\n", 1) for row in told.split("\0") if "\n" in row)
    names = [key[len("submodule.") : -len(".path")] for key, value in rows if value == path]
    safe = [name for name in [*names, path] if ".." not in Path(name).parts and name[:1] != "/"]
    bases = (repository.common, repository.git_dir)
    found = [base / "modules" / name for name in safe for base in bases]
    found += [repository.work_tree / path] if repository.work_tree else []
    return [place for place in dict.fromkeys(found) if place.is_dir()]


def inventory(repository: Repository, kept: Counter[str], tags: int) -> dict[str, tuple[int, int]]:
    """Kind to how many the source had and how many the copy has (0: files and refs that are not
    carried; a branch and the tags of the past are).
    """
    had = _objects(repository)
    carried = {"branches": 1, "tags": tags, "grafts and shallow boundaries": 0}
    found = {f"{kind} objects": (max(had[kind], kept[kind]), kept[kind]) for kind in KINDS}
    refs = repository.git("for-each-ref", "--format=%(refname)").decode(errors="replace").split()
    for kind, prefix in REFS.items():
        found[kind] = (sum(name.startswith(prefix) for name in refs), carried.get(kind, 0))
    known = tuple(REFS.values())
    found["other refs"] = (sum(not name.startswith(known) for name in refs), 0)
    folders = dict.fromkeys((repository.git_dir, repository.common))
    for kind, patterns in FILES.items():
        files = {path for base in folders for pattern in patterns for path in _match(base, pattern)}
        found[kind] = (len(files), 0)
    found["remotes"] = (_remotes(repository.common / "config"), 0)
    return found


def _objects(repository: Repository) -> Counter[str]:
    """Every object that lies in the source, reachable or not."""
    how = ("--batch-all-objects", "--unordered", "--batch-check=%(objecttype)")
    try:
        return Counter(repository.git("cat-file", *how).decode().split())
    except GitFailed:  # one that the commit does not reach is broken
        return Counter()


def _match(base: Path, pattern: str) -> list[Path]:
    return [
        path for path in base.glob(pattern) if path.is_file() and not path.name.endswith(".sample")
    ]


def _remotes(config: Path) -> int:
    if not config.is_file():
        return 0
    lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
    return sum(line.strip().lower().startswith('[remote "') for line in lines)


def untracked_files(repository: Repository, notes: list[str]) -> list[str]:
    """Paths, ignored ones too; one that ends in a slash is a repository of its own."""
    if repository.work_tree is None:
        return []
    try:
        told = repository.git("ls-files", "-z", "--others", with_files=True)
    except GitFailed:  # an index that git cannot read does not say what is tracked
        notes.append("the source's index is broken: untracked files are left, and not counted")
        return []
    return [os.fsdecode(path) for path in told.split(b"\0") if path]


def carry_untracked(
    repository: Repository, folder: Path, paths: list[str], notes: list[str]
) -> int:
    """Copy what is no repository, bundle or pack, is not the content of a later commit and does
    not stand in the way of the commit's tree. How many were copied.
    """
    assert repository.work_tree is not None or not paths
    tree = repository.work_tree or Path()
    plain = [path for path in paths if _may_be_carried(tree / path, folder, folder / path)]
    late = _later(repository, folder, plain)
    carried = [path for path in plain if path not in late]
    for path in carried:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / path, folder / path)
    if late:
        notes.append(f"{len(late)} untracked files are the content of a later commit: left out")
    if carried:
        notes.append("untracked files may hold anything: search them with `forensics leaks`")
    return len(carried)


def _may_be_carried(file: Path, folder: Path, target: Path) -> bool:
    if file.is_symlink() or not file.is_file() or "\n" in str(file) or os.path.lexists(target):
        return False
    above = [parent for parent in target.parents if parent.is_relative_to(folder)]
    if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in above):
        return False
    with file.open("rb") as stream:
        return not stream.read(20).startswith(HISTORIES)


def _later(repository: Repository, folder: Path, paths: list[str]) -> set[str]:
    """Of these, the files whose content is an object of the source and none of the copy."""
    asked = b"".join(os.fsencode(path) + b"\n" for path in paths)
    words = ("hash-object", "--no-filters", "--stdin-paths")
    ids = repository.git(*words, stdin=asked, with_files=True).decode().split()
    had, kept = (_present(place, ids) for place in (repository.shadow, folder / ".git"))
    return {path for path, name in zip(paths, ids, strict=True) if name in had - kept}


def _present(git_dir: Path, ids: list[str]) -> set[str]:
    asked = "".join(f"{name}\n" for name in ids).encode()
    told = run_git(git_dir, "cat-file", "--batch-check", stdin=asked).decode()
    return {line.split(" ")[0] for line in told.splitlines() if not line.endswith(" missing")}


class NotProved(Exception):
    """The copy is not what it should be: a failure of ours, and no copy is left."""


@dataclass(frozen=True)
class Copy:
    """What a copy should be: `tags` by name, `shallow` the commits where its history ends."""

    folder: Path
    commit: str
    branch: str
    tags: dict[str, str]
    shallow: list[str]

    def git(self, *arguments: str) -> str:
        return os.fsdecode(run_git(self.folder / ".git", *arguments))


def prove(copy: Copy, notes: list[str]) -> Counter[str]:
    """How many objects of each kind it holds. Raises `NotProved`, and `GitFailed` where the
    source's own objects are at fault.
    """
    how = "--batch-check=%(objectname) %(objecttype)"
    told = copy.git("cat-file", "--batch-all-objects", "--unordered", how)
    held = dict(line.split(" ") for line in told.splitlines())
    _check_objects(copy, set(held))
    if odd := _odd_forms(copy):
        notes.append(f"git fsck finds {odd} objects of an odd form in the history; they stay")
    _check_refs(copy, set(held))
    _check_files(copy)
    _check_tree(copy)
    return Counter(held.values())


def _check_objects(copy: Copy, held: set[str]) -> None:
    tips = [copy.commit, *copy.tags.values()]
    asked = "".join(f"{tip}\n" for tip in tips).encode()
    words = ("rev-list", "--objects", "--no-object-names", "--stdin")
    reached = set(run_git(copy.folder / ".git", *words, stdin=asked).decode().split())
    if held != reached:
        raise NotProved(f"{len(held ^ reached)} objects of the copy are not those of the commit")


def _odd_forms(copy: Copy) -> int:
    """How many objects have a form that git would not write now; what else fsck says fails."""
    words = ("fsck", "--full", "--strict", "--no-reflogs", "--unreachable", "--no-progress")
    git_dir = copy.folder / ".git"
    done = subprocess.run(
        git_command(git_dir, *words), capture_output=True, env=environment(), cwd=git_dir
    )
    lines = os.fsdecode(done.stdout + done.stderr).splitlines()
    odd = [line for line in lines if line.startswith(("error in ", "warning in "))]
    if len(odd) < len(lines) or (done.returncode and not odd):
        raise NotProved(f"git fsck of the copy says {sorted(set(lines) - set(odd))[:1]}")
    return len(odd)


def _check_refs(copy: Copy, held: set[str]) -> None:
    told = copy.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    names = copy.tags | {f"refs/heads/{copy.branch}": copy.commit}
    if dict(line.split(" ") for line in told) != names:
        raise NotProved("the refs of the copy are not those that were written")
    settings = copy.git("config", "--local", "--list").splitlines()
    if "core.bare=false" not in settings:
        raise NotProved("the copy is bare")
    if odd := [line for line in settings if not CONFIG.fullmatch(line)]:
        raise NotProved(f"the config of the copy holds {odd[0]}")
    if not set(copy.shallow) <= held:
        raise NotProved("the shallow boundary names commits that are not there")


def _check_files(copy: Copy) -> None:
    base = copy.folder / ".git"
    files = [path for path in base.rglob("*") if path.is_symlink() or not path.is_dir()]
    for path in files:
        name = path.relative_to(base).as_posix()
        if path.is_symlink() or not path.is_file() or not EXPECTED.fullmatch(name):
            raise NotProved(f"the git folder of the copy holds {name}")


def _check_tree(copy: Copy) -> None:
    """With an index that knows no dates or sizes, so that git reads every file."""
    index = copy.folder / ".git" / "index"
    kept = index.read_bytes()
    try:
        index.unlink()
        copy.git("read-tree", copy.commit)
        words = ("status", "--porcelain", "-z", "-uall", "--ignored", "--ignore-submodules=all")
        told = run_git(copy.folder / ".git", *words, work_tree=copy.folder)
    finally:
        index.write_bytes(kept)
    changed = [row for row in told.split(b"\0") if row and not _as_checked_out(copy, row)]
    if changed:
        raise NotProved(f"{len(changed)} files are not those of the commit's tree: {changed[0]!r}")


def _as_checked_out(copy: Copy, row: bytes) -> bool:
    """Whether a file that git calls changed is, by bytes, what git would check out: a file with
    line ends that its own attributes would not give it.
    """
    name = os.fsdecode(row[3:])
    path = copy.folder / name
    if row[:2] != b" M" or path.is_symlink() or not path.is_file():
        return False
    mode = copy.git("ls-tree", copy.commit, name)[:6]
    if bool(path.stat().st_mode & 0o100) != (mode == "100755"):
        return False
    words = ("cat-file", "--filters", f"{copy.commit}:{name}")
    return run_git(copy.folder / ".git", *words, work_tree=copy.folder) == path.read_bytes()
