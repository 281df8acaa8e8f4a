"""Repositories made with git itself, one for each place where a later commit can lie."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

SECRET = "xyzzy-later"
DAY = 86_400
START = 1_600_000_000


def git(folder: Path, *words: str, day: int = 0, stdin: str = "", ok: bool = True) -> str:
    when = f"{START + day * DAY} +0000"
    names = {
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *words],
        cwd=folder,
        env=env | names | dates | {"GIT_EDITOR": "true"},
        input=stdin.encode(),
        capture_output=True,
    )
    assert done.returncode == 0 or not ok, (words, done.stderr)
    return done.stdout.decode(errors="replace").strip()


def commit(folder: Path, name: str, text: str, day: int) -> str:
    (folder / name).write_text(text)
    git(folder, "add", "-A", day=day)
    git(folder, "commit", "-qm", f"{name}: {text[:20]}", day=day)
    return git(folder, "rev-parse", "HEAD")


def past(folder: Path) -> str:
    """A history with a merge, tags, a mode, a link and line ends; the id of its last commit."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    (folder / ".gitattributes").write_text("*.bat text eol=crlf\n*.big filter=lfs\nkept.* text\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "a.bat").write_bytes(b"one\r\ntwo\r\n")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "ünï code.txt").write_text("deep\n")
    (folder / "big.big").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    )
    commit(folder, "f.txt", "one\n", 1)
    git(folder, "tag", "v1")
    git(folder, "tag", "-am", "the second", "v1-annotated", day=1)
    git(folder, "switch", "-qc", "side")
    commit(folder, "side.txt", "side\n", 2)
    git(folder, "switch", "-q", "main")
    commit(folder, "f.txt", "one\ntwo\n", 3)
    git(folder, "merge", "-q", "--no-ff", "-m", "merge side", "side", day=4)
    return git(folder, "rev-parse", "HEAD")


def later(folder: Path, name: str = "f.txt", day: int = 9) -> str:
    return commit(folder, name, f"{SECRET} {name}\n", day)


def branches(at: Path) -> None:
    later(at)
    git(at, "branch", "fix")
    git(at, "tag", "v2")
    git(at, "tag", "-am", SECRET, "v2-annotated", day=9)
    git(at, "tag", "-am", SECRET, "late-words-on-v1", "v1", day=9)


def detached(at: Path) -> None:
    git(at, "switch", "-q", "--detach")
    later(at)


def packed(at: Path) -> None:
    branches(at)
    git(at, "-c", "gc.writeCommitGraph=true", "gc", "-q")
    git(at, "commit-graph", "write", "--reachable")
    git(at, "multi-pack-index", "write")
    git(at, "repack", "-adbq")


def remotes(at: Path) -> None:
    other = at.parent / "other"
    git(at.parent, "clone", "-q", str(at), "other")
    later(other)
    git(at, "remote", "add", "origin", str(other))
    git(at, "fetch", "-q")
    git(at, "remote", "set-head", "origin", "main")
    git(at, "branch", "-q", "--set-upstream-to=origin/main")


def reflog(at: Path) -> None:
    later(at)
    git(at, "reset", "-q", "--hard", "HEAD~1")


def stash(at: Path) -> None:
    (at / "f.txt").write_text(SECRET)
    (at / "new.txt").write_text(SECRET)
    git(at, "stash", "-qu", "-m", SECRET)


def notes(at: Path) -> None:
    git(at, "notes", "add", "-m", SECRET)


def replaced(at: Path) -> None:
    here = git(at, "rev-parse", "HEAD")
    there = later(at)
    git(at, "reset", "-q", "--hard", here)
    git(at, "replace", here, there)
    (at / ".git" / "info" / "grafts").write_text(f"{here} {there}\n")


def loose(at: Path) -> None:
    git(at, "hash-object", "-w", "--stdin", stdin=f"{SECRET}\n")


def alternates(at: Path) -> None:
    other = at.parent / "other"
    git(at.parent, "clone", "-q", "--no-hardlinks", str(at), "other")
    later(other)
    moved = at.parent / "moved"
    (at / ".git" / "objects").rename(moved)
    shutil.copytree(at.parent / "other" / ".git" / "objects", moved, dirs_exist_ok=True)
    (at / ".git" / "objects" / "info").mkdir(parents=True)
    (at / ".git" / "objects" / "info" / "alternates").write_text("../../../moved\n")


def worktrees(at: Path) -> None:
    git(at, "worktree", "add", "-q", "-b", "elsewhere", "../linked")
    later(at.parent / "linked")
    git(at, "config", "extensions.worktreeConfig", "true")
    (at / ".git" / "config.worktree").write_text(f"[user]\n\tname = {SECRET}\n")


