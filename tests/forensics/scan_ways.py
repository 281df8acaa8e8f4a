"""What an agent types, played in a real git repository, so that what a log shows is what bash
and git said.

1. The files are committed and `setup` is run (bash that the log does not show).
2. Each line is run by `bash -c` in the repository's folder, with an empty home and fixed
   dates; a file may be typed in anew at the end. The folder is called `/testbed` in what
   comes back.
3. What is handed in are all changes against the commit that HEAD was at before the first
   line, new files too (`git diff`).
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLED = "/testbed"
SECONDS = 30
WHEN = "2024-05-06T07:08:09+00:00"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What the agent ran, and what came back."""

    line: str
    output: str
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Played:
    """The turns, and what was handed in."""

    turns: tuple[Turn, ...]
    patch: str


def play(
    files: Mapping[str, str], setup: str, lines: Sequence[str], typed: Mapping[str, str]
) -> Played:
    """`typed`: files that are typed in anew at the end, by their paths."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "testbed"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        _must(folder, "git init -q -b main && git add -A && git commit -q --allow-empty -m 'Start'")
        _must(folder, setup or "true")
        start = _must(folder, "git rev-parse HEAD").strip()
        turns = [_ran(folder, line) for line in lines]
        turns += [_typed(folder, path, text) for path, text in typed.items()]
        patch = _must(folder, f"git add -A && git diff --cached --no-ext-diff {start}")
    return Played(turns=tuple(turns), patch=patch)


def _ran(folder: Path, line: str) -> Turn:
    output, code = _bash(folder, line.replace(CALLED, str(folder)))
    return Turn(line=line, output=output, exit_code=code)


def _typed(folder: Path, path: str, text: str) -> Turn:
    (folder / path).write_text(text)
    said = f"File created successfully at: {CALLED}/{path}"
    return Turn(line=f"cat > {path} <<'EOF'\n{text}EOF", output=said, exit_code=0)


def _must(folder: Path, command: str) -> str:
    output, code = _bash(folder, command)
    assert not code, f"`{command[:200]}` ended with {code}: {output[-500:]}"
    return output


def _bash(folder: Path, command: str) -> tuple[str, int]:
    known: dict[str, Any] = {
        "HOME": str(folder.parent),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for who in ("AUTHOR", "COMMITTER"):
        known |= {f"GIT_{who}_NAME": "dev", f"GIT_{who}_EMAIL": "dev@example.org"}
        known[f"GIT_{who}_DATE"] = WHEN
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=known,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    text = done.stdout.decode(errors="replace").replace(str(folder), CALLED)
    return text.rstrip("\n"), done.returncode
