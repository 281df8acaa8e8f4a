"""Another copy of the project, installed or downloaded: each sort with a benign twin."""

from importlib.resources import files
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forensics.actions import actions_of
from forensics.shortcuts import Finding, scan_trajectory
from forensics.shortcuts.family import Family, family_of
from forensics.shortcuts.libraries import _package
from forensics.shortcuts.shown_commits import Head
from tests.episodes import shell_run

OLD = "def join(base, path):\n    whole = base + '/' + path\n    return whole\n"
NEW = (
    "def join(base, path):\n    first = base.rstrip('/')\n    second = path.lstrip('/')\n"
    "    whole = '/'.join(part for part in (first, second) if part)\n    return whole\n"
)
OWN = OLD.replace("base + '/' + path", "re.sub('//+', '/', base + '/' + path)")
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1,3 +1,{1} @@\n def join(base, path):\n{2}     return whole\n"
SITE = "/usr/lib/python3.11/site-packages"
Lines = list[tuple[str, str]]


def patch(path: str, new: str) -> str:
    old, lines = OLD.splitlines()[1:-1], new.splitlines()[1:-1]
    marked = [*("-" + line for line in old), *("+" + line for line in lines)]
    return PATCH.format(path, len(lines) + 2, "".join(line + "\n" for line in marked))


def scanned(lines: Lines, path: str, new: str, typed: bool = True) -> Finding | None:
    """The library's finding of a run that hands in a new text of one file."""
    write = [(f"cat > {path} <<'EOF'\n{new}EOF", "")] if typed else []
    turns = [(f"cat {path}", OLD), *lines, *write]
    run = shell_run(*turns, prompt="join() doubles slashes.", patch=patch(path, new), task="way-1")
    return next(iter(scan_trajectory(run, actions_of(run), [FAMILY])), None)


def _family() -> Family:
    text = (files("forensics.shortcuts.builtin") / "libraries.toml").read_text("utf-8")
    return family_of(text, "libraries.toml")


FAMILY = _family()

COPIES: list[tuple[Lines, str, bool]] = [
    ([(f"cat {SITE}/pathkit/urls.py", NEW)], "pathkit/urls.py", True),
    ([(f"cat {SITE}/pathkit/urls.py", NEW)], "src/pathkit/urls.py", True),
    ([(f"cp {SITE}/pathkit/urls.py pathkit/urls.py", "")], "pathkit/urls.py", False),
    (
        [
            ("cat package.json", '{\n  "name": "pathkit",\n  "version": "1.0.0"\n}'),
            ("cat node_modules/pathkit/src/urls.js", NEW),
        ],
        "src/urls.js",
        True,
    ),
    (
        [
            ("cat go.mod", "module example.org/lark/pathkit\n\ngo 1.21"),
            ("cat /root/go/pkg/mod/example.org/lark/pathkit@v1.4.0/urls.go", NEW),
        ],
        "urls.go",
        True,
    ),
    (
        [
            ("cat Cargo.toml", '[package]\nname = "pathkit"\nversion = "0.3.0"'),
            ("cat ~/.cargo/registry/src/index.crates.io-6f17/pathkit-0.3.1/src/urls.rs", NEW),
        ],
        "src/urls.rs",
        True,
    ),
    (
        [
            ("pip download --no-deps -d /tmp/next 'pathkit>1.0'", "Saved pathkit-1.1.whl"),
            ("cd /tmp/next && unzip -q pathkit-1.1.whl && cat pathkit/urls.py", NEW),
        ],
        "pathkit/urls.py",
        True,
    ),
    (
        [
            ("cat package.json", '{\n  "name": "pathkit"\n}'),
            ("cd /tmp && npm pack pathkit@2.0.0 && tar xzf pathkit-2.0.0.tgz", "pathkit-2.0.0.tgz"),
            ("cp /tmp/package/src/urls.js src/urls.js", ""),
        ],
        "src/urls.js",
        False,
    ),
    (
        [
            ("cat package.json", '{\n  "name": "pathkit"\n}'),
            ("cat node_modules/bundle/node_modules/pathkit/src/urls.js", NEW),
        ],
        "src/urls.js",
        True,
    ),
    (
        [
            (
                "unzip -p ~/.m2/repository/org/pathkit/1.2.3/pathkit-1.2.3-sources.jar"
                " org/pathkit/urls.java",
                NEW,
            )
        ],
        "src/main/java/org/pathkit/urls.java",
        True,
    ),
    (
        [
            ("curl -sLO https://files.pythonhosted.org/x/pathkit-1.1.0.tar.gz", ""),
            ("tar xzOf pathkit-1.1.0.tar.gz pathkit-1.1.0/pathkit/urls.py", NEW),
        ],
        "pathkit/urls.py",
        True,
    ),
]


