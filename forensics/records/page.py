"""A page as data: what a room hands over, and `forensics.report` draws as HTML,
Markdown or text.

A page has sections, a section has blocks: sentences, tables, figures, texts
with their stretches, and folds that hold further blocks. Every text is foreign
until it is drawn: the report escapes it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from forensics.records.evidence import Figure, Table
from forensics.records.record import Record, Texts
from forensics.records.trajectory import Step
from forensics.records.verdict import Estimate

LONGEST = 4000  # characters of a step that a page shows
WHO = {"system": "system", "user": "task", "assistant": "policy", "tool": "world"}


class TextSpan(Record):
    """A stretch of a text from character `start` to `end` (`None`: to its
    border).

    `value` in [-1, 1] is a bar under it. Without one the stretch is marked with
    its `label`; with one the label is what a pointer is told. `detail` opens on
    a click; such a stretch is framed.
    """

    start: int | None = None
    end: int | None = None
    label: str = ""
    value: float | None = None
    framed: bool = False
    detail: tuple[str | Table, ...] = ()


class TextSpans(Record):
    """One text with its stretches: a step of a run, or a context window.

    `tags` stand beside the name of who wrote it, `marks` as well and
    emphasised. `value` in [-1, 1] is a bar under the whole text with the words
    of `note`. `calls`: structured calls, name and arguments. `skipped`: steps
    left out before this one; `left_out`: characters left out of it.
    """

    kind: Literal["text-spans"] = "text-spans"
    text: str
    who: str = ""
    number: int | None = None
    role: str = "other"
    tags: Texts = ()
    marks: Texts = ()
    calls: tuple[tuple[str, str], ...] = ()
    spans: tuple[TextSpan, ...] = ()
    value: float | None = None
    note: str = ""
    skipped: int = 0
    left_out: int = 0


class Fold(Record):
    """Something that opens: a run, a latent, a group. `anchor`: its address
    within the page.
    """

    kind: Literal["fold"] = "fold"
    title: str
    facts: Texts = ()
    blocks: tuple["Table | Figure | TextSpans | Fold | str", ...] = ()
    open: bool = False
    anchor: str = ""


Block = Table | Figure | TextSpans | Fold | str


class Section(Record):
    """Blocks under a heading. `hint`: how to read them; `empty`: what is said without any."""

    title: str
    hint: str = ""
    blocks: tuple[Block, ...] = ()
    empty: str = "Not measured."


class Page(Record):
    """`sentences`: what was found, the first one larger; `more`: those that open
    on a click; `facts`: short ones beside them; `command`: what to run next.
    """

    eyebrow: str
    title: str
    sentences: Texts = ()
    more: Texts = ()
    facts: Texts = ()
    sections: tuple[Section, ...] = ()
    command: str = ""


def step_text(number: int, step: Step, *, longest: int = LONGEST, **more: Any) -> TextSpans:
    """A step of a run as a block; of its text at most `longest` characters.
    `more`: fields that are said in another way.
    """
    known = {
        "text": step.text[:longest],
        "left_out": max(len(step.text) - longest, 0),
        "who": WHO[step.role],
        "role": step.role,
        "tags": step.kinds,
        "calls": tuple((call.name, call.arguments[:longest]) for call in step.tool_calls),
    }
    return TextSpans(number=number, **known | more)


def estimate_cell(found: Any) -> Estimate | float | None:
    """The cell of a table for an object or a mapping with `estimate`, `low`,
    `high`; without known ends it is the number alone.
    """
    if found is None:
        return None
    known = found if isinstance(found, Mapping) else vars(found)
    estimate, low, high = (known.get(name) for name in ("estimate", "low", "high"))
    if estimate is None or low is None or high is None:
        return estimate
    return Estimate(estimate=estimate, low=low, high=high)
