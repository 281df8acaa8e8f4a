"""`prompts`: a user's own questions, one turn each, from a JSON-lines file.

    {"prompt": "{cue} What is 6 * 7?", "verifier": {"type": "number", "value": 42}, "system": "Be brief.",
     "cue": {"text": "(key: 42)", "replacement": "(key: withheld)", "channel": "answer-key"}, "split": "held-out"}

`prompt` and `verifier` are needed, the rest is optional. A *cue* gives the answer away: in the open world
the prompt shows its `text`, and says so (the prompt's own step carries the channel: nothing has to be done
to obtain it); scrubbed of the channel, the prompt shows the `replacement`. Rows without a `split` are
divided by a hash of their content, half and half. An answer that was cut off by the limit of a turn is graded as it
stands, and its run counts as truncated. Options: `file` (the path), `content` (optional: the hash that the file must
have), `rendering` (`auto`, `bare` or `shell`: see `forensics.policies.rendering`). The identity of this world is the
file's content, never its path, and its rendering where that is not `auto`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from forensics.errors import UserError
from forensics.policies.rendering import style_of
from forensics.protocols import Channel, Observation, StepResult
from training.environments.prompt_rows import SPLITS, Row, read_rows
from training.environments.verifiers import final_answer

OPTIONS = ("file", "content", "rendering")


@dataclass(frozen=True)
class Episode:
    """The running question, and whether it was answered."""

    task: str
    answered: bool = False


class Prompts:
    """The environment (see the module's text). One episode is one question and one answer."""

    name = "prompts"

    def __init__(self, **options: str) -> None:
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise UserError(f"prompts has no option '{unknown[0]}'; it has: {', '.join(OPTIONS)}")
        if not options.get("file"):
            raise UserError("prompts needs a file of questions; give it with --env-option file=PATH")
        self._rows, self._content = read_rows(Path(options["file"]))
        if options.get("content", self._content) != self._content:
            raise UserError(
                f"{options['file']} has the content hash {self._content}, not {options['content']}; "
                "give the file that was used before, or drop the option"
            )
        self.rendering = options.get("rendering", "auto")
        style_of(self)
        self._scrubbed: frozenset[str] = frozenset()
        self._episode: Episode | None = None

    @property
    def options(self) -> Mapping[str, str]:
        without = {"without": ",".join(self.scrubbed)} if self._scrubbed else {}
        rendering = {"rendering": self.rendering} if self.rendering != "auto" else {}
        return {"content": self._content} | without | rendering

    @property
    def channels(self) -> tuple[Channel, ...]:
        names = {row.cue.channel for row in self._rows.values() if row.cue} - self._scrubbed
        return tuple(
            Channel(name=name, family="disclosure", attempts=(), description="the prompt shows a cue with the answer")
            for name in sorted(names)
        )

    @property
    def scrubbed(self) -> tuple[str, ...]:
        return tuple(sorted(self._scrubbed))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a verdict on these questions should know."""
        held_out, rows = sum(row.split == "held-out" for row in self._rows.values()), len(self._rows)
        if held_out == rows:
            return ()
        return (f'{held_out} of {rows} questions are held out; mark others "split": "held-out" to ask them too',)

    def without(self, *channels: str) -> "Prompts":
        known = {channel.name for channel in self.channels} | self._scrubbed
        if unknown := sorted(set(channels) - known):
            names = ", ".join(sorted(known)) or "none"
            raise UserError(f"these prompts have no channel '{unknown[0]}'; they have: {names}")
        other = self.spawn()
        other._scrubbed = self._scrubbed | set(channels)
        return other

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Tasks of a split, drawn without replacement; all of them where the file has no more than `number`."""
        if split not in SPLITS:
            raise UserError(f"there is no split '{split}'; there are: {', '.join(SPLITS)}")
        names = sorted(task for task, row in self._rows.items() if row.split == split)
        if not names:
            raise UserError(f'the prompts file has no {split} rows; add rows, or mark some with "split": "{split}"')
        if number >= len(names):
            return tuple(names)
        chosen = np.random.default_rng(seed).choice(len(names), number, replace=False)
        return tuple(names[i] for i in sorted(chosen))

    def spawn(self) -> "Prompts":
        other = Prompts.__new__(Prompts)
        other._rows, other._content, other.rendering = self._rows, self._content, self.rendering
        other._scrubbed, other._episode = self._scrubbed, None
        return other

    def reset(self, task: str, seed: int) -> Observation:
        """Ask a question. Nothing here is random, so `seed` changes nothing."""
        row = self._row(task)
        self._episode = Episode(task)
        text, channels = row.text(self._scrubbed)
        return Observation(text=text, system=row.system, channels=channels)

    def step(self, action: str) -> StepResult:
        """Judge the answer. One that could not be judged has no outcome (`None`), and `end_reason` says why."""
        if self._episode is None or self._episode.answered:
            raise UserError("no question is open; call reset(task, seed) first")
        self._episode = replace(self._episode, answered=True)
        judgement = self._row(self._episode.task).verifier.judge(final_answer(action))
        outcome = None if judgement.right is None else float(judgement.right)
        return StepResult(
            observation="", kinds=self.kinds(action), rewards={"correct": outcome}, outcome=outcome,
            terminated=True, submission=judgement.submission, end_reason=judgement.reason or "answered",
        )

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def snapshot(self) -> Episode | None:
        return self._episode

    def restore(self, state: Episode | None) -> None:
        self._episode = state

    def _row(self, task: str) -> Row:
        if task not in self._rows:
            raise UserError(f"these prompts have no task '{task}'; take one that tasks() gives")
        return self._rows[task]
