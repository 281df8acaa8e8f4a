"""Text of languages with braces as words, literals and nested brackets.

1. Comments are left away; strings are one token each, whatever their quotes.
2. Brackets nest. One that is never opened ends what the text began within (a hunk may begin
   anywhere); one that is never closed ends with the text.
3. Statements end with a semicolon, with a block, and in some languages with the line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LINES = frozenset({"js", "go", "kt"})  # languages whose statements end with the line
LANGUAGES = {
    "js": ("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue"),
    "go": ("go",),
    "kt": ("kt", "kts", "scala", "swift", "groovy"),
    "java": ("java", "cs", "php"),
    "rust": ("rs",),
    "c": ("c", "cc", "cpp", "cxx", "h", "hpp", "hh", "m", "mm"),
}
CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_STRING = {
    "rust": r'b?r(?P<hash>#*)".*?"(?P=hash)|b?"(?:[^"\\]|\\.)*"'
    r"|b?\'(?:[^\'\\\n]|\\[^\'\n]+|\\\')\'",
    "js": r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`",
    "go": r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)[^'\n]{0,10}'|`[^`]*`",
    "c": r"u?8?L?R\"(?P<mark>[^()\s]{0,16})\(.*?\)(?P=mark)\""
    r"|L?\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)[^'\n]{0,10}'",
    "": r"\"\"\".*?\"\"\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'",
}
_REST = (
    r"(?P<number>\d[\d_]*(?:'\d+)*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?\w*)"
    r"|(?P<word>@?[A-Za-z_$][\w$]*(?:!(?![=]))?)"
    r"|(?P<mark_>=>|->|::|:=|\?\.|[!=]==?|<=|>=|&&|\|\||\.\.\.?|<<|[^\s\w])"
)
_TOKENS = {
    name: re.compile(
        (r"(?P<line>^[ \t]*\#[^\n]*(?:\\\n[^\n]*)*)|" if name == "c" else "")
        + r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
        + rf"|(?P<string>{_STRING.get(name, _STRING[''])})|{_REST}",
        re.S | re.M,
    )
    for name in LANGUAGES
}
_REGEX = re.compile(r"/(?![*/])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
_STARRED = re.compile(r"^\s*\*(?:[ /].*)?$", re.M)
_GOES_ON = frozenset({*".,=+-*/?:(|&@", "&&", "||", "=>", "->", "::", ":=", "?.", "==", "!="})
_BEGINS = frozenset(["!", "*", "&", "-", "@", "#", "[", "{", "("])
_AFTER_BLOCK = frozenset({"else", "catch", "finally", "except"})
_CONTROL = frozenset(
    {
        "if", "else", "for", "while", "do", "try", "switch", "match", "select", "loop", "unsafe",
        "class", "interface", "enum", "record", "struct", "impl", "mod", "namespace", "trait",
        "object", "fn", "func", "fun", "def", "function", "extern", "synchronized", "foreach",
    }
)  # fmt: skip
_MODIFIERS = frozenset(
    {"public", "private", "protected", "static", "final", "abstract", "async", "export", "default"}
    | {"pub", "inline", "constexpr", "virtual", "override", "open", "internal", "suspend", "native"}
)


@dataclass(slots=True)
class Token:
    """`kind`: word, string, number, mark, line (of the preprocessor), or group, whose `text`
    is the opening bracket. `fresh`: a line begins before it.
    """

    kind: str
    text: str
    fresh: bool = False
    items: list["Token"] = field(default_factory=list)

    def opens(self, bracket: str) -> bool:
        """Whether it is a group of this bracket."""
        return self.kind == "group" and self.text == bracket


def language_of(path: str) -> str:
    """The kind of language, empty where it is none of these."""
    end = path.rsplit(".", 1)[-1].lower()
    return next((name for name, ends in LANGUAGES.items() if end in ends), "")


def flat(text: str, language: str) -> Iterator[Token]:
    """The tokens in order; brackets are marks."""
    text = _STARRED.sub("", text)
    at = 0
    fresh, last = True, ""
    pattern = _TOKENS[language]
    while at < len(text):
        if text[at].isspace():
            fresh = fresh or text[at] == "\n"
            at += 1
            continue
        found = None
        if language == "js" and text[at] == "/" and not re.match(r"[\w)\]\"'`]", last[-1:]):
            found = _REGEX.match(text, at)
        kind = "string"
        if found is None:
            found = pattern.match(text, at)
            kind = (found.lastgroup or "string") if found else "comment"
        if found is None:
            at += 1
            continue
        kind = {"hash": "string", "mark": "string", "mark_": "mark"}.get(kind, kind)
        at = found.end()
        if kind != "comment":
            yield Token(kind, found[0].strip(), fresh)
            fresh, last = False, found[0]
        fresh = fresh or (kind in ("comment", "line") and "\n" in found[0])


def tree(text: str, language: str) -> list[Token]:
    """Nested. A mark `end` stands where a bracket closes that the text did not open."""
    top: list[Token] = []
    open_groups: list[Token] = []
    for token in flat(text, language):
        here = open_groups[-1].items if open_groups else top
        if token.kind == "mark" and token.text in CLOSED_BY:
            group = Token("group", token.text, token.fresh)
            here.append(group)
            open_groups.append(group)
        elif token.kind == "mark" and token.text in ")]}":
            fitting = [i for i, g in enumerate(open_groups) if CLOSED_BY[g.text] == token.text]
            if fitting:
                del open_groups[fitting[-1] :]
            elif not open_groups:
                top.append(Token("mark", "end", True))
        else:
            here.append(token)
    return top


def balance(text: str, language: str) -> Counter[str]:
    """How many more brackets of each kind are opened than closed."""
    found: Counter[str] = Counter()
    for token in flat(text, language):
        if token.kind == "mark":
            if token.text in CLOSED_BY:
                found[token.text] += 1
            elif token.text in ")]}":
                found["([{"[")]}".index(token.text)]] -= 1
    return found


def written(tokens: Sequence[Token]) -> str:
    """The text of tokens, formatted one way."""
    text = ""
    last: Token | None = None
    for at, token in enumerate(tokens):
        if token.text == "," and at + 1 == len(tokens):
            break
        if token.kind == "group":
            new = token.text + written(token.items) + CLOSED_BY[token.text]
        else:
            new = literal(token) if token.kind == "string" else token.text
        wordy = last is not None and last.kind in ("word", "number", "string")
        if text and (
            (wordy and token.kind in ("word", "number", "string")) or _spaced(token, last)
        ):
            text += " "
        text += new
        last = token
    return text


def _spaced(token: Token, last: Token | None) -> bool:
    both = {token.text, last.text if last and last.kind == "mark" else ""}
    return bool(
        both & {"==", "!=", "===", "!==", "<=", ">=", "&&", "||", ",", "=", ":=", "=>"}
    ) and (token.text != ",")


def literal(token: Token) -> str:
    """A string with one kind of quotes."""
    text = token.text
    found = re.match(r"[A-Za-z]{0,3}#*(\"\"\"|[\"'`])(.*)\1#*$", text, re.S)
    return f'"{found[2].strip().strip(chr(34))}"' if found else text


def parted(items: Sequence[Token], mark: str = ",") -> list[list[Token]]:
    """Items between marks, none of them empty."""
    parts: list[list[Token]] = [[]]
    for item in items:
        if item.kind == "mark" and item.text == mark:
            parts.append([])
        else:
            parts[-1].append(item)
    return [part for part in parts if part]


def every(tokens: Sequence[Token]) -> Iterator[Token]:
    """All tokens, also those within groups, in order."""
    for token in tokens:
        yield token
        if token.kind == "group":
            yield from every(token.items)


def groups_in(tokens: Sequence[Token]) -> list[tuple[Token | None, Token]]:
    """Each group with what stands before it."""
    found: list[tuple[Token | None, Token]] = []
    for at, token in enumerate(tokens):
        if token.kind == "group":
            found.append((tokens[at - 1] if at else None, token))
            found += groups_in(token.items)
    return found


def statements(items: Sequence[Token], language: str) -> list[list[Token]]:
    """The statements of a block, each with its blocks."""
    found: list[list[Token]] = [[]]
    for at, token in enumerate(items):
        now = found[-1]
        waits = language == "go" and now and now[0].text in ("if", "for", "switch")
        if token.kind == "mark" and token.text == ";" and not waits:
            found.append([])
            continue
        if token.kind == "line" or token.text == "end":
            found += [[token], []]
            continue
        if now and token.fresh and language in LINES and not _continues(now[-1], token):
            found.append([])
            now = found[-1]
        now.append(token)
        after = items[at + 1] if at + 1 < len(items) else None
        goes_on = after and (after.text in _AFTER_BLOCK or (language == "go" and not after.fresh))
        if token.opens("{") and _is_block(now[:-1]) and not goes_on:
            found.append([])
    return [statement for statement in found if statement]


def _continues(last: Token, token: Token) -> bool:
    if last.kind == "mark" and last.text in _GOES_ON:
        return True
    if last.kind == "word" and last.text.startswith("@"):
        return True
    if token.kind == "word":
        return last.opens("{") and token.text in _AFTER_BLOCK
    return token.kind == "mark" and token.text not in _BEGINS


def plain(head: Sequence[Token]) -> list[Token]:
    """A head of a statement without annotations, attributes and modifiers."""
    at = 0
    while at < len(head):
        token, after = head[at], head[at + 1] if at + 1 < len(head) else None
        if token.text in _MODIFIERS and token.kind == "word":
            at += 1
        elif (token.text.startswith("@") and token.kind == "word") or token.text == "#":
            at += 1
            while at < len(head) and head[at].text == ".":
                at += 2
            if after is not None and at < len(head) and head[at].kind == "group":
                at += 1
        else:
            break
    return list(head[at:])


def _is_block(head: Sequence[Token]) -> bool:
    head = plain(head)
    if not head:
        return True
    if head[0].text in _CONTROL and head[0].kind == "word":
        return True
    if any(t.kind == "mark" and t.text in ("=", ":=", "=>") for t in head):
        return False
    if head[0].text in ("return", "new", "throw", "await", "const", "let", "var"):
        return False
    ends = [i for i, t in enumerate(head) if t.opens("(")]
    return bool(ends) and all(
        t.kind == "word" or t.text in (",", "::", "->", ".", "&", "<", ">", ":", "?")
        for t in head[ends[-1] + 1 :]
    )
