"""The steps of a run as they are laid out: numbered, labelled with the chain of evidence, highlighted, bounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from forensics.records import Span
from forensics.report.chains import LINKS
from forensics.report.escape import cut, short, visible_html
from forensics.report.examples import Example
from forensics.report.logs import Message, Run

WHO: Final = {"system": "system", "user": "task", "assistant": "policy", "tool": "world"}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`text`: characters of one step; `steps`: steps of one run; `total`: characters of all runs together."""

    text: int
    steps: int
    total: int

    def fresh(self) -> "Allowance":
        """The whole allowance, for one page."""
        return Allowance(limits=self, left=self.total)


@dataclass
class Allowance:
    """What may still be shown."""

    limits: Limits
    left: int

    def take(self, text: str) -> tuple[str, int]:
        """As much of a text as may be shown, and how many characters were left out."""
        shown, left_out = cut(text, max(min(self.limits.text, self.left), 0))
        self.left -= len(shown)
        return shown, left_out


@dataclass(frozen=True, kw_only=True)
class ShownStep:
    """One step. `skipped`: how many steps before it are not shown; `left_out`: characters of its text that are not."""

    number: int
    role: str
    who: str
    kinds: tuple[str, ...]
    channels: tuple[str, ...]
    labels: tuple[str, ...]
    body: Markup
    left_out: int
    calls: tuple[tuple[str, str], ...] = ()
    skipped: int = 0


@dataclass
class _Marks:
    """What evidence says about the steps of one run."""

    labels: dict[int, list[str]] = field(default_factory=dict)
    spans: dict[int, list[Span]] = field(default_factory=dict)

    def add(self, step: int, label: str) -> None:
        if label not in self.labels.setdefault(step, []):
            self.labels[step].append(label)


def shown_steps(run: Run, example: Example, allowance: Allowance, *, with_marks: bool) -> Iterator[ShownStep]:
    """The steps of a run; `with_marks` for the run that the evidence is about, not for its twins."""
    marks = _marks(example) if with_marks else _Marks()
    numbers = _chosen(len(run.messages), marks, allowance.limits.steps)
    for before, number in zip([-1, *numbers], numbers, strict=False):
        yield _step(number, run.messages[number], marks, allowance, skipped=number - before - 1)


def _marks(example: Example) -> _Marks:
    marks = _Marks()
    for row in example.chains:
        for name, _, steps in row.links:
            for step in steps:
                marks.add(step, name)
    for highlight in example.spans:
        for span in highlight.spans[:200]:
            marks.add(span.step, span.label)
            if span.start is not None or span.end is not None:
                marks.spans.setdefault(span.step, []).append(span)
    return marks


def _chosen(length: int, marks: _Marks, most: int) -> list[int]:
    """Which steps are shown: the first, the last, and those that evidence points at."""
    if length <= most:
        return list(range(length))
    pointed = [step for step in sorted(marks.labels) if 0 <= step < length][: most // 2]
    return sorted({*range(most // 2), *range(length - most // 4, length), *pointed})


def _step(number: int, message: Message, marks: _Marks, allowance: Allowance, *, skipped: int) -> ShownStep:
    text, left_out = allowance.take(message.text)
    role = message.role if message.role in WHO else "other"
    return ShownStep(
        number=number, role=role, who=WHO.get(message.role, message.role), left_out=left_out,
        kinds=message.kinds[:8], channels=message.channels[:8], labels=tuple(_ordered(marks.labels.get(number, ()))),
        body=marked(text, marks.spans.get(number, ())), skipped=skipped,
        calls=tuple((short(name, 80), allowance.take(arguments)[0]) for name, arguments in message.calls[:16]),
    )


def _ordered(labels: Sequence[str]) -> list[str]:
    """The links of a chain in their order, then other labels."""
    return sorted(labels, key=lambda label: (LINKS.index(label) if label in LINKS else len(LINKS), label))


def marked(text: str, spans: Sequence[Span]) -> Markup:
    """A text with its highlighted pieces; offsets outside of it are cut, and of two that overlap the second."""
    pieces, at = [], 0
    for span in sorted(spans, key=lambda span: (span.start or 0, span.label)):
        start = min(max(span.start or 0, at), len(text))
        end = len(text) if span.end is None else min(max(span.end, 0), len(text))
        if start >= end:
            continue
        piece = Markup('<mark data-label="{}">{}</mark>').format(short(span.label, 40), visible_html(text[start:end]))
        pieces += [visible_html(text[at:start]), piece]
        at = end
    return Markup("").join([*pieces, visible_html(text[at:])])
