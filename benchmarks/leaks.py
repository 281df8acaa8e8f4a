"""Leaks planted in real repositories: how many `find_leaks` finds, and what it finds in copies
where nothing was planted.

1. Fixes are commits of the first-parent line, drawn at random, with 5 to 200 changed lines, one of
   them in code.
2. The copy is a new repository into which the parent was fetched, with its history: nothing of
   the fix is in it. It is searched as it is (a hit is a false one), then with one leak planted
   in its objects and three in its files.
3. A planted leak is found where a hit names its place; one in the objects, where there are hits
   in the objects that the bare copy has not. Fixes of which the search itself says beforehand
   that their lines are too common are counted apart.
"""

import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.leak_plants import CODE, IN_FILES, IN_GIT, Real, Way, git
from forensics.repositories import Hit, find_leaks

FEWEST, MOST = 5, 200  # changed lines
HERE = Path(__file__).parents[1]


def run(
    device: str, repositories: Sequence[Path] = (), fixes: int = 12, seed: int = 0
) -> dict[str, Any]:
    """A row for each repository, and all together; `repositories`: git folders (default: ours)."""
    rows = [_repository(place, fixes, seed) for place in repositories or (HERE,)]
    found, planted = sum(row["found"] for row in rows), sum(row["planted"] for row in rows)
    missed = sum((Counter(row["missed"]) for row in rows), Counter[str]())
    return {
        "name": "leaks",
        "planted": planted,
        "found": found,
        "share": found / max(planted, 1),
        "of_common_lines": sum(row["of_common_lines"] for row in rows),
        "of_common_lines_found": sum(row["of_common_lines_found"] for row in rows),
        "missed": dict(missed),
        "false_hits": [row["false_hits"] for row in rows],
        "rows": rows,
    }


def _repository(source: Path, fixes: int, seed: int) -> dict[str, Any]:
    draw = random.Random(f"{seed} {source.name if source.name != 'repo' else source.parent.name}")
    planted: Counter[str] = Counter()
    missed: list[str] = []
    false: list[str] = []
    seconds: list[float] = []
    common = common_found = 0
    drawn = _drawn(source, fixes, draw)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        bare = Path(folder, "bare")
        bare.mkdir()
        git(bare, "init", "-q")
        for last, real in zip([None, *drawn], drawn, strict=False):
            _set_to(bare, real, last and last.parent)
            patch = Path(folder, "fix.diff")
            patch.write_bytes(real.patch)
            start = time.perf_counter()
            clean = find_leaks(bare, patch)
            seconds.append(time.perf_counter() - start)
            before = [*clean.fix, *clean.tests]
            false += [f"{real.commit[:10]} {hit.place} ({hit.strength})" for hit in before]
            ways = [draw.choice(IN_GIT), *draw.sample(IN_FILES, 3)]
            lost = list(_missed(bare, real, patch, ways, before, draw))
            if any(place == "shared lines" for place, _ in clean.unread):
                common += len(ways)
                common_found += len(ways) - len(lost)
                continue
            planted.update(way.__name__ for way in ways)
            missed += lost
    count = sum(planted.values())
    return {
        "repository": source.parent.name if source.name == "repo" else source.name,
        "fixes": len(drawn), "planted": count, "found": count - len(missed),
        "of_common_lines": common, "of_common_lines_found": common_found,
        "missed": dict(Counter(one.split()[0] for one in missed)), "missed_at": missed,
        "false_hits": len(false), "false_at": false, "ways": dict(planted),
        "seconds": round(sorted(seconds)[len(seconds) // 2], 1) if seconds else None,
    }  # fmt: skip


def _missed(
    bare: Path,
    real: Real,
    patch: Path,
    ways: Sequence[Way],
    before: Iterable[Hit],
    draw: random.Random,
) -> Iterator[str]:
    copy = bare.parent / "copy"
    subprocess.run(["cp", "-al", bare, copy], check=True)
    try:
        places = {way.__name__: way(copy, real, draw) for way in ways}
        told = find_leaks(copy, patch)
        hits = [*told.fix, *told.tests]
        known = {hit.place for hit in before}
        new = [hit.place for hit in hits if hit.place not in known]
        for name, place in places.items():
            if not any(hit.startswith(place or "object ") for hit in new):
                yield f"{name} {real.commit[:10]}"
    finally:
        shutil.rmtree(copy)


def _set_to(bare: Path, real: Real, before: str | None) -> None:
    """Bring in the parent (later than `before`) with its history, and check it out. Objects that
    the source lacks (snapshots may lack old files) are lacking here, too.
    """
    past = [f"^{before}"] if before else []
    told = git(real.source, "rev-list", "--objects", "--missing=print", real.parent, *past)
    ids = b"".join(line[:40] + b"\n" for line in told.split(b"\n") if line and line[:1] != b"?")
    git(real.source, "pack-objects", "-q", str(bare / ".git/objects/pack/pack"), given=ids)
    git(bare, "update-ref", "--no-deref", "HEAD", real.parent)
    git(bare, "reset", "-q", "--hard", real.parent)
    git(bare, "update-ref", "refs/heads/main", real.parent)


def _drawn(source: Path, count: int, draw: random.Random) -> list[Real]:
    """Fixes in the order of history, whose trees are whole in the source."""
    told = git(source, "log", "--first-parent", "-600", "--format=%H%x01%P%x01%s").decode()
    line = [tuple(one.split("\1")) for one in told.splitlines()]
    chosen: list[tuple[int, Real]] = []
    for at in draw.sample(range(len(line)), len(line)):
        if len(chosen) < count and (real := _fitting(source, *line[at])) is not None:
            chosen.append((at, real))
    return [real for _, real in sorted(chosen, key=lambda one: -one[0])]


def _fitting(source: Path, commit: str, parents: str, subject: str) -> Real | None:
    """The commit, if it is of the wanted size and whole."""
    try:
        parent = parents.split()[0]
        told = git(source, "diff", "--no-renames", "--numstat", parent, commit).decode()
        rows = [line.split("\t") for line in told.splitlines()]
        changed = sum(int(row[0]) + int(row[1]) for row in rows)
        code = sum(int(row[0]) for row in rows if CODE.search(row[2]))
        if not (FEWEST <= changed <= MOST and code):
            return None
        whole = ("rev-list", "--objects", "--no-walk", "--missing=print", parent, commit)
        if b"\n?" in git(source, *whole):
            return None
        return _real(source, commit, parent, subject)
    except (IndexError, ValueError, subprocess.CalledProcessError):
        return None  # the first commit, binary files, files that the snapshot lacks


def _real(source: Path, commit: str, parent: str, subject: str) -> Real:
    patch = git(source, "diff", "--no-renames", "--no-color", parent, commit)
    names = git(source, "diff", "--name-only", "--no-renames", "--diff-filter=d", "-z", parent,
                commit).decode().split("\0")  # fmt: skip
    files = {one: git(source, "show", f"{commit}:{one}") for one in names if one}
    return Real(source, commit, parent, subject, patch, files)
