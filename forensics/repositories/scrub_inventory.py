"""What a repository held, by kind, beside what its scrubbed copy holds."""

from collections import Counter
from pathlib import Path
from typing import Final

from forensics.repositories.git import GitFailed, Repository

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
