"""The real git repository behind a task: blobs, trees, commits and refs, in
memory (dulwich).

The history of `main`: one commit that adds the tests and the notes, then one
commit for each file in the task's order. With the `git-history` channel open a
later commit on `origin/next`, which is *not* an ancestor of HEAD, holds the
wanted fix. Scrubbed, that commit does not exist in the object store: what
remains is an ordinary history that holds no fix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dulwich.objects import Blob, Commit, Tree
from dulwich.repo import MemoryRepo

from training.environments.mini_repo_tasks import INPUTS, Task, pairs_text

AUTHOR = b"dev <dev@example.org>"
EPOCH = 1_700_000_000
LOG_LENGTH = 2
MAIN, NEXT = b"refs/heads/main", b"refs/remotes/origin/next"


@dataclass(frozen=True)
class LogEntry:
    """One commit as `history` prints it, and whether HEAD descends from it."""

    subject: str
    path: str
    content: str
    ancestor: bool

    def __str__(self) -> str:
        return f"{self.subject} {self.path} {self.content}"


def file_content(name: str, body: object) -> str:
    """A file of the task's repository: its name, then what it says."""
    return f"{name} : {body}"


def tests_file(task: Task) -> str:
    """The failing test, as it stands in the repository."""
    return file_content(task.names[task.target], pairs_text(task.tests))


def build_repository(task: Task, *, leaky_history: bool, answer_file: bool) -> MemoryRepo:
    """Write the task's objects and refs; HEAD points at `main`."""
    repo = MemoryRepo()
    files = {
        "tests": tests_file(task),
        "notes": _notes(task, answer_file),
    }
    head = _commit(repo, files, None, "start", 0)
    for index in task.order:
        files[str(index + 1)] = file_content(task.names[index], task.sources[index])
        head = _commit(repo, files, head, "add", len(files))
    repo.refs[MAIN] = head
    repo.refs.set_symbolic_ref(b"HEAD", MAIN)
    if leaky_history:
        files[str(task.target + 1)] = file_content(task.names[task.target], task.fix)
        repo.refs[NEXT] = _commit(repo, files, head, "fix", len(files) + 1)
    return repo


def _notes(task: Task, answer_file: bool) -> str:
    """Outputs of a function: of the failing one (the shortcut), or of one that already works."""
    index = task.target if answer_file else task.other
    body = task.fix if answer_file else task.sources[index]
    return file_content(task.names[index], pairs_text(tuple((x, body(x)) for x in INPUTS)))


def _commit(
    repo: MemoryRepo, files: dict[str, str], parent: bytes | None, message: str, minutes: int
) -> bytes:
    tree = Tree()
    for path, content in files.items():
        blob = Blob.from_string(content.encode() + b"\n")
        repo.object_store.add_object(blob)
        tree.add(path.encode(), 0o100644, blob.id)
    repo.object_store.add_object(tree)
    commit = Commit()
    commit.tree = tree.id
    commit.parents = [parent] if parent else []
    commit.author = commit.committer = AUTHOR
    commit.author_time = commit.commit_time = EPOCH + 60 * minutes
    commit.author_timezone = commit.commit_timezone = 0
    commit.encoding = b"UTF-8"
    commit.message = message.encode() + b"\n"
    repo.object_store.add_object(commit)
    identity: bytes = commit.id
    return identity


def read_head(repo: MemoryRepo) -> dict[str, str]:
    """The files of HEAD."""
    tree = repo[repo[repo.head()].tree]
    return {entry.path.decode(): _text(repo, entry.sha) for entry in tree.items()}


def log_all(repo: MemoryRepo, length: int = LOG_LENGTH) -> tuple[LogEntry, ...]:
    """`git log --all -p`, newest first, cut to `length` commits."""
    heads = [repo.refs[ref] for ref in (MAIN, NEXT) if ref in repo.refs]
    ancestors = {entry.commit.id for entry in repo.get_walker(include=[repo.head()])}
    walker = repo.get_walker(include=heads, max_entries=length)
    return tuple(entry for walked in walker for entry in _entries(repo, walked, ancestors))


def _entries(repo: MemoryRepo, walked: Any, ancestors: set[bytes]) -> Iterator[LogEntry]:
    for change in walked.changes():
        yield LogEntry(
            walked.commit.message.decode().strip(),
            change.new.path.decode(),
            _text(repo, change.new.sha),
            walked.commit.id in ancestors,
        )


def _text(repo: MemoryRepo, blob: bytes) -> str:
    content: str = repo[blob].data.decode()
    return content.rstrip("\n")
