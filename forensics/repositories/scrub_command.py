"""The command `scrub-git`. Light at import."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.options import Json


def scrub_git(
    repository: Annotated[Path, typer.Argument(metavar="REPO", help="A git repository.")],
    at: Annotated[str, typer.Option(metavar="COMMIT", help="The last commit that stays.")],
    out: Annotated[
        Path | None, typer.Option(metavar="COPY", help="The folder to write: new, or empty.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace REPO; what is removed is gone for good.")
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The branch.  [default: the source's default branch]"),
    ] = None,
    keep_untracked: Annotated[
        bool,
        typer.Option("--keep-untracked", help="Carry files that git does not track or ignores."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a working copy in which nothing later than a commit can be reached, and prove it."""
    from forensics.cli.console import progress_bars, say, say_json
    from forensics.errors import UserError
    from forensics.repositories.scrub import scrub_repository

    if (out is None) != in_place:
        raise UserError("give either --out COPY or --in-place, which deletes what is later")
    with progress_bars() as progress:
        made = scrub_repository(
            repository, at, out, branch=branch, keep_untracked=keep_untracked, progress=progress
        )
    place = str(out or repository)
    if as_json:
        say_json(made.row() | {"copy": place})
    else:
        say("\n".join(_told(made, place)))


def _told(made: Any, place: str) -> list[str]:
    lines = [f"{'':40}{'source':>10}{'copy':>10}"]
    lines += [f"{kind:40}{had:>10,}{kept:>10,}" for kind, (had, kept) in made.found.items()]
    for said, paths in _by_fate(made.submodules).items():
        lines.append(f"{len(paths)} submodules ({', '.join(paths[:3])}): {said}.")
    lines += [f"{note[0].upper()}{note[1:]}." for note in made.notes]
    return [
        *lines,
        f"{place}: branch {made.branch} at {made.commit}; proved, nothing later is left.",
    ]


def _by_fate(submodules: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, said in submodules.items():
        found.setdefault(said, []).append(path)
    return found
