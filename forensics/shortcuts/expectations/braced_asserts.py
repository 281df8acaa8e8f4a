"""What an assertion of a language with braces demands: its literals, its names, its tolerance,
and the rows of tables. What an assertion only says (a message) is left away.
"""

import re
from collections.abc import Sequence

from forensics.shortcuts.expectations.brackets import Token, every, literal, parted, written
from forensics.shortcuts.expectations.demands import Demand, number, words
from forensics.shortcuts.vocabulary import Vocabulary

_FORMS = Vocabulary(__name__)
_OPPOSITES = {"!=": "==", "==": "!=", "===": "!=", "!==": "==",
              "<": ">=", ">": "<=", "<=": ">", ">=": "<"}  # fmt: skip
_OBJECTS = ("assert", "require", "expect", "Assertions")


def opened(tokens: Sequence[Token]) -> list[Token]:
    """Without the brackets around all of it."""
    return tokens[0].items if len(tokens) == 1 and tokens[0].opens("(") else list(tokens)


def opposite(tokens: Sequence[Token]) -> str:
    """What a condition that fails the test demands."""
    tokens = opened(tokens)
    if tokens and tokens[0].text == "!":
        equal = " == true" if re.search(r"Equal|equals", written(tokens)) else ""
        return written(tokens[1:]) + equal
    compares = [t.kind == "mark" and t.text in _OPPOSITES for t in tokens]
    if not any(compares):
        return "not " + written(tokens)
    return written(
        [
            Token("mark", _OPPOSITES[t.text], t.fresh) if turned else t
            for t, turned in zip(tokens, compares, strict=True)
        ]
    )


def is_name(token: Token) -> bool:
    """Whether a word names something."""
    return token.kind == "word" and token.text not in _FORMS.words["no_names"]


def chain_end(tokens: Sequence[Token], at: int) -> int:
    """Where the chain that begins here ends: names, dots, calls."""
    end = at + 1
    while is_name(tokens[at]) and end < len(tokens):
        token, before = tokens[end], tokens[end - 1].text
        if token.text in (".", "::", "?.", "->") and end + 1 < len(tokens):
            if token.text == "->" and tokens[end + 1].kind != "word":
                break
            end += 2
        elif _is_argument(token, before):
            end += 1
        else:
            break
    return end


def _is_argument(token: Token, before: str) -> bool:
    if token.kind == "group":
        called = token.text in "([" and not (token.fresh and token.text == "[")
        return called or before.endswith("!")
    return token.kind == "string" and token.text.startswith("`") and before == "each"


def asserting(chain: Sequence[Token]) -> int | None:
    """Where the name of the assertion stands in a chain, if it has one."""
    for at, token in enumerate(chain):
        if token.kind != "word" or _FORMS.no_demand.match(token.text):
            continue
        after = chain[at + 1] if at + 1 < len(chain) else None
        called = after is not None and after.kind == "group"
        if token.text == "should" and after is not None:
            only_set_up = after.opens("(") and not after.items and at + 2 == len(chain)
            return None if only_set_up else at
        if _FORMS.asserts.match(token.text) and called:
            return at
        if at and called and _FORMS.methods.match(token.text):
            first, fails = chain[0].text, token.text.startswith(("Error", "Fail"))
            if first in _OBJECTS or (first in _FORMS.words["objects"] and not fails):
                return at
    return None


def demand_of(chain: Sequence[Token], at: int, guards: tuple[str, ...]) -> Demand:
    """What a chain demands whose assertion stands at a place."""
    kept: list[Token] = []
    skip = False
    for i, token in enumerate(chain):
        if token.kind == "word" and _FORMS.says.match(token.text) and i > at + 1:
            skip = True
            if kept and kept[-1].text == ".":
                kept.pop()
        elif skip and token.kind == "group":
            skip = False
        elif i == at + 1 and token.opens("("):
            kept.append(Token("group", "(", False, _unsaid(chain[at].text, token.items)))
        else:
            kept.append(token)
    return demanded(written(kept), kept, guards)


