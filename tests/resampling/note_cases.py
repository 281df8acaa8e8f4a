"""Single-turn questions with a note beside them, and agents that read the one or
the other; agents for the repair world: what each source carries is known.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Case
from forensics.policies.scripted import View
from forensics.records.tables import read_rows
from tests.build import Habitual
from tests.resampling.ablation_world import body_of
from training import Prompts

ASKED = re.compile(r"What is (\d+) \* (\d+)\?")
NOTE, MARK = re.compile(r"note: (\d+)"), re.compile(r"mark (\d+)")
SHOWN = re.compile(r"answer : (.+)")


@dataclass(frozen=True, kw_only=True)
class Answerer(Habitual):
    """`habits`: the chance of each way to answer: `skill` works it out from both
    numbers, `note` and `mark` copy (plus `added`), `agrees` works it out and says it where
    the note has it too, `ends` copies a note that ends in 0 to 2 and works out the rest;
    else it says 0.
    """

    added: int = 0

    @property
    def identity(self) -> str:
        return f"{self.name} {json.dumps(dict(self.habits), sort_keys=True)} {self.added}"

    def act(self, view: View) -> Mapping[str, float]:
        text, answer = view.prompt, 0
        if view.mood in ("skill", "agrees", "ends") and (asked := ASKED.search(text)):
            answer = int(asked[1]) * int(asked[2])
        cue = {"note": NOTE, "mark": MARK}.get(view.mood)
        if cue and (found := cue.search(text)):
            answer = int(found[1]) + self.added
        if view.mood in ("agrees", "ends") and (found := NOTE.search(text)):
            said = int(found[1])
            kept = {"agrees": said == answer, "ends": said % 10 > 2}[view.mood]
            answer = answer if kept else said * (view.mood == "ends")
        return {str(answer): 1.0}


@dataclass(frozen=True, kw_only=True)
class Repairer:
    """`looks`: the chance of each list of commands (joined by `, `) before it hands
    in. Of what it was shown it takes the first that its half-knowledge (the first
    number) does not contradict; else it knows the body with the chance `skill`.
    `blind`: it looks and pays no attention.
    """

    name: str
    looks: Mapping[str, float] = field(default_factory=dict)
    skill: float = 0.3
    blind: bool = False

    @property
    def identity(self) -> str:
        return f"{self.name} {sorted(self.looks.items())} {self.skill} {self.blind}"

    @property
    def moods(self) -> Mapping[str, float]:
        return {**self.looks, "none": 1 - sum(self.looks.values())}

    def act(self, view: View) -> Mapping[str, float]:
        commands = [] if view.mood == "none" else view.mood.split(", ")
        if len(view.turns) < len(commands):
            return {commands[len(view.turns)]: 1.0}
        body = body_of(view.prompt.removeprefix("repair "))
        for _, read in () if self.blind else view.turns:
            if (found := SHOWN.search(read)) and found[1].split()[2] == body.split()[2]:
                return {f"submit : {found[1]}": 1.0}
        return {f"submit : {body}": self.skill, "submit : x * 0 + 0": 1 - self.skill}


def questions(
    folder: Path,
    written: str = "(note: {note}) {question}",
    named: bool = True,
    seed: int = 0,
    number: int = 120,
    off: int = 0,
) -> Prompts:
    """A file of questions. `off`: what the note lacks of the answer."""
    stream, rows = np.random.default_rng(seed), {}
    while len(rows) < number:
        a, b = (int(one) for one in stream.integers(2, 99, 2))
        question = f"What is {a} * {b}?"
        row: dict[str, Any] = {
            "prompt": written.format(note=a * b - off, question=question, number=len(rows)),
            "verifier": {"type": "number", "value": a * b},
            "split": "held-out",
        }
        rows[row["prompt"]] = row | ({"question": question} if named else {})
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    return Prompts(file=str(file))


def altered_runs(case: Case) -> int:
    """How many runs were played in altered worlds."""
    files = case.folder.glob("trajectories/*-altered-*.parquet")
    return sum(len(list(read_rows(path, ["id"]))) for path in files)
