"""The shape of one run, as a pair of logs is split by it: a few numbers that are
kept while transcripts stream by (`layers.pair_split`).

1. Whether the run was cut off, and whether its log says how it ended at all.
2. In which of the known forms the last answer gives its result, and which of
   them the prompt asks for. The forms are the usual ones of single answers:
   `\\boxed{}`, `<answer>` tags, a last line `####`, a line `Answer:`. What the
   form holds is not looked at.
3. The reward that is named after the format, where the log has one.
4. How many characters the policy wrote, arguments of its calls included, and in
   how many turns.

Only the beginning and the end of a long text are searched for lines, so that a
text costs no more than one pass.
"""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from forensics.records import Trajectory

ENDS = 20_000  # characters at either end of a text that are looked at line by line
LAST_LINES = 5  # a result stands at the end of an answer
BOXED, TAGS, HASHES, SAID = (1 << bit for bit in range(4))
FORMS = {BOXED: "\\boxed{}", TAGS: "<answer> tags", HASHES: "####", SAID: "Answer:"}
SAID_SO = ("answer:", "final answer:", "the answer is", "the final answer is")
ASKED_HASHES = re.compile(r"#### ?[\d<{\[$-]|[^\s#] ?####(?!#)")  # no heading of a text
ASKED_SAID = re.compile(r"answer:\s{0,2}(?:[$<\[{(]|x\b|your\b|the\b)", re.IGNORECASE)


class RunShape(NamedTuple):
    """What is kept of a run. `forms`, `asked`: bits of `FORMS`. `format`: the
    reward of that name. `end_told`: the log says how the run ended.
    """

    finished: bool = True
    end_told: bool = False
    forms: int = 0
    asked: int = 0
    format: float | None = None
    characters: int = 0
    turns: int = 0


NO_SHAPE = RunShape()


def shape_of(trajectory: Trajectory) -> RunShape:
    """The shape of a run."""
    acted = [step for step in trajectory.steps if step.role == "assistant"]
    asked = takewhile(lambda step: step.role != "assistant", trajectory.steps)
    return RunShape(
        finished=trajectory.end != "truncated",
        end_told=trajectory.end_reason is not None,
        forms=forms_in(acted[-1].text) if acted else 0,
        asked=_asked(step.text for step in asked),
        format=_format_reward(trajectory),
        characters=sum(
            len(step.text) + sum(len(call.arguments) for call in step.tool_calls) for step in acted
        ),
        turns=len(acted),
    )


def forms_in(answer: str) -> int:
    """In which forms an answer gives its result."""
    lines = [line.strip() for line in answer[-ENDS:].splitlines() if line.strip()][-LAST_LINES:]
    found = BOXED if _closed(answer, "\\boxed{", "}") else 0
    found |= TAGS if _closed(answer, "<answer>", "</answer>") else 0
    found |= HASHES if lines and lines[-1].startswith("####") and lines[-1].strip("# ") else 0
    return found | (SAID if any(map(_says, lines)) else 0)


def _closed(text: str, opened: str, closed: str) -> bool:
    at = text.rfind(opened)
    return at >= 0 and text.find(closed, at + len(opened)) >= 0


def _says(line: str) -> bool:
    words = line.replace("*", "").replace("_", " ").strip("#>- ").lower()
    return any(words.startswith(so) and words[len(so) :].strip(": .") for so in SAID_SO)


def _asked(prompts: Iterable[str]) -> int:
    """The forms that a prompt asks for. A prompt that ends in `Answer:` asks for none."""
    found = 0
    for text in prompts:
        near = text if len(text) <= 2 * ENDS else f"{text[:ENDS]}\n{text[-ENDS:]}"
        found |= BOXED if "\\boxed" in near else 0
        found |= TAGS if "<answer>" in near else 0
        found |= HASHES if "####" in near and ASKED_HASHES.search(near) else 0
        found |= SAID if "answer:" in near.lower() and ASKED_SAID.search(near) else 0
    return found


def _format_reward(trajectory: Trajectory) -> float | None:
    """The reward called `format`, else the first one by name that has the word in it."""
    named = sorted(name for name in trajectory.rewards if "format" in name.lower())
    if not named:
        return None
    return trajectory.rewards["format" if "format" in named else named[0]]
