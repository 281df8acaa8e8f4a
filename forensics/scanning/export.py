"""Results of a scan for other tools: where they go, and never over something else unasked.

`scout`: a folder of Inspect Scout's scans (`export_scout`). `jsonl`: a line for each finding with its run and its
review. `markdown`: a summary for a pull request (`forensics.report.pull_request`).
"""

import filecmp
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from forensics.case import Case
from forensics.errors import UserError
from forensics.records.files import as_user_error
from forensics.scanning.export_rows import findings_of, key_of, level_of, reviews_of

Kind = Literal["scout", "jsonl", "markdown"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Export:
    """One file, or one folder of scans, to write."""

    kind: Kind
    path: Path


def export_of(text: str) -> Export:
    """An export as an option gives it (`scout=PATH`). Raises `UserError`."""
    kind, equals, path = text.partition("=")
    if not equals or not path or kind not in KINDS:
        raise UserError(f"--export '{text}' is not of the form KIND=PATH with a KIND of {', '.join(KINDS)}")
    return Export(kind=kind, path=Path(path).expanduser())  # type: ignore[arg-type]


def require_free(exports: Sequence[Export], case: Path, logs: Iterable[Path], *, replace: bool) -> None:
    """Refuse, before anything is read, what would be written over or into something else. Raises `UserError`.

    `replace`: what is there may be replaced, or is compared when it is written.
    """
    seen = set[Path]()
    for export in exports:
        path, where = export.path.resolve(), f"--export {export.kind}={export.path}"
        if path in seen:
            raise UserError(f"{where} names a path that another --export has; give each its own")
        seen.add(path)
        for place in (case.resolve(), *(log.resolve() for log in logs)):
            if path == place or place in path.parents:
                raise UserError(f"{where} lies inside {place.name}, which is the case or a log; choose another path")
        if export.kind == "scout" and path.exists() and not path.is_dir():
            raise UserError(f"{where} is a file; give a folder for Inspect Scout's scans")
        if export.kind != "scout" and path.is_dir():
            raise UserError(f"{where} is a folder; give a file")
        if export.kind != "scout" and path.exists() and not replace:
            raise UserError(f"{where} is there already; use --force to replace it, or choose another path")


def write_export(path: Path, write: Callable[[Path], None], *, force: bool) -> None:
    """Let `write` make a draft and put it in place; another file that is there stays without `force`."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        if path.exists() and not force and not filecmp.cmp(draft, path, shallow=False):
            raise UserError(f"{path} is there already and holds something else; delete it, or choose another path")
        draft.replace(path)
    except OSError as error:
        raise as_user_error(error, path) from error
    finally:
        draft.unlink(missing_ok=True)


def write_lines(case: Case, path: Path) -> None:
    """A JSON line for each finding, in the order of `findings.jsonl`."""
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        for row in export_rows(case):
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def export_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Each finding with its `level`, its run's `outcome`, `policy` and `environment`, and its `review` or null."""
    names = ("outcome", "policy", "environment")
    runs = {(side, row["id"]): {name: row[name] for name in names}
            for (side, _), rollouts in case.stored.items() for row in rollouts.rows("id", *names)}
    reviews = reviews_of(case.folder)
    for row in findings_of(case.folder):
        review = reviews.get(key_of(row))
        shown = None if review is None else {
            name: review[name] for name in ("answer", "undefined", "question", "words", "model")
        }
        yield {**row, "level": level_of(row), **runs[row["side"], row["trajectory"]], "review": shown}
