"""Heredocs are lifted out of a command line before it is parsed.

1. The text is walked once, with the quotes, substitutions and comments that
   hide a `<<` from the shell.
2. A body is taken out, and its operator becomes `< NAME`, a plain input that
   any grammar of the shell knows.

What was lifted cannot confuse the parser (a body may hold anything), and the
parser has less to read. Several heredocs in one line, and heredocs within
`"$(cat <<EOF ...)"`, are found; a heredoc that is never closed runs to the end,
as in the shell.
"""

import re
from typing import NamedTuple

_WORD = r"(?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|<>()'\"\\`$])+"
_OPEN = re.compile(
    r"\\.|\$'(?:\\.|[^'\\])*'?|'[^']*'?|\(\(|\$\(\(|[$<>]?\(|\)|\"|`|<<<|<<(?P<tabs>-?)["
    rf" \t]*(?P<word>{_WORD})|\n"
    r"|(?:^|(?<=[\s;&|(]))#[^\n]*",
    re.S,
)
_QUOTED = re.compile(r"\\.|\"|\$\(|`", re.S)
_COUNT = re.compile(r"\)\)|\(")
_NAME = "__heredoc_{}__"
NAMED = re.compile(r"__heredoc_(\d+)__")
_INPUT = re.compile(r"< __heredoc_(\d+)__ ?")


class Heredoc(NamedTuple):
    """One heredoc: the operator as written (`<<'EOF'`), and what it feeds in."""

    operator: str
    body: str


class Lifted(NamedTuple):
    """A command line without its heredocs' bodies."""

    text: str
    heredocs: tuple[Heredoc, ...]

    def written(self, text: str) -> str:
        """A part of `text` with the operators as they were written."""
        return _INPUT.sub(self._operator, text).strip() if self.heredocs else text.strip()

    def _operator(self, found: re.Match[str]) -> str:
        at = int(found.group(1)[:9])
        return self.heredocs[at].operator if at < len(self.heredocs) else found.group()

    def stdin(self, path: str) -> str | None:
        """What the input `path` holds, where it is a heredoc."""
        found = NAMED.fullmatch(path)
        at = int(found.group(1)[:9]) if found else len(self.heredocs)
        return self.heredocs[at].body if at < len(self.heredocs) else None


def extract_heredocs(text: str) -> Lifted:
    """Take the heredocs out of a command line. Linear in its length."""
    if "<<" not in text:
        return Lifted(text, ())
    scan = _Scan(text)
    scan.run()
    return Lifted("".join(scan.pieces), tuple(scan.heredocs))


class _Scan:
    """One walk over a text: where it stands, in which quotes, and what was lifted so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[str] = []
        self.heredocs: list[Heredoc] = []
        self._inside: list[str] = []  # of `"`, "`", `(` and `((`
        self._waiting: list[
            tuple[str, str, bool]
        ] = []  # operators whose bodies start on the next line

    def run(self) -> None:
        at = done = 0
        while found := self._pattern().search(self.text, at):
            at = found.end()
            if found.lastgroup == "word":
                self.pieces += [
                    self.text[done : found.start()],
                    f"< {_NAME.format(len(self.heredocs) + len(self._waiting))} ",
                ]
                self._waiting.append(
                    (
                        found.group(),
                        re.sub(r"\\(.)|['\"]", r"\1", found.group("word")),
                        bool(found.group("tabs")),
                    )
                )
                done = at
            elif found.group() == "\n" and self._waiting:
                self.pieces.append(self.text[done:at])
                at = done = self._bodies(at)
            else:
                self._turn(found.group())
        self.pieces.append(self.text[done:])
        self._bodies(len(self.text))

    def _pattern(self) -> re.Pattern[str]:
        top = self._inside[-1] if self._inside else ""
        return _QUOTED if top == '"' else _COUNT if top == "((" else _OPEN

    def _turn(self, token: str) -> None:
        """Into or out of quotes, substitutions and counting."""
        top = self._inside[-1] if self._inside else ""
        if token in ('"', "`"):
            self._inside.pop() if top == token else self._inside.append(token)
        elif token in ("((", "$(("):
            self._inside.append("((")
        elif token == "))" or (token == ")" and top == "("):
            self._inside.pop()
        elif token in ("(", "$(", "<(", ">("):
            self._inside.append("(" if top != "((" else "((")

    def _bodies(self, at: int) -> int:
        """Read the bodies that wait, from the start of a line; where the line after them starts."""
        for operator, word, tabs in self._waiting:
            end = re.compile(rf"^{chr(9) + '*' if tabs else ''}{re.escape(word)}$", re.M).search(
                self.text, at
            )
            body = self.text[at : end.start() if end else len(self.text)]
            self.heredocs.append(
                Heredoc(operator, re.sub(r"^\t+", "", body, flags=re.M) if tabs else body)
            )
            at = min(end.end() + 1, len(self.text)) if end else len(self.text)
        self._waiting.clear()
        return at
