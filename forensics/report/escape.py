"""Whatever a model, a log or a file name says is data: made harmless for a
terminal, for HTML, for Markdown.

Nothing is dropped. What cannot be shown safely (control codes and so every ANSI
escape, C1 codes, marks that change the direction of writing or that nobody
sees, lone surrogates, unassigned code points) is spelled out as Python would
write it, for example `\\x1b` or `\\u202e`.
"""

import re
from typing import Any

from markupsafe import Markup, escape

_PUNCTUATION = re.compile(r"([\\`*_\[\]<>|~&#!$^{}])")
_LEADING = re.compile(r"^(\d*)([-+=.)])(?=\s|\2|$)")
_AUTOLINK = re.compile(r"(?<=www)\.|:(?=//)|(?<=mailto):|@", re.IGNORECASE)


def printable(text: Any, *, breaks: bool = True) -> str:
    """The text with everything that could drive a terminal spelled out.

    Line breaks stay (`breaks=False`: they become spaces), tabs become four
    spaces and other kinds of space an ordinary one.
    """
    plain = _plain(text, breaks)
    return (
        plain
        if plain.isprintable()
        else plain.translate({ord(c): _spelled(c) for c in _hidden(plain)})
    )


def visible_html(text: Any, *, breaks: bool = True) -> Markup:
    """The same for HTML: escaped, and what is spelled out stands in a `<samp
    class="hidden-mark">`.
    """
    plain = _plain(text, breaks)
    marks = {ord(c): f'<samp class="hidden-mark">{_spelled(c)}</samp>' for c in _hidden(plain)}
    return Markup(str(escape(plain)).translate(marks))


def ticked_html(text: Any) -> Markup:
    """A sentence for HTML in which what stands between `backticks` is shown as code."""
    pieces = str(text).split("`")
    if len(pieces) % 2 == 0:
        return visible_html(text, breaks=False)
    shown = (visible_html(piece, breaks=False) for piece in pieces)
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(shown)
    )


def cut(text: str, longest: int) -> tuple[str, int]:
    """The first `longest` characters, and how many were left out."""
    return text[:longest], max(len(text) - longest, 0)


def short(text: Any, longest: int = 160) -> str:
    """One printable line of at most `longest` characters."""
    line = printable(str(text)[: 4 * longest], breaks=False).strip()
    return (
        line
        if len(line) <= longest and len(str(text)) <= 4 * longest
        else line[: longest - 1] + "…"
    )


def markdown_line(text: Any, longest: int = 600) -> str:
    """Foreign text as one line of Markdown that holds no markup, no HTML and no
    link, in a table cell too.
    """
    line = " ".join(short(text, longest).split())
    line = _LEADING.sub(r"\1\\\2", _PUNCTUATION.sub(r"\\\1", line))
    return _AUTOLINK.sub(
        lambda found: "`@`" if found.group() == "@" else f"\\{found.group()}", line
    )


def markdown_fence(text: str) -> str:
    """Foreign text as a code fence that nothing in it can close."""
    plain = printable(text)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{plain}\n{fence}"


def _plain(text: Any, breaks: bool) -> str:
    plain = str(text).replace("\r\n", "\n").replace("\t", "    ")
    return plain if breaks else plain.replace("\n", " ")


def _hidden(text: str) -> list[str]:
    return [] if text.isprintable() else [c for c in set(text) if c != "\n" and not c.isprintable()]


def _spelled(character: str) -> str:
    """A kind of space as a space, anything else as its Python escape."""
    return " " if character in _SPACES else ascii(character)[1:-1]


_SPACES = frozenset(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
