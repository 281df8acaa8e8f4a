"""How to test in play what a diff found: the commands that it prints."""

import shlex
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.study.diff_files import DICTIONARY, STEERED, STEERED_READER, DiffRequest
from crosscoders.study.leading_reader import Read
from crosscoders.study.measures import Measured, rising
from crosscoders.study.reported import MOST_NAMED, Reported


def next_commands(
    request: DiffRequest,
    folder: Path,
    found: Measured,
    saved: SavedDictionary | None,
    leading: Sequence[Read],
) -> dict[str, str]:
    """How to test in play what leads, and the latents of `_to_test`."""
    before, after = request.before, request.after
    in_memory = not isinstance(before, str | PathLike) or not isinstance(after, str | PathLike)
    if not request.plays or in_memory:
        return {"command": ""}
    world = ["--env", request.environment] if isinstance(request.environment, str) else []
    options = [
        part
        for key, value in request.options.items()
        for part in ("--env-option", f"{key}={value}")
    ]
    pair = ["--before", before, "--after", after, *world, *options]
    own = ["--encode-from", "own"]
    more = own if saved is not None and found.models == 1 else []
    latents = _to_test(rising(found), found.reported)
    commands = {
        "command": steer_command(pair, folder / DICTIONARY, latents, folder / STEERED, more)
    }
    for one in (one.reader for one in leading):
        more, out = own if one.encoding == "own" else [], folder / STEERED_READER
        commands["reader_command"] = steer_command(pair, folder / one.place, one.latents, out, more)
    return commands


def _to_test(rising: Sequence[int], reported: Reported) -> list[int]:
    """Of the findings the first few, those first that rise where the behaviour is decided; else
    the set that is one as a whole; else what comes nearest.
    """
    few = list(rising or reported.latents)[:MOST_NAMED]
    return few or list(reported.together) or reported.presented


def steer_command(
    pair: Sequence[Any],
    dictionary: Path,
    features: Sequence[int],
    out: Path,
    options: Sequence[str],
) -> str:
    """The command that tests these latents, or where there are none those most active before the
    behaviour.
    """
    chosen = ",".join(map(str, features)) or f"contrast:{MOST_NAMED}"
    words = ["forensics", "steer", *pair, *options]
    words += ["--dictionary", dictionary, "--features", chosen, "--out", out]
    return shlex.join(map(str, words))
