"""A file as far as a log shows it: `KnownFile`.

1. It is a list of lines, of which those that nobody saw are placeholders. A line that is shown
   later takes the place of its placeholder, in the file as it was and as it is.
2. An edit is made on these lines, by number or by text; so what it takes away is known wherever
   it was shown. An edit of a text that no known line holds is kept aside, as a part of its own.
3. Where a view contradicts what is known, the numbering was lost: what was changed so far
   becomes parts, and the file is unknown again.
4. A placeholder that was taken away is a line that nobody knows: `open` says so.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

MOST_LINES = 4_000  # of a file whose lines are matched up
MOST_PAIRS = 400_000  # of equal lines of two texts
MOST_PARTS = 400
FARTHEST = 50_000  # the last line that is counted
MARK = "\0"  # begins the placeholder of a line that nobody saw


class KnownFile:
    """One file. `whole`: all of it is known. `new`: the run made it. `unseen`: it was there, and
    was written whole though nobody had seen it. `parts`: changes (old, new) whose place is not
    known.
    """

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []
        self.whole = self.new = self.deleted = self.unseen = self.open = False
        self.parts: list[tuple[str, str]] = []

    def reach(self, last: int) -> bool:
        """Count on to a line. Whether it is there."""
        if last > FARTHEST or (self.whole and last > len(self.after)):
            return False
        while len(self.after) < last:
            self.after.append(f"{MARK}{len(self.before)}")
            self.before.append(self.after[-1])
        return True

    @property
    def known(self) -> bool:
        """Whether anything is known of it."""
        return self.whole or bool(self.parts) or any(map(_known, self.before))

    def show(self, start: int, lines: Sequence[str], whole: bool = False) -> None:
        """Lines that were shown, from one on (from 1). `whole`: they are all that there are."""
        if self.whole or self.unseen or not self.reach(start - 1 + len(lines)):
            return
        there = self.after[start - 1 : start - 1 + len(lines)]
        if any(one != line and not unknown(one) for one, line in zip(there, lines, strict=True)):
            self.settle()
            self.reach(start - 1 + len(lines))
        for at, line in enumerate(lines, start - 1):
            if unknown(self.after[at]):
                self.before[int(self.after[at][1:])] = line
                self.after[at] = line
        rest = self.after[len(lines) :]
        if whole and start == 1 and all(map(unknown, rest)):
            self.after = self.after[: len(lines)]
            while self.before and unknown(self.before[-1]) and self.before[-1] in rest:
                self.before.pop()
            self.whole = not any(map(unknown, self.before))

    def settle(self) -> None:
        """Keep what was changed so far as parts; what is known of the lines is forgotten."""
        pairs = changed_pairs(self.before, self.after)
        self.open |= any(unknown(line) for old, _ in pairs for line in old)
        for old, new in pairs:
            self.add_part("\n".join(filter(_known, old)), "\n".join(new))
        self.before, self.after, self.whole = [], [], False

    @property
    def text(self) -> str:
        """The file as it is, with placeholders."""
        return "".join(f"{line}\n" for line in self.after)

    def put(self, text: str) -> None:
        """The file as it is from now on, whole or with the placeholders of `text`."""
        self.after = text_lines(text)
        if any(MARK in line and not unknown(line) for line in self.after):
            self.open = True  # a line that nobody saw was changed
            self.after = [line for line in self.after if unknown(line) or MARK not in line]

    def put_lines(self, start: int, last: int, text: str) -> None:
        """A text takes the place of some lines (from 1)."""
        if start >= 1 and (self.reach(last) or start - 1 <= len(self.after)):
            self.after[start - 1 : max(last, start - 1)] = text_lines(text)
        else:
            self.add_part("", text)

    def write(self, text: str, new: bool) -> None:
        """The whole file is written anew."""
        if not self.whole:
            self.before, self.new, self.unseen = [], new, not new
        self.parts.clear()
        self.after, self.whole, self.deleted = text_lines(text), True, False

    def replace(self, old: str, new: str, count: int = -1) -> None:
        """A text takes the place of another, wherever it stands."""
        if not old:
            self.add(new)
        elif old in (text := self.text):
            self.put(text.replace(old, new, count))
        elif not self.whole:
            self.add_part(old, new)

    def add(self, text: str) -> None:
        """A text is added at the end."""
        if self.whole:
            self.put(self.text + text)
        else:
            self.add_part("", text)

    def add_part(self, old: str, new: str) -> None:
        """A change whose place is not known; an edit of what was edited before goes into it."""
        for at, (first, now) in enumerate(self.parts):
            if old and old in now:
                self.parts[at] = (first, now.replace(old, new, 1))
                return
        if len(self.parts) < MOST_PARTS and old != new:
            self.parts.append((old, new))

    def remove(self, shown: str) -> None:
        """The file is taken away. `shown`: what was seen of it last."""
        if not any(map(_known, self.before)):
            self.before = text_lines(shown)
        self.before = [line for line in self.before if _known(line)]
        self.after, self.deleted, self.whole = [], True, True
        self.parts.clear()

    def hunks(self) -> list[str]:
        """All that was changed, as the hunks of a unified diff."""
        found = hunks_of(self.before, self.after)
        for old, new in () if self.deleted else self.parts:
            found += hunks_of(old.splitlines(), new.splitlines())
        return found

    @property
    def lost(self) -> bool:
        """Whether lines were changed that nobody knows."""
        if self.open:
            return True
        left = set(self.after)
        return any(unknown(line) and line not in left for line in self.before)


def text_lines(text: str) -> list[str]:
    """A text's lines, as `diff` counts them."""
    return text.removesuffix("\n").split("\n") if text else []


