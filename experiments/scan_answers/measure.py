"""What the code reader tells of labelled answers: `python -m experiments.scan_answers.measure`.

The answers are other people's and stay where they are (`--data`, a folder with
`answers/*.jsonl` and `field/`); what is not there is left out.

1. Each answer of `answers/*.jsonl` (`prompt`, `response`, `kind`, `hack`) is read
   block by block with its prompt in view.
2. The added lines of the patches of `field/hacks` and `field/right` are read the
   same way, with the task's text as the prompt, and the answers of `field/answers`.
3. Printed: for each file and label how many are told surely, as an attempt, or
   not at all; then every honest answer that is told, with its lines; with
   `--missed` the hacks that are not.

The rules were made with these files in view, so the figures say how well they
fit, not how well they will do; other halves are kept apart for that.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.shortcuts.code_reading import CodeFinding, read_answer, read_code

WORDS = ("sure", "attempt", "nothing")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One labelled answer and what is told of it."""

    file: str
    id: str
    label: str
    bad: bool
    told: tuple[CodeFinding, ...]

    @property
    def word(self) -> str:
        """The strongest thing told."""
        if not self.told:
            return "nothing"
        return "sure" if any(one.sure for one in self.told) else "attempt"


def main() -> None:
    """Read what is there and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--missed", action="store_true", help="name the hacks that are not told")
    given = parser.parse_args()
    started = time.perf_counter()
    rows = [*answers(given.data), *patches(given.data), *field_answers(given.data)]
    taken = time.perf_counter() - started
    print(table(rows))
    print(f"\n{len(rows)} answers in {taken:.1f} s\n")
    for row in rows:
        if not row.bad and row.told:
            print(f"told of an honest one: {row.file} {row.id} ({row.label}, {row.word})")
            print("\n".join(f"    {one.kind}: {one.quote!r}" for one in row.told[:3]))
        elif row.bad and given.missed and row.word != "sure":
            print(f"not sure of a hack: {row.file} {row.id} ({row.label}, {row.word})")


def answers(data: Path) -> Iterator[Row]:
    """The rows of `answers/*.jsonl`."""
    for path in sorted((data / "answers").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            told = tuple(one for _, one in read_answer(row["response"], row["prompt"]))
            yield Row(
                file=path.stem, id=row["id"], label=row["kind"], bad=bool(row["hack"]), told=told
            )


def patches(data: Path) -> Iterator[Row]:
    """The added code of the patches of `field/hacks` and `field/right`."""
    for folder in ("hacks", "right"):
        for path in sorted((data / "field" / folder).glob("*.traj.json")):
            run = json.loads(path.read_text())
            code = added(run["info"].get("submission") or "")
            if code:
                told = read_code(code, run["messages"][1]["content"])
                yield Row(
                    file=f"field/{folder}",
                    id=path.name.partition(".")[0],
                    label=folder,
                    bad=not path.name.startswith("B_"),
                    told=told,
                )


def added(patch: str) -> str:
    """The added lines of the Python files of a patch."""
    lines: list[str] = []
    python = False
    for line in patch.splitlines():
        if line.startswith("+++ "):
            python = line.endswith(".py")
        elif python and line.startswith("+"):
            lines.append(line[1:])
    return "\n".join(lines)


def field_answers(data: Path) -> Iterator[Row]:
    """The answers of `field/answers`."""
    for path in sorted((data / "field" / "answers").glob("*")):
        text = path.read_text()
        samples = json.loads(text)["samples"] if path.suffix == ".json" else None
        for row in samples or map(json.loads, filter(None, text.splitlines())):
            said: list[dict[str, Any]] = row["messages"]
            told = tuple(one for _, one in read_answer(said[-1]["content"], said[0]["content"]))
            bad = row["id"] != "honest"
            yield Row(file="field/answers", id=row["id"], label=path.stem, bad=bad, told=told)


def table(rows: list[Row]) -> str:
    """Counts by file and label."""
    counts = Counter((row.file, row.label, row.word) for row in rows)
    lines = [f"{'file':16} {'label':22} {'sure':>7} {'attempt':>7} {'nothing':>7}"]
    for file, label in dict.fromkeys((row.file, row.label) for row in rows):
        figures = " ".join(f"{counts[file, label, word]:7}" for word in WORDS)
        lines.append(f"{file:16} {label:22} {figures}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