def merging(at: Path) -> None:
    git(at, "switch", "-qc", "conflict")
    later(at)
    git(at, "switch", "-q", "main")
    commit(at, "f.txt", f"{SECRET} other\n", 9)
    git(at, "config", "rerere.enabled", "true")
    git(at, "merge", "conflict", ok=False)
    (at / "f.txt").write_text(SECRET)
    git(at, "add", "f.txt")  # leaves resolve-undo in the index


def rebasing(at: Path) -> None:
    git(at, "switch", "-qc", "conflict")
    later(at)
    git(at, "switch", "-q", "main")
    commit(at, "f.txt", f"{SECRET} other\n", 9)
    git(at, "rebase", "conflict", ok=False)
    assert (at / ".git" / "rebase-merge").is_dir()


def picking(at: Path) -> None:
    picked = later(at)
    git(at, "reset", "-q", "--hard", "HEAD~2")
    git(at, "cherry-pick", picked, ok=False)
    git(at, "bisect", "start", picked, "v1")


def staged(at: Path) -> None:
    (at / "f.txt").write_text(SECRET)
    git(at, "add", "f.txt")
    (at / "meant.txt").write_text(SECRET)
    git(at, "add", "-N", "meant.txt")
    git(at, "update-index", "--split-index")
    (at / "side.txt").write_text(SECRET)


EVIL = (
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.alternateRefsCommand",
    "filter.lfs.smudge", "filter.lfs.process", "filter.lfs.clean", "diff.external",
    "uploadpack.packObjectsHook", "alias.pack-objects",
)  # fmt: skip


def hooked(at: Path) -> None:
    """Everything that could run something, or say something."""
    later(at)
    proof = at.parent / "ran"
    script = at / ".git" / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {proof}\ncat\n")
    script.chmod(0o755)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(script, at / ".git" / "hooks" / name)
    for key in EVIL:
        git(at, "config", key, str(script))
    git(at, "config", "filter.lfs.required", "true")
    git(at, "config", "core.worktree", str(at.parent))
    git(at, "config", "include.path", "/dev/stdin")
    (at / ".git" / "info" / "attributes").write_text("* filter=lfs diff=evil\n")
    for name in ("description", "COMMIT_EDITMSG", "gc.log", "FETCH_HEAD"):
        (at / ".git" / name).write_text(SECRET)
    lfs = at / ".git" / "lfs" / "objects" / "00" / "00"
    lfs.mkdir(parents=True)
    (lfs / "0000").write_text(SECRET)


def bundles(at: Path) -> None:
    last = later(at)
    git(at, "bundle", "create", "-q", ".git/later.bundle", "HEAD")
    git(at, "bundle", "create", "-q", "later.bundle", "HEAD")
    (at / "later.patch").write_text(git(at, "show", last))
    (at / "x.log").write_text(SECRET)


def sparse(at: Path) -> None:
    later(at)
    git(at, "sparse-checkout", "set", "deep")


def moved_git_folder(at: Path) -> None:
    later(at)
    (at / ".git").rename(at.parent / "store")
    (at / ".git").write_text("gitdir: ../store\n")


def bare(at: Path) -> None:
    later(at)
    git(at.parent, "clone", "-q", "--mirror", str(at), "bare.git")
    shutil.rmtree(at)
    (at.parent / "bare.git").rename(at)


def partial(at: Path) -> None:
    """A partial clone that has what the commit needs."""
    later(at)
    (at / ".git" / "objects" / "pack" / "pack-0.promisor").write_text("")
    git(at, "config", "remote.origin.promisor", "true")
    git(at, "config", "remote.origin.url", "/nonexistent")
    git(at, "config", "extensions.partialClone", "origin")


def broken_things(at: Path) -> None:
    """What a repository can hold and git cannot read: nothing that the commit needs."""
    last = later(at)
    words = ("hash-object", "-t", "tag", "-w", "--literally", "--stdin")
    for number, text in enumerate(("no tag\n", "type commit\ntag x\n\nno object\n")):
        name = git(at, *words, stdin=text)
        (at / ".git" / "refs" / "tags" / f"broken-{number}").write_text(f"{name}\n")
    (at / ".git" / "refs" / "tags" / "nowhere").write_text("1" * 40 + "\n")
    (at / ".git" / "refs" / "heads" / "none").write_text("no id\n")
    file = at / ".git" / "objects" / last[:2] / last[2:]
    file.chmod(0o644)
    file.write_bytes(b"no object")


def unreadable_head(at: Path) -> None:
    """git looks for names of authors in the commit of HEAD, which is broken."""
    last = later(at)
    file = at / ".git" / "objects" / last[:2] / last[2:]
    file.chmod(0o644)
    file.write_bytes(b"no object")


STATES: tuple[Callable[[Path], None], ...] = (
    branches, detached, packed, remotes, reflog, stash, notes, replaced, loose, alternates,
    worktrees, merging, rebasing, picking, staged, hooked, bundles, sparse, moved_git_folder,
    bare, partial, broken_things, unreadable_head,
)  # fmt: skip