def _unsaid(name: str, items: Sequence[Token]) -> list[Token]:
    """Arguments without the message."""
    parts = parted(items)
    three, two = _FORMS.three.search(name), _FORMS.two.search(name)
    if not (two or three or _FORMS.one.match(name)):
        return list(items)
    first = int(bool(parts) and written(parts[0]) in ("t", "s.T()", "suite.T()", "tt", "tb"))
    most = 3 if three else 2 if two else 1
    most = 0 if re.match(r"(?i)fail", name) else most
    rest = parts[first:]
    leads = len(rest) == most + 1 and most and rest[0][0].kind == "string"
    if leads and rest[-1][0].kind not in ("string", "number"):
        rest = rest[1:] if name.startswith("assert") and not name.endswith("!") else rest
    while len(rest) > most and any(part[0].kind == "string" for part in rest[most:]):
        rest = rest[:-1]
    joined: list[Token] = []
    for part in [*parts[:first], *rest]:
        joined += [*([Token("mark", ",")] if joined else []), *part]
    return joined


def demanded(
    text: str, tokens: Sequence[Token], guards: tuple[str, ...], compared: bool = False
) -> Demand:
    """What some tokens demand. `compared`: with nothing, as what fails a test is."""
    found = literals_in(tokens)
    if compared:
        found = [one for one in found if one not in ("nil", "null")]
    no_names = _FORMS.words["literals"]
    names = [t.text for t in every(tokens) if t.kind == "word" and t.text not in no_names]
    about = words(names) - _FORMS.words["common"]
    return Demand(text, tuple(found), about, guards, _tolerance(text))


def literals_in(tokens: Sequence[Token]) -> list[str]:
    """The literals of some tokens, in order."""
    found: list[str] = []
    before: Token | None = None
    last: Token | None = None
    for token in every(tokens):
        if token.kind == "string":
            found.append(literal(token))
        elif token.kind == "number":
            alone = before is None or before.kind in ("mark", "group")
            minus = "-" if alone and last is not None and last.text == "-" else ""
            end = r"(?<=\d)_?(?:[fFlLuUdD]|[iu]\d+|usize|f\d+)+$"
            found.append(minus + re.sub(end, "", token.text))
        elif token.kind == "word" and (
            token.text in _FORMS.words["literals"] or _FORMS.error.match(token.text)
        ):
            found.append(token.text)
        before, last = last, token
    return found


def _tolerance(text: str) -> float | None:
    if found := re.search(r"toBeCloseTo\(.*?(?:, ?(\d+))?\)$", text):
        return 10.0 ** -int(found[1] or 2)
    if found := _FORMS.equals_within.search(text):
        return number(found[1]) if text.count(",") > 1 else None
    if found := re.search(r"abs\w*\(.*\)? ?<=? ?([\d.]+(?:[eE]-?\d+)?)", text):
        return number(found[1])
    found = _FORMS.tolerance.search(text) if _FORMS.tolerates.search(text) else None
    return number(found[1]) if found else None


def rows_in(group: Token, before: Token | None) -> list[tuple[str, ...]]:
    """The items of each row of a table."""
    if group.opens("(") and not (before is not None and _FORMS.tables.search(before.text)):
        return []
    if any(t.kind == "mark" and t.text == ";" for t in group.items):
        return []
    rows = []
    for part in parted(group.items):
        if part[-1].kind != "group" or any(t.text in ("=>", "=", ":=") for t in part):
            continue
        called = part[-1].opens("(") and len(part) > 1
        if called and not _FORMS.row.search(part[-2].text):
            continue
        items = [_unnamed(item) for item in parted(part[-1].items)]
        if len(items) > 1 and any(map(literals_in, items)):
            rows.append(tuple(map(written, items)))
    return rows


def _unnamed(item: list[Token]) -> list[Token]:
    """A field's value, without its name; a point before a name is C's."""
    start = int(item[0].text == ".")
    named = len(item) > start + 2 and item[start].kind in ("word", "string")
    return item[start + 2 :] if named and item[start + 1].text in (":", "=") else item
