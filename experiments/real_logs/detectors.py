"""Detectors that match patterns: the peer, in a process of its own, and our
attempt patterns as bare expressions.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.scan import patterns
from forensics.actions import actions_of
from forensics.errors import UserError
from forensics.records import Trajectory

PEER: Final = "FORENSICS_RHW_PYTHON"
MISSING: Final = (
    "The peer is missing: `git clone https://github.com/aerosta/rewardhackwatch && python -m venv"
    f" rhw && rhw/bin/pip install ./rewardhackwatch`, then set {PEER}=rhw/bin/python."
)
FORMS: Final = ("text", "steps")
FENCED: Final = re.compile(r"^```.*?^```[^\S\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the peer says of a run: its own flag, its score in [0, 1], and how
    many patterns matched.
    """

    flagged: bool
    score: float
    matches: int


def neutral(run: Trajectory, name: str) -> dict[str, Any]:
    """A run as plain text: what was said, and apart from it each command, with
    the text that it put into a file.

    A command in a fenced block of the message is not said twice; a message of
    which no command was read keeps all.
    """
    commands: dict[int, list[str]] = {}
    for action in actions_of(run):
        listed = commands.setdefault(action.step, [])
        listed += [text for text in (action.text, action.content) if text and text not in listed]
    steps = [
        {
            "role": step.role,
            "commands": commands.get(at, []),
            "content": FENCED.sub("", step.text) if at in commands else step.text,
        }
        for at, step in enumerate(run.steps)
    ]
    return {"id": name, "steps": steps}


def ask_peer(python: str, form: str, runs: Sequence[dict[str, Any]]) -> list[Told]:
    """What the peer says of each run, in their order. Raises `UserError` where it cannot be run."""
    command = [python, str(Path(__file__).with_name("peer.py")), form]
    lines = "".join(json.dumps(run) + "\n" for run in runs)
    try:
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=True, encoding="utf-8"
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        cure = f"set {PEER} to a Python that has `rewardhackwatch`"
        raise UserError(f"the peer does not run: {said}; {cure}") from error
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if [row.pop("id") for row in rows] != [run["id"] for run in runs]:
        raise UserError(
            "the peer gave other runs than it was given; install `rewardhackwatch` anew"
        )
    return [Told(**row) for row in rows]


def matches(run: dict[str, Any], *, roles: Sequence[str] | None = None) -> bool:
    """Whether any attempt pattern matches any text of a run, of some roles or
    of all; as `grep_scanner` looks.
    """
    texts = (
        text
        for step in run["steps"]
        if roles is None or step["role"] in roles
        for text in (step["content"], *step["commands"])
    )
    return any(expression.search(text) for text in texts for expression in _expressions())


@cache
def _expressions() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for listed in patterns().values() for text in listed)
