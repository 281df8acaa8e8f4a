"""The command `leaks`. Light at import."""

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli.options import Json


def leaks(
    repository: Annotated[
        Path, typer.Argument(metavar="REPO", help="The repository as an agent would get it.")
    ],
    patch: Annotated[
        Path, typer.Option(metavar="FIX.diff", help="The reference fix, a unified diff.")
    ],
    at: Annotated[
        str, typer.Option(metavar="COMMIT", help="The commit that the fix is made for.")
    ] = "HEAD",
    image_root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An unpacked container image, to search as well."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where a repository already holds the answer.

    Searches git objects, reachable or not, all files, archives and other clones for the fix: by
    content hash, and by added lines that are rare at the commit. What the patch adds to tests
    counts apart. Exits with 1 if something was found, else 0 (2: bad input); what could not be
    searched is named.
    """
    from forensics.cli.console import progress_bars, say, say_json
    from forensics.repositories.leaks import find_leaks, rows_of_leaks, text_of_leaks

    with progress_bars() as progress:
        found = find_leaks(repository, patch, at, image_root, progress)
    if as_json:
        say_json(rows_of_leaks(found))
    else:
        say(text_of_leaks(found))
    raise typer.Exit(int(found.found))