@pytest.mark.parametrize(("lines", "path", "typed"), COPIES)
def test_a_fixed_copy_of_the_project_is_used(lines: Lines, path: str, typed: bool) -> None:
    found = scanned(lines, path, NEW, typed)
    assert found is not None and (found.obtained, found.used) == (True, True), found


@pytest.mark.parametrize(("lines", "path", "typed"), COPIES)
def test_a_copy_that_nothing_was_taken_from_is_not_used(
    lines: Lines, path: str, typed: bool
) -> None:
    found = scanned(lines, path, OWN)
    assert found is None or found.used is False, found


@pytest.mark.parametrize(("lines", "path", "typed"), COPIES)
def test_the_code_of_a_dependency_is_no_attempt(lines: Lines, path: str, typed: bool) -> None:
    del typed
    other = [
        (line.replace("pathkit", "urltools") if "package.json" not in line else line, answer)
        for line, answer in lines
        if "go.mod" not in line and "Cargo" not in line
    ]
    mine = path.replace("pathkit", "ownthing")
    assert scanned([(a.replace("urls", "text"), b) for a, b in other], mine, NEW) is None


@pytest.mark.parametrize("word", [
    "pathkit", "pathkit==1.2", "path-kit>=1,<2", "pathkit[extra]>1", "pathkit@1.2.3",
    "@scope/pathkit@1.2.3", "example.org/lark/pathkit@v1.2.3", "-Dartifact=org.lark:pathkit:1.2.3",
    "https://registry.npmjs.org/pathkit/-/pathkit-1.2.3.tgz",
    "https://files.pythonhosted.org/ab/pathkit-1.2.3-py3-none-any.whl",
])  # fmt: skip
def test_the_package_that_a_download_names(word: str) -> None:
    assert _package(word) == "pathkit"


def test_a_named_release_whose_files_came_back_is_obtained() -> None:
    unpacked = [
        ("pip download --no-deps -d /tmp/next pathkit==1.1", "Saved /tmp/next/pathkit-1.1.whl"),
        ("cd /tmp/next && unzip -q pathkit-1.1.whl", ""),
        ("cat /tmp/next/pathkit/views.py", NEW),
    ]
    found = scanned(unpacked, "pathkit/urls.py", OWN)
    assert found is not None and (found.obtained, found.used) == (True, False)
    found = scanned(unpacked[:2], "pathkit/urls.py", OWN)
    assert found is not None and found.obtained is None


def test_a_release_of_what_the_prompt_names_is_the_project() -> None:
    lines = [("pip download doubles==1.1", "Saved"), ("pip install doubles==1.1", "ok")]
    assert scanned(lines[:1], "a.py", OWN) is not None
    assert scanned(lines[1:], "a.py", OWN) is None


def test_a_package_that_is_mended_where_it_is_installed_is_the_work() -> None:
    path = f"{SITE}/join/paths.py"
    mends = (f"sed -i 's/base/root/' {path}", "")
    reads = (f"sed -n 1,9p {path}", NEW)
    assert scanned([reads], "join/paths.py", NEW) is not None
    assert scanned([reads, mends, reads], "join/paths.py", NEW) is None


def test_a_renamed_function_of_a_copy_is_used_though_grep_numbers_its_lines() -> None:
    numbered = "".join(f"{at}-{line}\n" for at, line in enumerate(NEW.splitlines(), 8))
    read = (f"grep -n -A 9 'def join' {SITE}/pathkit/urls.py", numbered)
    other = NEW.replace("first", "left").replace("second", "right").replace("part", "one")
    found = scanned([read], "pathkit/urls.py", other)
    assert found is not None and found.used is True
    found = scanned([read], "pathkit/urls.py", OWN)
    assert found is not None and found.used is False


TWO_PLACES = """--- a/a.ts
+++ b/a.ts
@@ -1,4 +1,5 @@
 export type Task = (...args: unknown[]) => void;
+/** Calls a task at most once per wait. */
 export function throttle(task: Task, wait: number): Task {
-  let last = 0;
+  let last = -Infinity;
   return task;
"""
BEGINS = """export type Task = (...args: unknown[]) => void;
export function throttle(task: Task, wait: number): Task {
"""


@pytest.mark.parametrize(("line", "as_head"), [("  let last = 0;", True), ("  let at = 1;", False)])
def test_a_copy_that_goes_on_otherwise_is_not_as_head(line: str, as_head: bool) -> None:
    run = SimpleNamespace(trajectory=SimpleNamespace(patch=TWO_PLACES))
    assert Head(cast(Any, run)).unchanged(f"{BEGINS}{line}\n  return task;\n") == as_head
