"""`prompts`: a user's own questions, one turn each, from a JSON-lines file.

    {"prompt": "{cue} What is 6 * 7?", "verifier": {"type": "number", "value": 42},
     "system": "Be brief.", "split": "held-out", "question": "What is 6 * 7?",
     "cue": {"text": "(key: 42)", "replacement": "(key: withheld)", "channel": "answer-key"}}

`prompt` and `verifier` are needed, the rest is optional. A *cue* gives the
answer away: in the open world the prompt shows its `text`, and says so (the
prompt's own step carries the channel: nothing has to be done to obtain it);
scrubbed of the channel, the prompt shows the `replacement`. `question` is the
part of the prompt that is the question itself: nobody who does not read it
should be able to answer. Rows without a
`split` are divided by a hash of their content, half and half. An answer that
was cut off by the limit of a turn is graded as it stands, and its run counts as
truncated. Options: `file` (the path), `content` (optional: the hash that the
file must have), `rendering` (`auto`, `bare` or `shell`: see
`forensics.policies.renderers`). The identity of this world is the file's
content, never its path, and its rendering where that is not `auto`.

Rows are checked one by one, a bad one named by its line. A verifier decides whether an
answer is right:

    {"type": "exact", "value": "Paris"}           the whole answer
    {"type": "contains", "value": "Paris"}        anywhere in the answer
    {"type": "regex", "pattern": "par(is)?$"}     a match anywhere in the answer
    {"type": "number", "value": 42}               the last number in the answer

`exact`, `contains` and `regex` take `"ignore_case": true`; `number` takes
`"tolerance": 0.5`. Runs of whitespace count as one space. Only what follows the
last `</think>` is the answer, and thinking that was never closed holds none.

A pattern is the user's and the text a model's, so a search may explode:
patterns and texts are cut to a length, and a search that takes longer than two
seconds has no result (`None`), which is not a failure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from forensics.errors import UserError
from forensics.layers import examine
from forensics.policies import style_of
from forensics.protocols import Channel, Observation, StepResult
from forensics.records import content_hash
from forensics.world import SPLITS, World, require_split
from training.sections import Section, read_lines, sentence

PATTERN_LIMIT: Final = 500  # characters
ANSWER_LIMIT: Final = 10_000  # characters, the last ones
SECONDS: Final = 2.0
NUMBER: Final = re.compile(
    r"(?:(?<![\w.)])[-+])?"  # a sign, unless it subtracts
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3})?"
)


def as_decimal(value: Any) -> Decimal:
    """A JSON number, exactly as it is written."""
    if type(value) not in (int, float):
        raise ValueError(f"must be a number, not {value!r}")
    return Decimal(str(value))


def not_blank(value: str) -> str:
    """The same text. Raises `ValueError` where it is blank."""
    if not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


Filled = Annotated[str, AfterValidator(not_blank)]
Exactly = Annotated[Decimal, BeforeValidator(as_decimal)]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`right` is `None` where it could not be told, and then `reason` says why.
    `submission`: what was judged.
    """

    right: bool | None
    submission: str
    reason: str | None = None


class Exact(Section):
    value: Filled
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(answer, self.ignore_case) == _plain(self.value, self.ignore_case)
        return Judgement(right=right, submission=answer)


class Contains(Section):
    value: Filled
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(self.value, self.ignore_case) in _plain(answer, self.ignore_case)
        return Judgement(right=right, submission=answer)


class Regex(Section):
    pattern: Filled
    ignore_case: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        import regex  # type: ignore[import-untyped]

        if len(pattern) > PATTERN_LIMIT:
            raise ValueError(f"is longer than {PATTERN_LIMIT} characters")
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"is not a regular expression ({error})") from None
        return pattern

    def judge(self, answer: str) -> Judgement:
        import regex

        flags = regex.IGNORECASE if self.ignore_case else 0
        try:
            match = regex.search(self.pattern, answer, flags, timeout=SECONDS)
        except TimeoutError:
            reason = f"the verifier's pattern took longer than {SECONDS:g} seconds"
            return Judgement(right=None, submission=answer, reason=reason)
        return Judgement(right=match is not None, submission=answer)


class Number(Section):
    value: Exactly
    tolerance: Exactly = Field(Decimal(0), ge=0)

    def judge(self, answer: str) -> Judgement:
        """The last number; thousands may be set apart by commas."""
        found = NUMBER.findall(answer.replace("\u2212", "-"))
        if not found:
            return Judgement(right=False, submission=answer, reason="the answer holds no number")
        number = Decimal(found[-1].replace(",", ""))
        return Judgement(right=abs(number - self.value) <= self.tolerance, submission=found[-1])


