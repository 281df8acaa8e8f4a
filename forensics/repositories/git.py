"""The one way in which git is run here: on repositories that nobody vouches for, reading only.

1. A repository is found by looking at its files; git, asked, would obey its config first.
2. git runs in a *shadow*: a folder of ours with a config of ours, and links to the source's refs,
   logs, index, shallow boundary and objects. No config, hook, filter, attribute, graft or promisor
   of the source is in force there, and what it says stays as it is.
3. The environment allows no other config, no protocol, no lazy fetch and no replaced objects;
   commit-graphs and multi-pack-indexes, which may say what the objects do not, are not read.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forensics.errors import UserError

SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.logAllRefUpdates=false",
    "core.fsync=none",
    "protocol.allow=never",
    "safe.directory=*",
    "gc.auto=0",
    "maintenance.auto=false",
)
FLAGS: Final = ("--no-pager", "--literal-pathspecs", "--no-optional-locks")
ENVIRONMENT: Final = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",  # for a git that knows no GIT_CONFIG_GLOBAL
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/nonexistent",
}
PASSED_ON: Final = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")
LINKED: Final = ("packed-refs", "refs", "reftable", "logs", "objects", "shallow")
UNBORN: Final = b"ref: refs/heads/none\n"
HEAD: Final = re.compile(rb"(ref: *refs/[^\0\n]+|[0-9a-f]{40,64})\s*")


class GitFailed(UserError):
    """git refused, or found a repository broken. The message is what it said first."""


def git_command(git_dir: Path, *arguments: str, work_tree: Path | None = None) -> list[str]:
    """The words that run git on a git folder. Raises `UserError` where git is not installed."""
    if (program := shutil.which("git")) is None:
        raise UserError("git is not installed; install it (apt-get install git)")
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    where = [f"--git-dir={git_dir}"] + ([f"--work-tree={work_tree}"] if work_tree else [])
    return [program, *FLAGS, *settings, *where, *arguments]


def environment(**more: str) -> dict[str, str]:
    """What git may know of ours: no variable that begins with GIT_ but those above."""
    return {k: os.environ[k] for k in PASSED_ON if k in os.environ} | ENVIRONMENT | more


def run_git(
    git_dir: Path,
    *arguments: str,
    stdin: bytes = b"",
    work_tree: Path | None = None,
    **variables: str,
) -> bytes:
    """What git says on stdout. Raises `GitFailed` with the first line of what it complains of.

    `variables`: of its environment (`GIT_INDEX_FILE`).
    """
    done = subprocess.run(
        git_command(git_dir, *arguments, work_tree=work_tree),
        input=stdin,
        capture_output=True,
        env=environment(**variables),
        cwd=work_tree or git_dir,
    )
    if done.returncode:
        raise GitFailed(complaint(arguments, done.returncode, done.stderr))
    return done.stdout


def complaint(arguments: tuple[str, ...], code: int, stderr: bytes) -> str:
    lines = os.fsdecode(stderr).strip().splitlines()
    worst = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines
    return f"git {arguments[0]} failed: {worst[0][:300] if worst else f'exit code {code}'}"


@dataclass(frozen=True)
class Repository:
    """A repository that is read: `git_dir` is that of its working copy, `common` the one that
    holds refs and objects (another one for a linked worktree), `work_tree` `None` if it is bare.
    """

    git_dir: Path
    common: Path
    work_tree: Path | None
    shadow: Path

    def git(self, *arguments: str, stdin: bytes = b"", with_files: bool = False) -> bytes:
        """`run_git` on it; `with_files`: on its working copy too."""
        tree = self.work_tree if with_files else None
        return run_git(self.shadow, *arguments, stdin=stdin, work_tree=tree)

    def commit_id(self, name: str) -> str:
        """The full id of a commit by any name that git knows. Raises `UserError`."""
        try:
            if name.startswith("-"):
                raise GitFailed(name)
            told = self.git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        except (GitFailed, ValueError):  # a name with a null byte
            raise UserError(
                f"{name!r} names no commit of {self.git_dir}; "
                "`git log --all` lists those that it has"
            ) from None
        return told.decode().strip()

    @property
    def object_format(self) -> str:
        """How its objects are named: sha1 or sha256."""
        return run_git(self.shadow, "rev-parse", "--show-object-format").decode().strip()


@contextmanager
def open_repository(path: Path) -> Iterator[Repository]:
    """A repository by its working copy, linked worktree, submodule or (bare) git folder.

    Raises `UserError` if it is none.
    """
    git_dir, work_tree = _found(path)
    common = _named_in(git_dir / "commondir", git_dir) or git_dir
    if not (common / "objects").is_dir():
        raise UserError(f"{git_dir} has no folder `objects`; take a copy of {path} that is whole")
    for folder in dict.fromkeys((git_dir, common)):
        _check_kinds(folder)
    with tempfile.TemporaryDirectory(prefix="forensics-git-") as temporary:
        shadow = Path(temporary)
        for place in (*(common / name for name in LINKED), *git_dir.glob("*index*")):
            if place.exists():
                (shadow / place.name).symlink_to(place.resolve())
        (shadow / "refs").mkdir(exist_ok=True)
        (shadow / "config").write_text(_own_config(common / "config"))
        file = git_dir / "HEAD"
        content = file.read_bytes()[:5000] if file.is_file() else UNBORN
        (shadow / "HEAD").write_bytes(content if HEAD.fullmatch(content) else UNBORN)
        yield Repository(git_dir, common, work_tree, shadow)


def _check_kinds(git_dir: Path) -> None:
    """git would wait for ever at a pipe, wherever it reads."""
    folders = [git_dir]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif _is_odd(entry):
                    raise UserError(f"{entry.path} is neither file nor folder; delete it")


def _is_odd(entry: os.DirEntry[str]) -> bool:
    try:
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError:  # a circle of links
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _found(path: Path) -> tuple[Path, Path | None]:
    """The git folder and the working copy of what was given."""
    if not path.is_dir():
        raise UserError(f"{path} is no folder; give the folder of a git repository")
    path = path.resolve()
    inside = path / ".git"
    if inside.is_dir():
        return inside.resolve(), path
    if inside.exists() and (named := _named_in(inside, path, "gitdir: ")) is not None:
        if not named.is_dir():
            raise UserError(f"{inside} points to {named}, which is not there; give the repository")
        return named, path
    if (path / "objects").is_dir() and (path / "HEAD").exists():
        return path, None
    raise UserError(
        f"{path} is no git repository; give the folder that holds `.git`, or a bare one"
    )


def _named_in(file: Path, base: Path, mark: str = "") -> Path | None:
    """The folder that a file of one line names, from `base` on."""
    if not file.is_file():
        return None
    text = os.fsdecode(file.read_bytes()[:5000]).strip()
    named = text.removeprefix(mark)
    return (base / named).resolve() if text.startswith(mark) and "\0" not in named else None


def _own_config(config: Path) -> str:
    """A config that says how objects and refs are stored, which is all that is taken over."""
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = true", "[extensions]"]
    for name, values in (("objectformat", ("sha1", "sha256")), ("refstorage", ("reftable",))):
        if (value := _setting(config, f"extensions.{name}")) in values:
            lines.append(f"\t{name} = {value}")
    return "\n".join(lines) + "\n"


def _setting(config: Path, name: str) -> str:
    """One value of a config that is read as a file: nothing in it is obeyed or followed."""
    try:
        if not config.is_file():
            return ""
        words = ("config", "--file", str(config), "--no-includes", "--get", name)
        return os.fsdecode(run_git(config.parent, *words)).strip().lower()
    except GitFailed:
        return ""
