"""Results of a scan for other tools: where they go, and never over something
else unasked.

`scout`: a folder of Inspect Scout's scans (`scout_export`). `jsonl`: a line for
each finding with its run and its review. `markdown`: a summary for a pull
request (`forensics.report.markdown`).
"""

import filecmp
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from forensics.case import Case, Rollouts
from forensics.errors import UserError
from forensics.records import Trajectory
from forensics.records.files import as_user_error, require_written
from forensics.records.tables import open_whole
from forensics.shortcuts.family import Level

FINDINGS = "findings.jsonl"
REVIEW = "review.jsonl"
Key = tuple[str, str, str, str]  # side, trajectory, family, channel
_COLUMNS = (
    "id",
    "task",
    "policy",
    "environment",
    "seed",
    "sample",
    "outcome",
    "submission",
    "patch",
    "end",
    "end_reason",
    "steps.list.element.role",
    "steps.list.element.text",
    "steps.list.element.tool_calls.list.element.name",
    "steps.list.element.tool_calls.list.element.arguments",
)
Kind = Literal["scout", "jsonl", "markdown"]
KINDS: tuple[str, ...] = get_args(Kind)
REVIEWED = ("answer", "undefined", "question", "words", "model")  # of a review, beside its finding


def key_of(row: dict[str, Any]) -> Key:
    """What a finding is of. A run has one finding for each family and channel."""
    return row["side"], row["trajectory"], row["family"], row["channel"]


def findings_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of `findings.jsonl`, in its order."""
    require_written(folder / FINDINGS)
    with open(folder / FINDINGS, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                key_of(row)
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"{FINDINGS} line {number} is not a row about a run; scan the logs again"
                ) from None
            yield row


def reviews_of(folder: Path) -> dict[Key, dict[str, Any]]:
    """The reviews of a case, by finding; empty for a case without any."""
    if not (folder / REVIEW).is_file():
        return {}
    require_written(folder / REVIEW)
    rows = map(json.loads, (folder / REVIEW).read_text(encoding="utf-8").splitlines())
    return {key_of(row): row for row in rows}


def level_of(row: dict[str, Any]) -> Level:
    """The furthest link that is known to hold. An empty hand-in uses nothing: it may be
    credited while `used` stays open.
    """
    if row["credited"] and row["used"] is not False and row["obtained"] is not False:
        return "credited"
    return "used" if row["used"] else "obtained" if row["obtained"] else "attempt"


def runs_of(
    rollouts: Rollouts, wanted: Collection[str], columns: Sequence[str] = _COLUMNS
) -> Iterator[Trajectory]:
    """The stored runs with these ids, without their tokens: these columns of them.
    Row groups that hold none of them are not decoded.
    """
    for path in rollouts.paths if wanted else ():
        with open_whole(path) as file:
            for group in range(file.num_row_groups):
                ids = file.read_row_group(group, columns=["id"]).column("id").to_pylist()
                places = [place for place, name in enumerate(ids) if name in wanted]
                if not places:
                    continue
                table = file.read_row_group(group, columns=list(columns)).take(places)
                for batch in table.to_batches(16):
                    for row in batch.to_pylist():
                        rewards = dict(row.get("rewards") or ())
                        yield Trajectory.model_validate(row | {"rewards": rewards})


@dataclass(frozen=True, kw_only=True)
class Export:
    """One file, or one folder of scans, to write."""

    kind: Kind
    path: Path


def export_of(text: str) -> Export:
    """An export as an option gives it (`scout=PATH`). Raises `UserError`."""
    kind, equals, path = text.partition("=")
    if not equals or not path or kind not in KINDS:
        raise UserError(
            f"--export '{text}' is not of the form KIND=PATH with a KIND of {', '.join(KINDS)}"
        )
    return Export(kind=kind, path=Path(path).expanduser())  # type: ignore[arg-type]


def require_free(
    exports: Sequence[Export], case: Path, logs: Iterable[Path], *, replace: bool
) -> None:
    """Refuse, before anything is read, what would be written over or into
    something else. Raises `UserError`.

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
                raise UserError(
                    f"{where} lies inside {place.name}, which is the case or a log; choose another"
                    " path"
                )
        if export.kind == "scout" and path.exists() and not path.is_dir():
            raise UserError(f"{where} is a file; give a folder for Inspect Scout's scans")
        if export.kind != "scout" and path.is_dir():
            raise UserError(f"{where} is a folder; give a file")
        if export.kind != "scout" and path.exists() and not replace:
            raise UserError(
                f"{where} is there already; use --force to replace it, or choose another path"
            )


def write_export(path: Path, write: Callable[[Path], object], *, force: bool) -> None:
    """Let `write` make a draft, a file or a folder of files, and put it in place;
    something else that is there stays without `force`.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        _remove(draft)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        if path.exists() and not force and not _equal(draft, path):
            raise UserError(
                f"{path} is there already and holds something else; delete it, or choose another"
                " path"
            )
        if path.is_dir():
            shutil.rmtree(path)
        draft.replace(path)
    except OSError as error:
        raise as_user_error(error, path) from error
    finally:
        _remove(draft)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def _equal(draft: Path, path: Path) -> bool:
    if not draft.is_dir():
        return filecmp.cmp(draft, path, shallow=False)
    new, old = ({file.name for file in folder.iterdir()} for folder in (draft, path))
    return new == old and not any(filecmp.cmpfiles(draft, path, sorted(new), shallow=False)[1:])


def write_lines(case: Case, path: Path) -> None:
    """A JSON line for each finding, in the order of `findings.jsonl`."""
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        for row in export_rows(case):
            file.write(json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def export_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Each finding with its `level`, its run's `outcome`, `policy` and
    `environment`, and its `review` or null.
    """
    names = ("outcome", "policy", "environment")
    runs = {
        (side, row["id"]): {name: row[name] for name in names}
        for (side, _), rollouts in case.stored.items()
        for row in rollouts.rows("id", *names)
    }
    reviews = reviews_of(case.folder)
    for row in findings_of(case.folder):
        review = reviews.get(key_of(row))
        shown = None if review is None else {name: review[name] for name in REVIEWED}
        yield {
            **row,
            "level": level_of(row),
            **runs[row["side"], row["trajectory"]],
            "review": shown,
        }
