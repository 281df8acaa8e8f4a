"""Whether what was handed in follows what was shown under other names.

1. Each changed line becomes its words with every name put aside; the lines shown likewise.
2. A submitted line pairs with a shown one of the same form; over all pairs, each submitted name
   stands for the shown name that it meets most often.
3. A line follows if its names, read so, are the shown line's names. Short lines say nothing;
   lines that stood word for word in the log before do not count.
"""

import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from forensics.layers.text_words import changed_lines, words
from forensics.shortcuts.blind_run import LONGEST, BlindRun

FEWEST_WORDS = 5  # of a line
FEWEST_LINES = 3
MOST_LINES = 4000
_MARKED = re.compile(
    r"\A(?:\s{0,9}\d{1,6}[:|\t-]|[+-]+)"
)  # as a viewer, grep or a diff marks a line
Form = tuple[tuple[str, ...], tuple[str, ...]]  # the words with names put aside; the names


def renamed_share(blind: BlindRun, steps: Sequence[int]) -> float | None:
    """Share of the changed words that follow what `steps` show under one
    renaming; `None` where too little is long.
    """
    texts = blind.trajectory.steps
    before = {
        words(line)
        for i in range(steps[0])
        if texts[i].role != "assistant"
        for line in _lines(texts[i].text)
    }
    own = [
        words(line)
        for line in changed_lines((blind.trajectory.submission or "")[:LONGEST])[:MOST_LINES]
    ]
    own = [line for line in own if line not in before]
    forms = [_form(line) for line in own if len(line) >= FEWEST_WORDS]
    shown: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for step in steps:
        for line in _lines(texts[step].text):
            frame, names = _form(words(line))
            shown[frame].add(names)
    stands = _renaming(forms, shown)
    follow = [
        form
        for form in forms
        if tuple(stands.get(name, name) for name in form[1]) in shown.get(form[0], ())
    ]
    if len(forms) < FEWEST_LINES or len(set(follow)) < FEWEST_LINES:
        return None
    return sum(len(form[0]) for form in follow) / sum(map(len, own))


def _lines(text: str) -> list[str]:
    lines = text[:LONGEST].splitlines()[:MOST_LINES]
    return [_MARKED.sub("", line).strip() for line in lines]


def _form(line: tuple[str, ...]) -> Form:
    names = tuple(word for word in line if _is_name(word))
    return tuple("_" if _is_name(word) else word for word in line), names


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _renaming(
    forms: Sequence[Form], shown: dict[tuple[str, ...], set[tuple[str, ...]]]
) -> dict[str, str]:
    """For each submitted name the shown one it meets most often; two names
    never stand for the same one.
    """
    met: Counter[tuple[str, str]] = Counter()
    for frame, names in forms:
        for others in sorted(shown.get(frame, ())):
            met.update(set(zip(names, others, strict=True)))
    stands: dict[str, str] = {}
    for (name, other), _ in sorted(met.items(), key=lambda item: (-item[1], item[0])):
        if name not in stands and other not in stands.values():
            stands[name] = other
    return stands