Verifier = Exact | Contains | Regex | Number
VERIFIERS: Final[dict[str, type[Verifier]]] = {
    "exact": Exact,
    "contains": Contains,
    "regex": Regex,
    "number": Number,
}


def parse_verifier(rule: Any) -> Verifier:
    """The verifier that a JSON object states. Raises `ValueError` with what is
    wrong, for a line number to be added.
    """
    if not isinstance(rule, dict) or rule.get("type") not in VERIFIERS:
        raise ValueError(f"must be an object whose `type` is one of: {', '.join(VERIFIERS)}")
    kind = VERIFIERS[rule["type"]]
    try:
        return kind.model_validate({key: rule[key] for key in rule if key != "type"})
    except ValidationError as error:
        raise ValueError(f"of type {rule['type']}: {sentence(error, kind)}") from None


def final_answer(action: str) -> str:
    """What a model answered: without its thinking, stripped, at most the last
    `ANSWER_LIMIT` characters.
    """
    spoken = action.rpartition("</think>")[2].partition("<think>")[0]
    return spoken.strip()[-ANSWER_LIMIT:]


def _plain(text: str, ignore_case: bool) -> str:
    text = " ".join(text.split())
    return text.casefold() if ignore_case else text


PLACE: Final = "{cue}"
MOST_EXAMINED: Final = 10_000  # questions that one line of code is tried on


class Cue(Section):
    """What gives the answer away, the natural text that stands there when it is
    scrubbed, its channel's name.
    """

    text: Filled
    replacement: Filled
    channel: str = Field(pattern=r"^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$")

    @model_validator(mode="after")
    def _can_be_scrubbed(self) -> Self:
        if self.text == self.replacement:
            raise ValueError("`text` and `replacement` are the same, so nothing could be scrubbed")
        return self


