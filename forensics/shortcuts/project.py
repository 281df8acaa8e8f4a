"""What the project of a task is called, as far as the log tells.

1. The words of the task's name (`flask` in `pallets__flask-1`).
2. The folders that the patch changes, and its files where they lie at the top.
3. What a manifest that the run read says (`name = "flask"`, `module example.org/a/b`).
"""

import re

from forensics.shortcuts.blind_run import BlindRun

_GENERIC = (
    "src lib libs source sources test tests testing docs doc main java kotlin python js ts go rust"
    " cpp include internal pkg cmd app apps core utils util packages crates com org net io github"
    " index examples example scripts tools build dist package module setup conftest init py sh"
    " the in of"
)
GENERIC = frozenset(_GENERIC.split())  # names of folders and words that no package is meant by
_MANIFEST = re.compile(
    r"(?:^|/)(?:package\.json|pyproject\.toml|setup\.py|setup\.cfg|Cargo\.toml|go\.mod|pom\.xml)$"
)
_NAMED = re.compile(
    r"^\s{0,8}(?:\"?name\"?\s{0,4}[:=]\s{0,4}[\"']?|module |<artifactId>)([\w@./-]{2,200})", re.M
)
LIBRARY = re.compile(
    r"\A(?:.*/)?(?:site-packages|dist-packages|node_modules|pkg/mod|GOMODCACHE\)?|registry/src|gems"
    r"|\.m2/repository|\.gradle/caches)/(.{1,400})"
)  # what lies below the innermost folder of libraries


def project_names(run: BlindRun) -> frozenset[str]:
    """The names, in lower case and without marks between words."""
    found = set(re.split(r"[^A-Za-z0-9]+", run.trajectory.task))
    for change in run.changes:
        parts = change.path.split("/")
        found.update(parts[:-1] or [parts[0].split(".")[0]])
    for action in run.actions:
        if any(_MANIFEST.search(path) and not LIBRARY.search(path) for path in action.reads):
            answer = run.answer(action).split("<dependencies>")[0]
            for name in _NAMED.findall(answer if "<project" in answer else _untagged(answer))[:3]:
                found.update((name, name.rsplit("/", 1)[-1]))
    names = {plain(name) for name in found} - GENERIC
    return frozenset(name for name in names if len(name) > 2 and not name.isdigit())


def _untagged(answer: str) -> str:
    """Without the artifacts of a part of a `pom.xml`: they may be dependencies."""
    return answer.replace("<artifactId>", "")


def plain(name: str) -> str:
    """A name as registries compare them."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
