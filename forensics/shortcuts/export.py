"""Results of a scan for other tools: where they go, and never over something else unasked.

`jsonl`: a line for each finding with its run. `markdown`: a summary for a pull request
(`forensics.report.pull_request`).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from forensics.case import Case
from forensics.errors import UserError
from forensics.records.files import as_user_error, require_written

FINDINGS = "findings.jsonl"
Kind = Literal["jsonl", "markdown"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Export:
    """One file to write."""

    kind: Kind
    path: Path


def export_of(text: str) -> Export:
    """An export as an option gives it (`jsonl=PATH`). Raises `UserError`."""
    kind, equals, path = text.partition("=")
    if not equals or not path or kind not in KINDS:
        raise UserError(
            f"--export '{text}' is not of the form KIND=PATH with a KIND of {', '.join(KINDS)}"
        )
    return Export(kind=kind, path=Path(path).expanduser())  # type: ignore[arg-type]


def require_free(
    exports: Sequence[Export], case: Path, logs: Iterable[Path], *, replace: bool
) -> None:
    """Refuse, before anything is read, what would be written over or into something else.
    Raises `UserError`.

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
        if path.is_dir():
            raise UserError(f"{where} is a folder; give a file")
        if path.exists() and not replace:
            raise UserError(
                f"{where} is there already; use --force to replace it, or choose another path"
            )


def write_export(path: Path, text: str, *, force: bool) -> None:
    """Put a text in place at once; something else that is there stays without `force`."""
    content = text.encode(errors="backslashreplace")
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not force and path.read_bytes() != content:
            raise UserError(
                f"{path} is there already and holds something else; delete it, or choose another"
                " path"
            )
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        raise as_user_error(error, path) from error
    finally:
        draft.unlink(missing_ok=True)


def rows_as_lines(case: Case) -> str:
    """A JSON line for each finding, in the order of `findings.jsonl`."""
    return "".join(
        json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        for row in export_rows(case)
    )


def export_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Each finding, and its run's `outcome`, `policy` and `environment`."""
    names = ("outcome", "policy", "environment")
    runs = {
        (side, row["id"]): {name: row[name] for name in names}
        for (side, _), rollouts in case.stored.items()
        for row in rollouts.rows("id", *names)
    }
    require_written(case.folder / FINDINGS)
    with open(case.folder / FINDINGS, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = json.loads(line)
            yield {**row, **runs[row["side"], row["trajectory"]]}
