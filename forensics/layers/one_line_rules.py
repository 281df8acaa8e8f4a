"""Could one line of code win this set of questions? Asked of the prompts and their right answers
alone: it costs no model, and can be asked before anything is played.

1. *Table*: a rule takes the first, k-th, last, longest, shortest, largest or smallest number,
   word, line, item or option of a prompt (`SIMPLE`), the same of one of its lines (`PAIRED`),
   a count, or the copy of a field. Rules that are the same on all tasks are told as one of each
   sort: place, extreme, count, copy.
2. *Chance*: the 95 % quantile, over answers permuted among the tasks, of the most that any rule
   of the table wins. Of 5,000 rules on 160 tasks at .20 the best reaches .33 by luck.
3. A rule that wins may be the skill that is asked for: what wins is a question to a person, and
   accuses nobody. Who follows it is measured in `resampling.gain_tests.followed_rules`.

*Rows* (`rows_of`) are alike things that stand one after the other: numbers, words between
commas, options, lines of one shape. `shuffled` permutes them, so that a place tells nothing. What
looks like digits of 1,000, a date or a pair of coordinates is no row.

Ours; shallow baselines as for contexts that are left out (1805.01042). Not in the table: whatever
reckons, since that may be any skill; the most frequent answer, which blind play weighs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from forensics.phrases import capital, plural

RULE: Final = "rule:"  # of a rule, where it stands beside kinds of action and fields
PERMUTATIONS: Final = 200
FEWEST: Final = 20  # tasks with a right answer, for a set to be asked
SCREENED: Final = 1_000  # tasks on which rules are tried first
WORTH: Final = 0.05  # of them that a rule has to win
UNKNOWN: Final = -2  # the right answer, where nobody knows it
NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d+)?(?![\w])")
WORD = re.compile(r"[^\W_][\w'-]*")
_APART = r"[ \t]*[,;|][ \t]*|[ \t]+|\n"
_NUMBERS = re.compile(
    rf"(?<![\w.,:/(-])-?\d+(?:\.\d+)?(?P<apart>{_APART})-?\d+(?:\.\d+)?"
    rf"(?:(?P=apart)-?\d+(?:\.\d+)?)*(?:,?[ \t]+(?:and|or)[ \t]+-?\d+(?:\.\d+)?)?(?![\w,:/-]|\.\d)"
)
_WORDS = re.compile(
    r"\b(?<!\w[-'])[^\W\d_][\w'-]*(?:,[ \t]+[^\W\d_][\w'-]*){2,}"
    r"(?:,?[ \t]+(?:and|or)[ \t]+[^\W\d_][\w'-]*)?"
)
_LEADS = re.compile(
    r"(?:(?<=\s)|^)\(?(?P<lead>[A-Za-z]|\d{1,2})[).:][ \t]+|^[ \t]*[-*•][ \t]+", re.M
)
_FIELD = re.compile(r"[^\W\d][\w -]{0,30}:[ \t]+\S")
_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+")
_ITEM = {"number": re.compile(r"-?\d+(?:\.\d+)?"), "word": re.compile(r"[^\W\d_][\w'-]*")}
_NOT_JOINED = re.compile(r"^(?:and|or)$")
Span = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """Alike things in a text, by their places; `leads` of options, in the same order."""

    spans: tuple[Span, ...]
    leads: tuple[str, ...] = ()


@lru_cache(maxsize=20_000)
def rows_of(text: str) -> tuple[Row, ...]:
    """The rows of three things and more, none inside another, in the order of their places."""
    found, taken = [], bytearray(len(text))  # type: list[Row], bytearray
    numbers, names = _matched(text, _NUMBERS, "number"), _matched(text, _WORDS, "word")
    for row in (*_options(text), *numbers, *names, *_alike_lines(text)):
        start, end = row.spans[0][0], row.spans[-1][1]
        if len(row.spans) > 2 and taken.find(1, start, end) < 0:
            found.append(row)
            taken[start:end] = b"\1" * (end - start)
    return tuple(sorted(found, key=lambda one: one.spans))


def _matched(text: str, pattern: re.Pattern[str], kind: str) -> Iterator[Row]:
    for met in pattern.finditer(text):
        if _THOUSANDS.fullmatch(met[0]):
            continue
        items = _ITEM[kind].finditer(text, *met.span())
        yield Row(tuple(one.span() for one in items if not _NOT_JOINED.match(one[0])))


def _options(text: str) -> Iterator[Row]:
    """Texts behind leads that count up (`A) ... B) ...`), or behind bullets."""
    met, run = list(_LEADS.finditer(text)), []  # type: list[re.Match[str]], list[re.Match[str]]
    for one in [*met, None]:
        follows = run and one and _next_lead(run[-1]["lead"]) == (one["lead"] or "").lower()
        if run and not follows:
            ends = [*(other.start() for other in run[1:]), _end_of_line(text, run[-1].end())]
            spans = [
                (lead.end(), lead.end() + len(text[lead.end() : end].rstrip(" \t\n,;|")))
                for lead, end in zip(run, ends, strict=True)
            ]
            if all(start < end for start, end in spans):
                yield Row(tuple(spans), tuple(lead["lead"] or "" for lead in run))
            run = []
        if one:
            run.append(one)


def _next_lead(lead: str | None) -> str:
    if not lead:
        return ""
    return str(int(lead) + 1) if lead.isdigit() else chr(ord(lead.lower()) + 1)


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _alike_lines(text: str) -> Iterator[Row]:
    met = [one for one in re.finditer(r"[^\n]+", text) if not one[0].isspace()]
    lines = [(one.start(), one.start() + len(one[0].rstrip())) for one in met]
    run: list[Span] = []
    for span in [*lines, (0, 0)]:
        shape = _shape(text[slice(*span)])
        if run and shape != _shape(text[slice(*run[-1])]):
            yield Row(tuple(run))
            run = []
        run.append(span)


def _shape(line: str) -> str:
    """Two lines are alike where they are of one shape, or both a named field."""
    return ":" if _FIELD.match(line) else _DIGITS.sub("0", _LETTERS.sub("w", line))


def shuffled(text: str, generator: np.random.Generator) -> str:
    """The text with the things of each row in another order; leads stay where they are."""
    parts, at = [], 0  # type: list[str], int
    for row in rows_of(text):
        order = generator.permutation(len(row.spans))
        if (order == np.arange(len(order))).all():
            order = np.roll(order, 1)
        for span, other in zip(row.spans, order, strict=True):
            parts += [text[at : span[0]], text[slice(*row.spans[other])]]
            at = span[1]
    return "".join([*parts, text[at:]])


def plain(text: str) -> str:
    """An answer as it is compared: a number by its value, else without case and outer marks."""
    said = text.strip().strip(".,;:!?()[]{}\"'`*$ ").casefold()
    number = said.replace(",", "")
    if NUMBER.fullmatch(said) and "." in number:
        number = number.rstrip("0").rstrip(".")
    return (number.lstrip("0") or "0") if NUMBER.fullmatch(said) else " ".join(said.split())


# -- the table -------------------------------------------------------------------------------

Units = dict[str, list[str]]
Take = Callable[[Sequence[str]], str | None]
PLACE, EXTREME, COUNT, COPY = "place", "extreme", "count", "copy"
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)


def _at(place: int) -> Take:
    return lambda them: them[place] if -len(them) <= place < len(them) else None


def _extreme(key: Callable[[str], Any], sign: int) -> Take:
    """The only one that is most by the key."""

    def take(them: Sequence[str]) -> str | None:
        keys = [sign * key(one) for one in them]
        best = max(keys, default=None)
        return them[keys.index(best)] if len(them) > 1 and keys.count(best) == 1 else None

    return take


def _value(number: str) -> float:
    return float(number.replace(",", ""))


PLACES: dict[str, Take] = {
    "last": _at(-1),
    **{name: _at(place) for place, name in enumerate(ORDINALS)},
    **{f"{name} to last": _at(-place) for place, name in enumerate(ORDINALS[1:8], 2)},
}
SIZES: dict[str, Take] = {"largest": _extreme(_value, 1), "smallest": _extreme(_value, -1)}
LENGTHS: dict[str, Take] = {"longest": _extreme(len, 1), "shortest": _extreme(len, -1)}
CASES: dict[str, Take] = {"only capitalised": _extreme(lambda one: one[:1].isupper(), 1)}
UNITS = ("number", "item", "option", "word", "line")
OF_LINES = {"first": PLACES["first"], "last": PLACES["last"], **LENGTHS}
ENDS = {"first": PLACES["first"], "last": PLACES["last"]}


@dataclass(frozen=True)
class Rule:
    """`words`: what it hands in ("the last number"); `sort`: place, extreme, count or copy."""

    words: str
    sort: str
    said: Callable[[Units], str | None]

    @property
    def name(self) -> str:
        return self.words.removeprefix("the ").replace(" ", "-")


def _simple() -> Iterator[Rule]:
    for unit in UNITS:
        extremes = {**(SIZES if unit == "number" else CASES), **LENGTHS}
        for name, take in (PLACES | extremes).items():
            sort = PLACE if name in PLACES else EXTREME
            yield Rule(f"the {name} {unit}", sort, lambda of, u=unit, t=take: t(of[u]))  # type: ignore[misc]
    for name, take in LENGTHS.items():
        yield Rule(f"the letter of the {name} option", EXTREME, _letter(take))
    for unit in UNITS:
        yield Rule(f"the count of {unit}s", COUNT, lambda of, u=unit: str(len(of[u])))  # type: ignore[misc]


def _letter(take: Take) -> Callable[[Units], str | None]:
    def said(of: Units) -> str | None:
        chosen = take(of["option"])
        return None if chosen is None else of["lead"][of["option"].index(chosen)]

    return said


def _paired() -> Iterator[Rule]:
    inner = [("number", ENDS | SIZES), ("word", ENDS | LENGTHS)]
    for line, pick in OF_LINES.items():
        for unit, takes in inner:
            for name, take in takes.items():
                sort = PLACE if line in ENDS and name in ENDS else EXTREME
                yield Rule(
                    f"the {name} {unit} of the {line} line", sort, _of_line(pick, unit, take)
                )


def _of_line(pick: Take, unit: str, take: Take) -> Callable[[Units], str | None]:
    def said(of: Units) -> str | None:
        line = pick(of["line"]) if len(of["line"]) > 1 else None
        return None if line is None else take((NUMBER if unit == "number" else WORD).findall(line))

    return said


SIMPLE, PAIRED = tuple(_simple()), tuple(_paired())


def copy_of(name: str) -> Rule:
    """The rule that hands in what stands in a field."""
    return Rule(
        f"the copy of {name}", COPY, lambda of: next(iter(of.get(f"copy:{name}", ())), None)
    )


def units_of(text: str, fields: Mapping[str, str] = MappingProxyType({})) -> Units:
    """What the rules take from; items are the things of the longest row."""
    rows = rows_of(text)
    items = max(rows, key=lambda row: len(row.spans)).spans if rows else ()
    options = next((row for row in rows if all(row.leads) and row.leads), Row(()))
    return {
        "number": NUMBER.findall(text),
        "word": WORD.findall(text),
        "line": [line.strip() for line in text.splitlines() if line.strip()],
        "item": [text[slice(*span)] for span in items],
        "option": [text[slice(*span)] for span in options.spans],
        "lead": list(options.leads),
        **{f"copy:{name}": [value] for name, value in fields.items()},
    }


# -- a set of questions --------------------------------------------------------------------------

Coded = np.ndarray[Any, np.dtype[np.int64]]


class Codes:
    """Answers that are the same answer have the same number; nothing is -1."""

    def __init__(self) -> None:
        self._texts: dict[str | None, int] = {None: -1}
        self._plain: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        if text not in self._texts:
            self._texts[text] = self._plain.setdefault(plain(text or ""), len(self._plain))
        return self._texts[text]


def said_by(rules: Sequence[Rule], units: Sequence[Units], codes: Codes) -> Coded:
    """What each rule hands in on each prompt [rules, prompts]."""
    rows = [[codes(rule.said(of)) for of in units] for rule in rules]
    return np.array(rows, dtype=np.int64).reshape(len(rules), len(units))


@dataclass(frozen=True, kw_only=True, eq=False)
class Examined:
    """What each rule hands in on each task, and what is right there: answers as numbers,
    `said` [rules, tasks] with -1 where a rule hands in nothing, `right` [tasks] `UNKNOWN` where
    nobody knows. `chance`: the share of wins that the best rule has by luck, at its 95 % quantile.
    """

    tasks: tuple[str, ...]
    rules: tuple[Rule, ...]
    said: Coded
    right: Coded
    chance: float

    @cached_property
    def known(self) -> int:
        """Tasks whose right answer is known."""
        return int((self.right >= 0).sum())

    @cached_property
    def wins(self) -> Coded:
        """On how many of them each rule is right [rules]."""
        won: Coded = (self.said == self.right).sum(axis=1)
        return won

    @cached_property
    def winning(self) -> tuple[int, ...]:
        """The rules that win more than chance, those first that win most. Of rules that hand in
        the same on every task the first of each sort stands for all; a copy only for itself.
        """
        if self.known < FEWEST:
            return ()
        order = sorted(
            np.flatnonzero(self.wins > self.chance * self.known), key=lambda n: (-self.wins[n], n)
        )
        seen: dict[bytes, dict[str, int]] = {}
        for number in order:
            same = seen.setdefault(self.said[number].tobytes(), {})
            if not same or self.rules[number].sort != COPY:
                same.setdefault(self.rules[number].sort, int(number))
        return tuple(number for same in seen.values() for number in same.values())

    @property
    def sentence(self) -> str:
        """What one line of code wins on most of these tasks; empty where none does."""
        best = [n for n in self.winning if 2 * self.wins[n] > self.known]
        if not best:
            return ""
        words, wins = self.rules[best[0]].words, self.wins[best[0]]
        alike = [self.rules[n].words for n in best[1:] if self.wins[n] == wins]
        told = (
            f"{capital(words)} of the prompt is the answer on {wins:,} of"
            f" {plural(self.known, 'task')}"
        )
        if alike:
            told += f"; so is {' and '.join(alike[:3])}; nothing in this set tells them apart"
        return f"{told}. If that is not what is asked, shuffle the lists or ask otherwise."


def examine(
    prompts: Mapping[str, str],
    answers: Mapping[str, str],
    fields: Mapping[str, Mapping[str, str]] | None = None,
) -> Examined:
    """The table on these prompts, by task; `answers`: the right ones, as far as they are known;
    `fields`: parts of the prompts by name, whose copies are rules too. What wins next to nothing
    on a thousand of many tasks is left out.
    """
    tasks, codes, parts = tuple(sorted(prompts)), Codes(), fields or {}
    units = [units_of(prompts[task], parts.get(task, {})) for task in tasks]
    right = np.array([codes(answers.get(task)) for task in tasks], dtype=np.int64)
    right[right < 0] = UNKNOWN
    names = sorted({name for of in parts.values() for name in of})
    rules = (*SIMPLE, *PAIRED, *map(copy_of, names))
    known = np.flatnonzero(right >= 0)
    some = known[
        np.unique(np.linspace(0, max(len(known) - 1, 0), SCREENED).astype(int))[: len(known)]
    ]
    tried = said_by(rules, [units[n] for n in some], codes)
    stream = np.random.default_rng(0)
    most = [
        (tried == stream.permutation(right[some])).mean(axis=1).max() if len(some) else 1.0
        for _ in range(PERMUTATIONS)
    ]
    left = (tried == right[some]).mean(axis=1) > WORTH if len(some) else np.zeros(len(rules), bool)
    kept = tuple(rule for rule, worth in zip(rules, left, strict=True) if worth)
    return Examined(
        tasks=tasks,
        rules=kept,
        said=said_by(kept, units, codes),
        right=right,
        chance=float(np.quantile(most, 0.95)),
    )