def unknown(line: str) -> bool:
    """Whether a line is a placeholder."""
    return line.startswith(MARK) and line[1:].isdigit()


def _known(line: str) -> bool:
    return MARK not in line


def changed_pairs(
    first: Sequence[str], second: Sequence[str]
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The lines that are taken out and put in, place by place."""
    first, second = _around(first, second)
    if too_long(first, second):
        return [(first, second)]
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return [
        (first[a:b], second[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"
    ]


def too_long(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two lists of lines are too long to be matched up."""
    counts, others = Counter(first), Counter(second)
    pairs = sum(count * others[line] for line, count in counts.items())
    return max(len(first), len(second)) > MOST_LINES or pairs > MOST_PAIRS


def hunks_of(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Two lists of lines as hunks, placeholders left out. Too long ones are told as taken out
    and put in.
    """
    first, second = _around(first, second)
    if too_long(first, second):
        rows = [f"-{one}" for one in first] + [f"+{one}" for one in second]
        return _hunk(rows) if any(_known(row[1:]) for row in rows) else []
    found: list[str] = []
    rows = []
    for line in list(difflib.unified_diff(first, second, lineterm=""))[2:]:
        if line.startswith("@@ "):
            found += _hunk(rows)
            rows = []
        else:
            rows.append(line)
    return found + _hunk(rows)


def _around(first: Sequence[str], second: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is left where both begin and end alike, three lines apart; of placeholders that
    follow each other in both the first.
    """
    shorter = min(len(first), len(second))
    start = next((at for at in range(shorter) if first[at] != second[at]), shorter)
    end = next((at for at in range(shorter - start) if first[-1 - at] != second[-1 - at]), None)
    end = shorter - start if end is None else end
    kept = [
        list(lines[max(start - 3, 0) : len(lines) - max(end - 3, 0)]) for lines in (first, second)
    ]
    following = _following(kept[0]) & _following(kept[1])
    one, other = ([line for line in lines if line not in following] for lines in kept)
    return one, other


def _following(lines: Sequence[str]) -> set[str]:
    """The placeholders whose own predecessor stands before them."""
    return {
        line
        for before, line in pairwise(lines)
        if unknown(before) and unknown(line) and int(before[1:]) + 1 == int(line[1:])
    }


def _hunk(rows: Sequence[str]) -> list[str]:
    rows = [row for row in rows if _known(row[1:])]
    if not any(row[0] in "+-" for row in rows):
        return []
    old, new = (sum(row[0] in marks for row in rows) for marks in (" -", " +"))
    return [f"@@ -1,{old} +1,{new} @@", *rows]
