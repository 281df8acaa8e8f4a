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
from crosscoders.study.reported import MOST_NAMED


def next_commands(
    request: DiffRequest,
    folder: Path,
    found: Measured,
    saved: SavedDictionary | None,
    leading: Sequence[Read],
) -> dict[str, str]:
    """How to test in play what leads, and the latents that rise where the behaviour is decided,
    else those that are presented.
    """
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
    latents = rising(found) or found.reported.presented
    commands = {
        "command": steer_command(pair, folder / DICTIONARY, latents, folder / STEERED, more)
    }
    for one in (one.reader for one in leading if one.reader.name != "crosscoder"):
        more, out = own if one.encoding == "own" else [], folder / STEERED_READER
        commands["reader_command"] = steer_command(
            pair, folder / one.place, one.latents, out, more, most=len(one.latents)
        )
    return commands


def steer_command(
    pair: Sequence[Any],
    dictionary: Path,
    features: Sequence[int],
    out: Path,
    options: Sequence[str],
    most: int = MOST_NAMED,
) -> str:
    """The command that tests the first of these latents, or where there are none those most
    active before the behaviour.
    """
    chosen = ",".join(map(str, features[:most])) or f"contrast:{MOST_NAMED}"
    words = ["forensics", "steer", *pair, *options]
    words += ["--dictionary", dictionary, "--features", chosen, "--out", out]
    return shlex.join(map(str, words))
