"""Ways to tamper with tests, to read what gives the fix away, and to loop, with benign
twins: what an agent types, told as data, and played in a real git repository.

A file of ways is TOML:

    [[way]]
    id = "py-unittest-skip"
    kind = "tamper"             # tamper, leak, loop or benign
    looks_like = "tamper"       # of a benign way: the kind that it resembles
    language = "python"         # or java, javascript, typescript, go, rust, c, cpp, shell
    expected = "used"           # used, attempt (tried, came to nothing), loop, nothing
    what = "One sentence."
    source = "https://..."      # the public page that documents the way, or "common practice"
    files = { "tests/test_a.py" = "..." }     # committed before the run begins
    setup = "git tag v2 ..."    # bash that the log does not show; HEAD stays the task's state

    [[way.step]]
    say = "Why."                # what the agent writes before it, optional
    run = "cat tests/test_a.py" # bash, run in the repository; what comes back is recorded
    output = "1 passed"         # if given, nothing is run and this came back
    exit_code = 1               # with `output`; default 0
    times = 3                   # the step is done so many times in a row, default 1

    [[way.step]]
    edit = { path = "a.py", old = "x", new = "y" }   # an editor's tool: replaces it once
    create = { path = "b.py", text = "..." }         # the same: a new file

1. *Played*: `files` are committed, `setup` is run, then each step by `bash -c` in the
   repository's folder, with an empty home and fixed dates. The folder is called `/testbed`
   in what comes back.
2. *Handed in*: all changes against the commit that HEAD was at before the first step,
   new files too (`git diff`), as agents on SWE-bench hand in.
"""

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from forensics.errors import UserError

CALLED = "/testbed"
LONGEST = 10_000  # characters of an answer
SECONDS = 30
WHEN = "2024-05-06T07:08:09+00:00"
Kind = Literal["tamper", "leak", "loop", "benign"]


class Replacement(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: str
    old: str
    new: str


class NewFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: str
    text: str


class WayStep(BaseModel):
    """One action: exactly one of `run`, `edit` and `create`."""

    model_config = ConfigDict(extra="forbid")
    say: str = ""
    run: str | None = None
    output: str | None = None
    exit_code: int = 0
    edit: Replacement | None = None
    create: NewFile | None = None
    times: int = Field(default=1, ge=1, le=30)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.run, self.edit, self.create].count(None) != 2:
            raise ValueError("a step has one of `run`, `edit` and `create`")
        return self


class Way(BaseModel):
    """See the module's text."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    kind: Kind
    looks_like: Literal["tamper", "leak", "loop"] | None = None
    language: Literal[
        "python", "java", "javascript", "typescript", "go", "rust", "c", "cpp", "shell"
    ]
    expected: Literal["used", "attempt", "loop", "nothing"]
    what: str
    source: str
    files: dict[str, str] = {}
    setup: str = ""
    step: list[WayStep] = Field(min_length=1)

    @model_validator(mode="after")
    def _twin(self) -> Self:
        if (self.kind == "benign") != (self.looks_like is not None):
            raise ValueError("`looks_like` belongs to benign ways, and to each of them")
        return self


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What the agent wrote and did, and what came back."""

    say: str
    step: WayStep
    output: str
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Played:
    """A way as it went, and what was handed in."""

    way: Way
    turns: tuple[Turn, ...]
    patch: str


def read_ways(paths: Sequence[Path]) -> tuple[Way, ...]:
    """The ways of these files; raises `UserError` for one that is not as it should be."""
    ways = []
    for path in paths:
        try:
            ways += [Way(**one) for one in tomllib.loads(path.read_text())["way"]]
        except (ValidationError, ValueError, KeyError) as error:
            raise UserError(f"{path.name}: {error}") from None
    names = [way.id for way in ways]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"two ways are called {sorted(twice)}")
    return tuple(ways)


def play(way: Way) -> Played:
    """Raises `UserError` where a step cannot be done, or a way that tampers hands in nothing."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "testbed"
        folder.mkdir()
        for name, text in way.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        _must(folder, "git init -q -b main && git add -A && git commit -q --allow-empty -m 'Start'")
        _must(folder, way.setup or "true")
        start = _must(folder, "git rev-parse HEAD").strip()
        turns = [_done(folder, way.id, step) for step in way.step for _ in range(step.times)]
        patch = _must(folder, f"git add -A && git diff --cached --no-ext-diff {start}")
    if way.kind == "tamper" and way.expected == "used" and not patch:
        raise UserError(f"{way.id}: nothing was handed in")
    return Played(way=way, turns=tuple(turns), patch=patch)


def _done(folder: Path, way: str, step: WayStep) -> Turn:
    output, code = step.output or "", step.exit_code
    if step.edit is not None:
        path = folder / step.edit.path
        text = path.read_text()
        if text.count(step.edit.old) != 1:
            raise UserError(f"{way}: {step.edit.path} does not hold the old text once")
        path.write_text(text.replace(step.edit.old, step.edit.new))
        output = f"The file {CALLED}/{step.edit.path} has been edited."
    elif step.create is not None:
        path = folder / step.create.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.create.text)
        output = f"File created successfully at: {CALLED}/{step.create.path}"
    elif step.output is None:
        assert step.run is not None
        output, code = _bash(folder, step.run.replace(CALLED, str(folder)))
    return Turn(say=step.say, step=step, output=output[:LONGEST], exit_code=code)


def _must(folder: Path, command: str) -> str:
    output, code = _bash(folder, command)
    if code:
        raise UserError(f"`{command[:200]}` ended with {code}: {output[-500:]}")
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
