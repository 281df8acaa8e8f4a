"""Lenient extraction: what the failed runs of one side would score if the answer
in their last action were handed in as winning runs do, without what guessing adds.

1. *Form* of what the winning runs of many tasks wrote: the constant text around
   what varies, by the letters that nine tenths of them share at either end, cut
   back to a boundary of words. Looked for in the whole text and in its last line,
   what varies less counts; where that is no word, then in the words before the
   last number.
2. *Shape* of what varies: a number, a word, a line or any text, the narrowest
   that nine tenths have.
3. *Candidate* of each failed run, by a fixed order of rules, never by its success:
   a line that has the form; what is boxed; fenced; after "answer is"; in
   backticks; in quotes; the last number (or word, where the shape is one); the
   last line; the whole text. The first that has the shape, or holds a number where
   that is the shape, counts. Thoughts (up to `</think>`) are left out where
   anything follows them. What was handed in already, or has the form of a hand-in,
   is none.
4. It is graded again (`regrade`), where the world can do so; else the run's
   earlier actions are taken again, then the candidate in the form of a hand-in.
5. The same with the candidate of another task: `guessed` is the share that this
   wins, and a candidate that adds s counts (s - guessed) / (1 - guessed), which is
   0 in the mean for one who guesses (formula scoring).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from os.path import commonprefix  # of letters
from typing import Final

import numpy as np

from forensics.errors import MissingInput, stop_outside
from forensics.phrases import percent
from forensics.protocols import Environment, Regrading
from forensics.records import Trajectory
from resampling.gain_tests.hand_ins import graded_again

SHARED: Final = 0.9  # of the texts
MOST_GUESSED = 0.9  # of the candidates: above it, guessing cannot be told from knowing
MOST_UNTOLD = 0.2  # of the candidates that could not be handed in
OPENS, CLOSES = " \t\n:=([{<\"'`>", " \t\n)]}>\"'`<"
NUMBER: Final = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?")
WORD: Final = re.compile(r"\w+(?:[-.]\w+)*")
ANY: Final = re.compile(r".+", re.DOTALL)
SHAPES: Final = {"number": NUMBER, "word": WORD, "line": re.compile(r".+"), "text": ANY}
RULES: Final = (
    re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}"),
    re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL),
    re.compile(r"\banswer(?:\s+is|\s*[:=])\s*[:=]?\s*([^\n]+)", re.IGNORECASE),
    re.compile(r"`([^`\n]+)`"),
    re.compile('["\u201c]([^"\u201c\u201d\n]+)["\u201d]'),
)
AROUND: Final = " \t\n.,;:!?*\"'`"


@dataclass(frozen=True, kw_only=True)
class Form:
    """`prefix`, what varies, `suffix`. `varies`: whether anything does."""

    prefix: str
    suffix: str = ""
    shape: str = "text"
    varies: bool = True

    @property
    def told(self) -> str:
        """For a reader who is to use it."""
        return f"{self.prefix}{'...' if self.varies else ''}{self.suffix}".strip()

    def put(self, candidate: str) -> str:
        return f"{self.prefix}{candidate}{self.suffix}"

    def had_by(self, text: str) -> bool:
        """Whether a whole text has the form, and what varies its shape."""
        slot = self._inside(text.strip()) if self.varies else None
        return slot is not None and has_shape(slot, self.shape)

    def _inside(self, text: str) -> str | None:
        end = len(text) - len(self.suffix)
        fits = text.startswith(self.prefix) and text.endswith(self.suffix)
        return text[len(self.prefix) : end] if fits and end > len(self.prefix) else None

    def candidate(self, text: str) -> str | None:
        """What could be the answer in a text; `None` where nothing has the shape."""
        said = text.rpartition("</think>")[2].strip() or text.strip()
        return next(filter(None, map(self._shaped, self._spans(said))), None)

    def _spans(self, text: str) -> Iterator[str]:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if self.prefix or self.suffix:
            yield from filter(None, map(self._inside, reversed((*lines, text))))
        last = (SHAPES[self.shape],) if self.shape in ("number", "word") else ()
        for rule in (*RULES, *last):
            yield from rule.findall(text)[-1:]
        yield from (*lines[-1:], text)

    def _shaped(self, span: str) -> str | None:
        if self.shape == "number":
            found = NUMBER.search(span)
            return found[0].replace(",", "") if found else None
        clean = span.strip() if self.shape == "text" else span.strip(AROUND)
        return clean if has_shape(clean, self.shape) else None


def has_shape(text: str, shape: str) -> bool:
    """Whether a text has a shape or a narrower one."""
    return SHAPES[shape].fullmatch(text.strip()) is not None


def form_of(texts: Sequence[str]) -> Form:
    """The form of the winning texts of many tasks, at least one."""
    texts = [text.strip() for text in texts]
    forms = [_plain_form(texts), _plain_form([text.rpartition("\n")[2] for text in texts])]
    known = [form for form in forms if form.prefix or form.suffix]
    found = min(known, key=lambda form: [*SHAPES].index(form.shape), default=forms[0])
    return found if found.shape in ("number", "word") else _before_a_number(texts) or found


def _plain_form(texts: Sequence[str]) -> Form:
    common, count = Counter(texts).most_common(1)[0]
    if count >= SHARED * len(texts):
        return Form(prefix=common, varies=False)
    prefix = _cut(_shared_start(texts), OPENS)
    rest = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]
    suffix = _cut(_shared_start([text[::-1] for text in rest]), CLOSES)[::-1]
    slots = [text[: len(text) - len(suffix)] for text in rest]
    narrow = (s for s in SHAPES if sum(has_shape(t, s) for t in slots) >= SHARED * len(slots))
    return Form(prefix=prefix, suffix=suffix, shape=next(narrow, "text"))


def _before_a_number(texts: Sequence[str]) -> Form | None:
    """The constant words before the last number, where most have such."""
    found = ([*NUMBER.finditer(text)][-1:] for text in texts)
    heads = [one.string[: one.start()][::-1] for last in found for one in last]
    if len(heads) < SHARED * len(texts):
        return None
    anchor = _shared_start(heads)[::-1]
    words = anchor.lstrip() if anchor[:1].isspace() else anchor.partition(" ")[2]
    several = sum(word.isalpha() for word in WORD.findall(words)) > 1
    return Form(prefix=words, shape="number") if several else None


def _shared_start(texts: Sequence[str]) -> str:
    """The longest start that nine tenths of the texts share: in order, they are neighbours."""
    ordered, enough = sorted(texts), ceil(SHARED * len(texts))
    ends = zip(ordered, ordered[enough - 1 :], strict=False)
    return max(map(commonprefix, ends), key=len, default="")


def _cut(start: str, boundary: str) -> str:
    """A shared start up to its last boundary."""
    return start[: 1 + max(map(start.rfind, boundary))]


class Extraction:
    """The candidates of one side's failed runs, handed in. `gains`: by task,
    what they add to the score, without what guessing adds.
    """

    def __init__(
        self, environment: Environment, runs: Sequence[Trajectory], wins: Sequence[Trajectory]
    ) -> None:
        """`environment`: in which the runs were made. `wins`: whose form counts."""
        self._environment = environment
        self._known: dict[tuple[str, str], float | None] = {}
        self._form = form_of([last_action(run) for run in wins])
        texts = [run.submission for run in wins if run.submission]
        self._regrades = isinstance(environment, Regrading) and bool(texts)
        self._handed_in = form_of(texts) if self._regrades else self._form
        if not self._handed_in.varies:
            raise MissingInput(
                "Nothing varies in what wins after training hand in, so there is no place for an"
                " answer.",
                "Give the environment a method `regrade(task, submission)`.",
            )
        found = [(run, text) for run in runs if (text := self._candidate(run)) is not None]
        self.candidates = len(found)
        added = [self._adds(run, text) for run, text in found]
        strange = [self._adds(run, of_another(found, i)) for i, (run, _) in enumerate(found)]
        self._require_told([*added, *strange])
        self.guessed = float(np.mean([s or 0.0 for s in strange])) if strange else 0.0
        if self.guessed > MOST_GUESSED:
            raise MissingInput(
                f"{percent(self.guessed)} of the answers that were read out would be right on"
                " another task too.",
                "Give tasks with different answers.",
            )
        worth = {
            run.id: ((one or 0.0) - self.guessed) / (1 - self.guessed)
            for (run, _), one in zip(found, added, strict=True)
        }
        self.gains = by_task([(run.task, worth.get(run.id, 0.0)) for run in runs])

    def _candidate(self, run: Trajectory) -> str | None:
        """The answer in a failed run's last action, in the form of a hand-in;
        `None` where there is none that was not handed in already.
        """
        if won(run) or not run.turns or self._form.had_by(said := last_action(run)):
            return None
        found = (self._form if self._form.varies else self._handed_in).candidate(said)
        text = None if found is None else self._handed_in.put(found)
        already = (run.submission if self._regrades else said) or ""
        return None if text is None or text.split() == already.split() else text

    def _adds(self, run: Trajectory, text: str) -> float | None:
        """What a hand-in would add to a run's score; `None` where it cannot be tried."""
        key = (run.task if self._regrades else run.id), text
        if key not in self._known:
            self._known[key] = (
                graded_again(self._environment, run.task, text)
                if self._regrades
                else self._replayed(run, text)
            )
        score = self._known[key]
        return None if score is None else max(score - (run.outcome or 0.0), 0.0)

    def _replayed(self, run: Trajectory, text: str) -> float | None:
        """The run's actions but for the last one taken again, then this one."""
        world = self._environment.spawn()
        from resampling.samplers.branches import RecordedRun

        recorded, (*earlier, _) = RecordedRun(run, None), run.actions
        try:
            recorded.begin(world)
            for number, _ in earlier:
                recorded.act(world, number)
            result = world.step(text)
        except Exception as error:  # it does not replay, or breaks on a text it had not seen
            stop_outside(error)
            return None
        return 0.0 if result.outcome is None else result.outcome

    def _require_told(self, added: Sequence[float | None]) -> None:
        untold = sum(one is None for one in added)
        if untold > MOST_UNTOLD * len(added):
            raise MissingInput(
                f"{percent(untold / len(added))} of the answers that were read out could not be"
                " handed in.",
                "See that the environment replays its runs, or give it a method `regrade`.",
            )


def of_another(found: Sequence[tuple[Trajectory, str]], place: int) -> str:
    """A candidate of another task, half a turn away; raises `MissingInput` without one."""
    start = (place + len(found) // 2) % len(found)
    turned = (*found[start:], *found[:start])
    other = (text for run, text in turned if run.task != found[place][0].task)
    if (text := next(other, None)) is None:
        raise MissingInput(
            "All answers that were read out are of one task.", "Run more held-out tasks."
        )
    return text


def won(run: Trajectory) -> bool:
    """Whether a run scored at least one half."""
    return (run.outcome or 0.0) >= 0.5


def last_action(run: Trajectory) -> str:
    """The text of the last thing that the policy did."""
    return run.actions[-1][1].text


def by_task(scores: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The mean of each task."""
    found: dict[str, list[float]] = {}
    for task, score in scores:
        found.setdefault(task, []).append(score)
    return {task: sum(values) / len(values) for task, values in found.items()}