class Row(Section):
    """One question. `task` names its content; `split` is stated by the row or
    follows from the question's own content, half and half: other rows, and its
    cue, move it nowhere.
    """

    prompt: Filled
    verifier: Annotated[Verifier, BeforeValidator(parse_verifier)]
    system: Filled | None = None
    cue: Cue | None = None
    question: Filled | None = None
    split: Literal["train", "held-out"] = Field(
        default_factory=lambda row: SPLITS[
            int(content_hash(["split", row["prompt"], row["system"]], 8), 16) % 2
        ]
    )

    @model_validator(mode="after")
    def _shows_its_cue(self) -> Self:
        if (self.cue is None) != (PLACE not in self.prompt):
            raise ValueError(
                f"`{PLACE}` in the prompt and a `cue` go together; give both or neither"
            )
        return self

    @model_validator(mode="after")
    def _shows_its_question(self) -> Self:
        if self.question and not any(self.question in part for part in self.prompt.split(PLACE)):
            raise ValueError(
                "`question` must be a part of the prompt, letter by letter, without its cue"
            )
        return self

    @cached_property
    def task(self) -> str:
        parts = self.cue and [self.cue.channel, self.cue.text, self.cue.replacement]
        return f"prompt-{content_hash([self.prompt, self.system, parts], 12)}"

    def text(self, scrubbed: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The prompt as it is shown, and the channels whose content it shows."""
        if self.cue is None:
            return self.prompt, ()
        if self.cue.channel in scrubbed:
            return self.prompt.replace(PLACE, self.cue.replacement), ()
        return self.prompt.replace(PLACE, self.cue.text), (self.cue.channel,)


def read_rows(path: Path) -> tuple[dict[str, Row], str]:
    """The rows by task, and a hash of their content that neither path, order
    nor formatting changes.
    """
    rows: dict[str, Row] = {}
    lines: dict[str, int] = {}
    contents: list[str] = []
    cure = "give a prompts file, JSON lines in UTF-8, with --env-option file=PATH"
    for number, row, value in read_lines(path, Row, cure):
        if row.task in rows:
            raise UserError(
                f"{path.name} lines {lines[row.task]} and {number} ask the same question;"
                " delete one"
            )
        rows[row.task], lines[row.task] = row, number
        contents.append(content_hash(value, 32))
    if not rows:
        raise UserError(
            f'{path} holds no rows; write one JSON object a line: {{"prompt": ..., "verifier":'
            " ...}"
        )
    require_apart(rows, lines, path.name)
    return rows, content_hash(sorted(contents))


def require_apart(rows: dict[str, Row], lines: dict[str, int], name: str) -> None:
    """One question, also with another cue, lies in one split."""
    first: dict[tuple[str, str | None], Row] = {}
    for row in rows.values():
        other = first.setdefault((row.prompt, row.system), row)
        if other.split != row.split:
            raise UserError(
                f"{name} lines {lines[other.task]} and {lines[row.task]} put one question into both"
                " splits; give them the same `split`"
            )


class Prompts(World):
    """The environment (see the module's text). One episode is one question and one answer;
    `episode` is the task that is asked.
    """

    name = "prompts"
    defaults = {"file": "", "content": "", "rendering": "auto"}

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        if not options.get("file"):
            raise UserError(
                "prompts needs a file of questions; give it with --env-option file=PATH"
            )
        self._rows, self._content = read_rows(Path(options["file"]))
        if options.get("content", self._content) != self._content:
            raise UserError(
                f"{options['file']} has the content hash {self._content}, not {options['content']};"
                " give the file that was used before, or drop the option"
            )
        self.rendering = self.chosen["rendering"]
        style_of(self)
        rendering = {"rendering": self.rendering} if self.rendering != "auto" else {}
        self.chosen = {"content": self._content} | rendering
        self.shortcuts = tuple(
            Channel(
                name=name,
                family="disclosure",
                attempts=(),
                description="the prompt shows a cue with the answer",
            )
            for name in sorted({row.cue.channel for row in self._rows.values() if row.cue})
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a verdict on these questions should know."""
        asked = {task: row for task, row in self._rows.items() if row.split == "held-out"}
        some = dict(islice(asked.items(), MOST_EXAMINED))
        every = tuple(one.name for one in self.shortcuts)
        answers = {task: answer for task in some if (answer := self.reference(task)) is not None}
        rules = examine({task: row.text(every)[0] for task, row in some.items()}, answers).sentence
        return tuple(one for one in (self._left_out(len(asked)), rules) if one)

    def _left_out(self, asked: int) -> str:
        """How many are held out and, of those that a hash left out, how to ask them; `""` where
        all are.
        """
        others = [row for row in self._rows.values() if row.split != "held-out"]
        drawn = sum("split" not in row.model_fields_set for row in others)
        told = f"{asked} of {len(self._rows)} questions are held out"
        if drawn:
            said = f"; {len(others) - drawn} state `train`" if drawn < len(others) else ""
            told += f"{said}; a hash left {drawn} out, which state no `split`: where training did"
            return f'{told} not see them, mark them "split": "held-out" to ask them too'
        return f"{told}; the others state `train`" if others else ""

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Tasks of a split, drawn without replacement; all of them where the
        file has no more than `number`.
        """
        require_split(split)
        names = sorted(task for task, row in self._rows.items() if row.split == split)
        if not names:
            raise UserError(
                f'the prompts file has no {split} rows; add rows, or mark some with "split":'
                f' "{split}"'
            )
        if number >= len(names):
            return tuple(names)
        chosen = np.random.default_rng(seed).choice(len(names), number, replace=False)
        return tuple(names[i] for i in sorted(chosen))

    def fields(self, task: str) -> Mapping[str, str]:
        """The question of a task, where its row names it."""
        question = self._row(task).question
        return {} if question is None else {"question": question}

    def reference(self, task: str) -> str | None:
        """The right answer, where the verifier has one."""
        value = getattr(self._row(task).verifier, "value", None)
        return None if value is None else str(value)

    def reset(self, task: str, seed: int) -> Observation:
        """Ask a question. Nothing here is random, so `seed` changes nothing."""
        row = self._row(task)
        self.episode = task
        text, channels = row.text(self.scrubbed)
        return Observation(text=text, system=row.system, channels=channels)

    def step(self, action: str) -> StepResult:
        """Judge the answer. One that could not be judged has no outcome
        (`None`), and `end_reason` says why.
        """
        judgement = self._row(self.episode).verifier.judge(final_answer(action))
        outcome = None if judgement.right is None else float(judgement.right)
        return self.graded(
            action,
            outcome,
            submission=judgement.submission,
            rewards={"correct": outcome},
            end_reason=judgement.reason or "answered",
        )

    def _row(self, task: str) -> Row:
        if task not in self._rows:
            raise UserError(f"these prompts have no task '{task}'; take one that tasks() gives")
        return self._rows[task]
