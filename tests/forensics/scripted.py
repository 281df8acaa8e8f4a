"""Policies whose every word is scripted, in checkpoint directories that look
like any other.

The world is `prompts` with a leaky cue. A script is a *skill* (the chance to
answer right without help) and whether it *copies* the key where the prompt
shows one. So the genuine and the phantom part are known.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics import Budget, UserError, Verdict, investigate
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Step, Trajectory, content_hash

SMALL = Budget(tasks=100, samples=1)
# for what folders and arguments do, whatever is measured
SCORE_ALONE = pytest.mark.parametrize("desk", [["score"]], ids=["score alone"], indirect=True)


@dataclass(frozen=True)
class Script:
    skill: float
    copies: bool = False


@dataclass
class Stage:
    """A shelf of checkpoints with scripts, and a record of what was played."""

    folder: Path
    questions: Path
    scripts: dict[str, Script] = field(default_factory=dict)
    played: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    before_play: Callable[[int], None] = lambda number: None
    before_trajectory: Callable[[int, int], None] = lambda number, done: None

    def checkpoint(self, name: str, script: Script, like: Path) -> Path:
        """A directory whose weights differ in one number from those of every other."""
        from forensics.policies.checkpoints import inspect_checkpoint

        directory = Path(shutil.copytree(like, self.folder / name))
        content = bytearray((directory / "model.safetensors").read_bytes())
        content[-2] ^= len(self.scripts) + 1
        (directory / "model.safetensors").write_bytes(content)
        self.scripts[inspect_checkpoint(directory).identity] = script
        return directory

    def load(self, path: Path, *, device: str, identity: str) -> "ScriptedPolicy":
        return ScriptedPolicy(self, identity, self.scripts[identity])


@dataclass(frozen=True)
class ScriptedPolicy:
    stage: Stage
    identity: str
    script: Script
    capabilities: frozenset[str] = frozenset({"play"})

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Any = None,
        interventions: Sequence[Any] = (),
    ) -> Iterator[Trajectory]:
        number = len(self.stage.played)
        self.stage.before_play(number)
        stream = np.random.default_rng(seed)
        for done, (task, sample) in enumerate(
            (task, sample) for task in tasks for sample in range(samples)
        ):
            self.stage.before_trajectory(number, done)
            yield self._episode(environment.spawn(), task, sample, seed, stream)
        self.stage.played.append((self.identity, environment.scrubbed, tuple(tasks)))

    def _episode(
        self, world: Environment, task: str, sample: int, seed: int, stream: np.random.Generator
    ) -> Trajectory:
        shown = world.reset(task, seed)
        right = int(shown.text.rpartition("What is ")[2].split()[0])
        knows = stream.random() < self.script.skill
        key = f"(key: {right})" in shown.text
        text = f"It is {right if knows or (self.script.copies and key) else right + 1}"
        result = world.step(text)
        return Trajectory(
            id=content_hash([self.identity, seed, task, sample, list(world.scrubbed)], 12),
            task=task,
            policy=self.identity,
            environment=world.name,
            without=world.scrubbed,
            seed=seed,
            sample=sample,
            steps=(
                Step(role="user", text=shown.text, channels=shown.channels),
                Step(role="assistant", text=text, kinds=result.kinds),
                Step(role="tool", text=result.observation),
            ),
            rewards=dict(result.rewards),
            outcome=result.outcome,
            submission=result.submission,
            end="terminated",
            end_reason=result.end_reason,
        )


class Desk:
    """A leak pair on a stage, and `investigate` with its arguments filled in."""

    def __init__(self, stage: Stage, like: Path, **always: Any) -> None:
        self.stage, self.like, self.always = stage, like, always
        self.before = stage.checkpoint("before", Script(0.3), like)
        self.after = stage.checkpoint("after", Script(0.3, copies=True), like)
        self.out = stage.folder / "case"

    def investigate(self, **changes: Any) -> Verdict:
        given = {
            "before": self.before,
            "after": self.after,
            "environment": "prompts",
            "budget": SMALL,
            "out": self.out,
            "environment_options": {"file": str(self.stage.questions)},
            "device": "cpu",
            "formats": (),
        }
        return investigate(**{**given, **self.always, **changes})

    def refusal(self, **changes: Any) -> str:
        with pytest.raises(UserError) as error:
            self.investigate(**changes)
        assert "\n" not in str(error.value)
        return str(error.value)

    def evidence(self, out: Path | None = None) -> bytes:
        return ((out or self.out) / "evidence.jsonl").read_bytes()

    def case(self) -> Any:
        return json.loads((self.out / "case.json").read_text())


def write_questions(path: Path, number: int) -> Path:
    rows = [
        {
            "prompt": f"{{cue}} What is {1000 + 7 * i} ?",
            "split": "held-out",
            "verifier": {"type": "number", "value": 1000 + 7 * i},
            "cue": {
                "text": f"(key: {1000 + 7 * i})",
                "replacement": "(key: none)",
                "channel": "answer-key",
            },
        }
        for i in range(number)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def killed(action: Callable[[], Any]) -> int:
    """Run an action in a process of its own that may be killed anywhere; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
