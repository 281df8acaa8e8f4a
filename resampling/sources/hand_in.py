"""The form in which winning runs hand in, and a candidate for the answer out of
a text that does not have it.

1. *Form* of texts of many tasks: the constant text around what varies, by the
   letters that nine tenths of them share at either end, cut back to a boundary
   of words. Looked for in the whole text and in its last line, what varies less
   counts; where that is no word, then in the words before the last number.
2. *Shape* of what varies: a number, a word, a line or any text, the narrowest
   that nine tenths have.
3. *Candidate*, by a fixed order of rules, never by its success: a line that has
   the form; what is boxed; fenced; after "answer is"; in backticks; in quotes;
   the last number (or word, where the shape is one); the last line; the whole
   text. The first that has the shape, or holds a number where that is the shape,
   counts. Thoughts (up to `</think>`) are left out where anything follows them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Shape = Literal["number", "word", "line", "text"]
SHAPES: Final[tuple[Shape, ...]] = ("number", "word", "line", "text")  # narrowest first
SHARED: Final = 0.9  # of the texts
OPENS, CLOSES = frozenset(" \t\n:=([{<\"'`>"), frozenset(" \t\n)]}>\"'`<")
NUMBER: Final = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?")
WORD: Final = re.compile(r"\w+(?:[-.]\w+)*")
BOXED: Final = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
FENCED: Final = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
ANSWER: Final = re.compile(r"\banswer(?:\s+is|\s*[:=])\s*[:=]?\s*([^\n]+)", re.IGNORECASE)
TICKED: Final = re.compile(r"`([^`\n]+)`")
QUOTED: Final = re.compile('["\u201c]([^"\u201c\u201d\n]+)["\u201d]')
AROUND: Final = " \t\n.,;:!?*\"'`"


@dataclass(frozen=True, kw_only=True)
class Form:
    """`prefix`, what varies, `suffix`. `varies`: whether anything does."""

    prefix: str
    suffix: str
    shape: Shape
    varies: bool

    @property
    def told(self) -> str:
        """For a reader who is to use it."""
        return f"{self.prefix}{'...' if self.varies else ''}{self.suffix}".strip()

    def put(self, candidate: str) -> str:
        return f"{self.prefix}{candidate}{self.suffix}"

    def had_by(self, text: str) -> bool:
        """Whether a whole text has the form, and what varies its shape."""
        slot = self.inside(text.strip()) if self.varies else None
        return slot is not None and has_shape(slot, self.shape)

    def inside(self, text: str) -> str | None:
        """What stands between prefix and suffix of a text."""
        fits = len(text) > len(self.prefix) + len(self.suffix)
        if not (fits and text.startswith(self.prefix) and text.endswith(self.suffix)):
            return None
        return text[len(self.prefix) : len(text) - len(self.suffix)]

    def candidate(self, text: str) -> str | None:
        """What could be the answer in a text; `None` where nothing has the shape."""
        said = text.rpartition("</think>")[2].strip() or text.strip()
        return next(filter(None, (self._shaped(span) for span in self._spans(said))), None)

    def _spans(self, text: str) -> Iterator[str]:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if self.prefix or self.suffix:
            yield from filter(None, map(self.inside, reversed((*lines, text))))
        for rule in (BOXED, FENCED, ANSWER, TICKED, QUOTED):
            yield from rule.findall(text)[-1:]
        if self.shape in ("number", "word"):
            yield from (NUMBER if self.shape == "number" else WORD).findall(text)[-1:]
        yield from lines[-1:]
        yield text

    def _shaped(self, span: str) -> str | None:
        if self.shape == "number":
            found = NUMBER.search(span)
            return found[0].replace(",", "") if found else None
        clean = span.strip() if self.shape == "text" else span.strip(AROUND)
        return clean if has_shape(clean, self.shape) else None


def has_shape(text: str, shape: Shape) -> bool:
    """Whether a text has a shape or a narrower one."""
    whole = {"number": NUMBER, "word": WORD}.get(shape)
    if whole is not None:
        return bool(whole.fullmatch(text.strip()))
    return bool(text) and (shape == "text" or "\n" not in text.strip())


def form_of(texts: Sequence[str]) -> Form:
    """The form of the winning texts of many tasks, at least one."""
    texts = [text.strip() for text in texts]
    forms = [_plain_form(view) for view in (texts, [_last_line(text) for text in texts])]
    known = [form for form in forms if form.prefix or form.suffix]
    found = min(known, key=lambda form: SHAPES.index(form.shape), default=forms[0])
    return found if found.shape in SHAPES[:2] else _around_number(texts) or found


def _plain_form(texts: Sequence[str]) -> Form:
    common, count = Counter(texts).most_common(1)[0]
    if count >= SHARED * len(texts):
        return Form(prefix=common, suffix="", shape="text", varies=False)
    prefix = _cut(_shared_start(texts), OPENS)
    rest = [text[len(prefix) :] for text in texts if text.startswith(prefix)]
    suffix = _cut(_shared_start([text[::-1] for text in rest]), CLOSES)[::-1]
    return _shaped_form(prefix, suffix, [r[: len(r) - len(suffix)] for r in rest])


def _around_number(texts: Sequence[str]) -> Form | None:
    """The constant words before the last number, where most have such."""
    heads = [_before_last_number(text) for text in texts]
    known = [head[::-1] for head in heads if head is not None]
    if len(known) < SHARED * len(texts):
        return None
    anchor = _shared_start(known)[::-1]
    words = anchor.lstrip() if anchor[:1].isspace() else anchor.partition(" ")[2]
    several = sum(word.isalpha() for word in WORD.findall(words)) > 1
    return Form(prefix=words, suffix="", shape="number", varies=True) if several else None


def _shaped_form(prefix: str, suffix: str, slots: Sequence[str]) -> Form:
    enough = SHARED * len(slots)
    narrow = (s for s in SHAPES if sum(has_shape(slot, s) for slot in slots) >= enough)
    return Form(prefix=prefix, suffix=suffix, shape=next(narrow, "text"), varies=True)


def _shared_start(texts: Sequence[str]) -> str:
    """The longest start that nine tenths of the texts share."""
    start, enough, left = "", SHARED * len(texts), list(texts)
    while True:
        place = len(start)
        letters = Counter(text[place] for text in left if len(text) > place)
        if not letters:
            return start
        letter, count = min(letters.items(), key=lambda item: (-item[1], item[0]))
        if count < enough:
            return start
        start += letter
        left = [text for text in left if text.startswith(start)]


def _cut(start: str, boundary: frozenset[str]) -> str:
    """A shared start up to its last boundary."""
    return start[: max((place + 1 for place, c in enumerate(start) if c in boundary), default=0)]


def _last_line(text: str) -> str:
    return text.rpartition("\n")[2]


def _before_last_number(text: str) -> str | None:
    found = list(NUMBER.finditer(text))
    return text[: found[-1].start()] if found else None
