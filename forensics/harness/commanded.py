"""One episode's command: run within a time, stopped with all that it started, and read.

The command sees a minimal environment: PATH, LANG, a HOME of its own, the proxy's address and the
episode's key, and what `passes` names. Two things tell what it started from anybody else's
processes: its group, and the variable `MARK` with a value that was drawn for this episode alone.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from forensics.errors import UserError
from forensics.harbor_tasks import read_reward, reward_records
from forensics.phrases import printable
from forensics.records.given_files import parse_json
from forensics.records.trajectory import differing

MARK: Final = "FORENSICS_EPISODE"  # a variable that only our commands have
LEAST_MARK: Final = 16  # characters
LARGEST: Final = 16 * 2**20  # bytes of a result
PATHS: Final = re.compile(r"(?:/[\w.@+-]+){2,}")
TOLD: Final = 300  # characters of what a command said
WATCHER: Final = """
import os, shutil, signal, sys, time
left = set()
for line in sys.stdin:  # a group's number or a folder when it begins, and again when it has ended
    left ^= {line.rstrip("\\n")}
for group in filter(str.isdigit, left):
    try:
        os.killpg(int(group), signal.SIGKILL)
    except OSError:
        pass
for folder in filter(os.path.isabs, left):
    for _ in range(50):  # what was stopped may still be writing
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
        time.sleep(0.1)
"""


class Handed(NamedTuple):
    """What an episode handed in. `outcome` `None`: not known, for the `reason`."""

    outcome: float | None = None
    rewards: Mapping[str, float | None] = {}
    submission: str | None = None
    truncated: bool = False
    reason: str | None = None


@dataclass
class Commands:
    """The commands under way; leaving the block stops every one of them. Where this process is
    killed, a `watcher` does, which hears of it by the end of its input, and deletes their folders.
    """

    running: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False
    watcher: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCHER],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.stopped = True
            for group in self.running:
                _stop(group)
        if self.watcher is not None:
            with suppress(OSError):
                self.watcher.communicate()

    def run(
        self,
        argv: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        seconds: float,
        said: Path,
        mark: str,
    ) -> str | None:
        """Run it in a process group of its own. `None`: it ended well; else why not. `said`: a
        file for what it writes to stderr; `mark`: drawn at random for this episode, so that what
        left the group is known by it and ends too.
        """
        assert len(mark) >= LEAST_MARK, "a mark that others may have"
        with said.open("wb") as errors, self.lock:
            if self.stopped:
                return "the run was stopped"
            try:
                child = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env={**variables, MARK: mark},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
                return f"the command cannot be run ({Path(argv[0]).name}: {why})"
            self._note(child.pid)
        try:
            status = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"the command took more than {seconds:g} s"
        finally:
            _stop(child.pid)
            child.wait()
            _stop_marked(mark)
            with self.lock:
                self._note(child.pid)
        return None if status == 0 else f"the command ended with status {status}"

    @contextmanager
    def working_in(self, folder: Path) -> Iterator[Path]:
        """A folder of one episode that is gone behind the block, and where we are killed in it."""
        with self.lock:
            self._tell(str(folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with self.lock:
                self._tell(str(folder))

    def _note(self, group: int) -> None:
        """A group begins, or has ended."""
        self.running ^= {group}
        self._tell(str(group))

    def _tell(self, what: str) -> None:
        """The watcher hears of what begins, or has ended."""
        if self.watcher is not None and self.watcher.stdin is not None:
            with suppress(OSError, ValueError):  # it was killed, or its input is closed
                self.watcher.stdin.write(f"{what}\n")
                self.watcher.stdin.flush()


def _stop(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _stop_marked(mark: str) -> None:
    """Stop whatever has this mark, where processes are listed in /proc."""
    entry = f"{MARK}={mark}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGKILL)


def handed_out(out: Path, result: str) -> Handed:
    """What the command left below `{out}`: its result, or what Harbor's verifier left there.
    Where both are there and differ, what each says stands among the rewards.
    """
    logs = sorted(place.parent for place in out.rglob("verifier") if place.is_dir())
    if (file := out / result).is_file():
        handed = _of_json(_content(file))
        records = {result: {**handed.rewards, "reward": handed.outcome}}
        with suppress(UserError):  # what is no reward tells of no other outcome
            records |= reward_records(logs[0]) if len(logs) == 1 else {}
        return handed._replace(rewards={**handed.rewards, **differing(records)})
    if len(logs) != 1:
        return Handed(reason=f"the command handed in no {result}")
    try:
        outcome, rewards = read_reward(logs[0])
    except UserError as error:
        return Handed(reason=cleaned(str(error)))
    return _weighed(Handed(outcome, rewards), "there is no reward")


def _content(file: Path) -> str:
    if file.stat().st_size > LARGEST:
        return ""
    return file.read_text(encoding="utf-8", errors="replace")


def _of_json(text: str) -> Handed:
    told = _parsed(text)
    if not isinstance(told, dict) or "outcome" not in told:
        return Handed(reason="the result is no JSON object with an `outcome`")
    outcome, rewards, submission = (told.get(k) for k in ("outcome", "rewards", "submission"))
    numbers = rewards if isinstance(rewards, dict) else {}
    if not all(_is_number(one) for one in (outcome, *numbers.values())):
        return Handed(reason="the result has an outcome or a reward that is no number")
    if not isinstance(submission, str | None):
        submission = json.dumps(submission, ensure_ascii=False)
    handed = Handed(
        outcome=None if outcome is None else float(outcome),
        rewards={str(k): None if v is None else float(v) for k, v in numbers.items()},
        submission=submission,
        truncated=told.get("truncated") is True,
    )
    return _weighed(handed, "the result says no outcome")


def _weighed(handed: Handed, missing: str) -> Handed:
    """The same, with the reason why it says nothing, where it does."""
    outcome = handed.outcome
    if outcome is None:
        return handed._replace(reason=missing)
    if not 0 <= outcome <= 1:
        told = f"the outcome {outcome:g} lies outside 0 to 1, where scores are compared; scale it"
        return handed._replace(outcome=None, reason=told)
    return handed


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _is_number(value: Any) -> bool:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return value is None
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def cleaned(text: str, *secrets: str) -> str:
    """The last line of what a command said, without keys and paths of this machine."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    for secret in filter(None, secrets):
        last = last.replace(secret, "[key]")
    return printable(PATHS.sub(lambda found: found[0].rpartition("/")[2], last.strip()), TOLD)
