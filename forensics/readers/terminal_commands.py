"""The commands in the rows of a terminal, and what each printed: `commands_in`.

1. A row that begins with a prompt (`PROMPTS`) holds a command, and what follows up to
   the next prompt is its output. A prompt that is known by its user and host is found behind
   output, too, that had no line end.
2. Prompts that say little (`$ `, `/app # `: `PLAIN`) count only where no other is there and
   the first row has one. Where a recording says what was typed or that a line was
   edited, any prompt counts, but those of other programs (`OTHERS`).
3. A command goes on over the rows behind it while a here document, a quote or a line end is
   open, with the shell's `> ` in front of them or without.
4. A command that was given up (`^C`) was not run.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from forensics.actions.tool_calls import command_line
from forensics.readers.terminal_screen import ShownRow

_FRONT = (
    r"(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,6})?Z?\]? )?"
    r"(?:\([\w./ :~-]{1,60}\) ){0,3}"  # (venv)
)
_USER = r"[\w.+-]{1,64}@[\w.-]{1,100}"
PROMPTS = {
    "user@host:dir$": rf"{_USER}:[^\s$#][^\n$#]{{0,200}}?[$#]",
    "[user@host dir]$": rf"\[{_USER}[ :][^\]\n]{{1,200}}\] ?[$#%]",
    "user@host /dir $": rf"{_USER} [~/]\S{{0,200}}(?: \([^)\n]{{1,60}}\))? ?[$#%>]",
    "user@host dir $": rf"{_USER} [\w.-]{{1,80}} ?[$#%]",
    "sh-5.1$": r"(?:ba|z|k|da|a)?sh-\d[\d.]{0,8}[a-z]?[$#]",
    "host:dir user$": r"[\w.-]{1,60}:[~/\w]\S{0,200} [\w.-]{1,40}\$",
    "➜  dir": r"➜ {1,3}\S{1,100}(?: git:\([^)\n]{1,80}\))?(?: ✗)?",
    "└─$": r"└─[$#]",
    "PS C:\\>": r"(?:PS )?(?:[A-Z]:\\|(?<=PS )/)[^\n>]{0,200}>",
}
PLAIN = {
    "$": r"\$",
    "❯": r"[❯»λ%]",
    "/dir #": r"[~/][\w./~+-]{0,200} ?(?:\([\w./-]{1,60}\) ?)?[$#%>❯]",
    "host$": r"[\w.-]{1,40}(?::[~/]?[\w./-]{0,100})? ?[$%]",
}
ENDS = r"[$#%>❯»λ➜✗]"
OTHERS = re.compile(  # of interpreters, debuggers and data bases; of a command that goes on
    r"(?:>>>|\.\.\.|In \[\d+\]:|\((?:gdb|lldb|[Pp]db|i?pdb)\)|mysql>|MariaDB \[.*\]>|sqlite>"
    r"|[\w.]+[=\-*!('\"][>#]|irb.*[>*\"']|pry.*>|node>|ghci>|julia>|ftp>|redis.*>|lua>|>|php >)\s*"
)
_GOES_ON = re.compile(
    r"(?:(?:[bd]?quote|heredoc|pipe|cmdand|cmdor|cursh|subsh|for|while|then|else|if)"
    r"(?: (?:[bd]?quote|heredoc|pipe|cmdand|cmdor|cursh|subsh|for|while|then|else|if))*)?>(?: |\Z)"
)
_GLUED = re.compile(r"[^>\n]{1,40}> ")  # behind what was echoed too early
_KNOWN = re.compile(rf"{_FRONT}(?:{'|'.join(PROMPTS.values())})(?: |\Z|(?<=[\w\\]>)(?=\w))")
_PLAIN = [re.compile(rf"{_FRONT}{shape}(?: |\Z)") for shape in PLAIN.values()]
_UPPER = re.compile(rf"┌──|{_USER} MINGW\d\d ")  # the first row of a prompt that has two
_ABOVE = re.compile(rf"Script started on |Last login: |asciinema: |{_UPPER.pattern}")
_ANY = re.compile(rf"[^\n]{{0,200}}?{ENDS}(?: |\Z)")
_TYPED = re.compile(rf"[^\n]{{0,200}}{ENDS} ?\Z")
_HOST = re.compile(_USER)
_HEREDOC = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([\w.!-]+)'|\"([\w.!-]+)\"|\\?(\w[\w.!-]*))")
_WAITS = ("\\", "|", "&&", "{", "(", " do", " then", " else")
_BLOCKS = re.compile(
    r"(?:^|[;&|][ \t]*|\b(?:do|then|else) )(for|while|until|if|case|done|fi|esac)\b"
)
_QUOTES = re.compile(r"\\.|(?:^|(?<=[ \t\n;]))#[^\n]*|['\"`]", re.S)
MOST_GOING_ON = 20_000  # rows of one command
MOST_HEREDOCS = 20  # of one row
MOST_FRONTS = 50  # prompts that are looked for behind output
LONGEST_FRONT = 4000  # characters of output in front of a prompt


class Command(NamedTuple):
    """`text`: the command as it was run, without prompts. `output`: what came back."""

    text: str
    output: str


def commands_in(rows: Sequence[ShownRow]) -> list[Command]:
    """Every command in the rows that was run, in order."""
    shell = _Shell(rows)
    shell.begin()
    return shell.commands()


Span = tuple[int, int]


class _Shell:
    """The rows with the prompts that count in them. `plain`: the one shape of `PLAIN` that does,
    where no other is there.
    """

    def __init__(self, rows: Sequence[ShownRow]) -> None:
        self.rows = rows
        self.plain: re.Pattern[str] | None = None
        self._behind: re.Pattern[str] | None = None  # a prompt behind output
        known = Counter(found[0] for row in rows if (found := _KNOWN.match(row.text)))
        if fronts := _fronts(known):
            self._behind = re.compile(rf"(?:\([\w./ :~-]{{1,60}}\) )?(?:{fronts})(?: |\Z)")
        self._known = bool(known)
        if not known and not any(row.edited for row in rows):
            shown = (row.text for row in rows if row.text.strip())
            first = next((text for text in shown if not _ABOVE.match(text)), "")
            self.plain = next((shape for shape in _PLAIN if shape.match(first)), None)
        self._prompts: list[Span | None] = [self._prompt(row) for row in rows]
        self._seen()

    def first(self) -> int | None:
        """The row of the first prompt."""
        return next((at for at, found in enumerate(self._prompts) if found is not None), None)

    def begin(self) -> None:
        """Take the first row for a command where it is one and prompts follow: a recording may
        begin behind its first prompt, and not say what was typed.
        """
        shown = next((at for at, row in enumerate(self.rows) if row.text.strip()), 0)
        first = self.first()
        if first is not None and shown < first:
            line = self.rows[shown].text.strip()
            if command_line("recording", {"command": line}) == line:
                self._prompts[shown] = (0, 0)

    def commands(self) -> list[Command]:
        """Every command, in order."""
        found: list[Command] = []
        at = self.first()
        while at is not None and at < len(self.rows):
            span = self._prompts[at]
            assert span is not None
            row = self.rows[at]
            shown = row.text[span[1] :]
            typed = row.typed[0] if row.typed and shown.strip() else ""
            command, after = self._whole(at, typed or shown)
            end = after
            while end < len(self.rows) and self._prompts[end] is None:
                end += 1
            output = [row.text.rstrip() for row in self.rows[after:end]]
            if output and _UPPER.match(output[-1]):
                output.pop()
            if end < len(self.rows) and (begun := self._prompts[end]) and begun[0]:
                output.append(self.rows[end].text[: begun[0]])
            if command.strip() and not command.rstrip().endswith("^C"):
                found.append(Command(command.strip(), "\n".join(output).strip("\n")))
            at = end
        return found

    def _prompt(self, row: ShownRow) -> Span | None:
        """Where a prompt begins and ends in a row; `None`: it has none."""
        text = row.text
        if not text:
            return None
        behind = self._behind and self._behind.search(text[:LONGEST_FRONT])
        if behind and behind.start() and not text[behind.start() - 1].isspace():
            return behind.span()
        found = _KNOWN.match(text) or (self.plain and self.plain.match(text))
        if found:
            return found.span()
        if behind:
            return behind.span()
        if self._known:
            return None
        if row.edited and (found := _ANY.match(text)) and not OTHERS.match(text):
            return found.span()
        for typed in row.typed:
            front = text.rstrip().removesuffix(typed) if typed else text
            if front != text.rstrip() and _TYPED.match(front) and not OTHERS.fullmatch(front):
                return 0, len(front)
        return None

    def _seen(self) -> None:
        """A prompt that was told by what was typed is one on every row; a line that was typed
        before any prompt was shown is a command: a recording may begin behind its first prompt.
        """
        if not self._known and not self.plain:
            told = zip(self.rows, self._prompts, strict=True)
            fronts = {row.text[: span[1]].rstrip() for row, span in told if span and row.typed}
            for at, row in enumerate(self.rows):
                if self._prompts[at] is None and row.text.rstrip() in fronts:
                    self._prompts[at] = (0, len(row.text))
        first = self.first()
        for at, row in enumerate(self.rows[:first]):
            if row.text.strip() and row.text.strip() in row.typed:
                self._prompts[at] = (0, 0)

    def _whole(self, at: int, command: str) -> tuple[str, int]:
        """A command with the rows that it goes on over, and the row behind them."""
        lines, after, last = [command], at + 1, command
        opened, depth = _quote(command), _depth(command)
        while after < len(self.rows) and after - at < MOST_GOING_ON:
            if (found := _heredoc(last)) and (body := self._document(after, found)):
                lines += body
                after, last = after + len(body), last[: found.start()]
                continue
            if not (opened or depth > 0 or last.rstrip().endswith(_WAITS)):
                break
            more = self._more(after, opened, depth)
            for row in more:
                opened, depth = _quote(f"\n{row}", opened), depth + _depth(row)
            if not more:
                break
            lines += more
            after, last = after + len(more), more[-1]
        return "\n".join(lines), after

    def _more(self, start: int, opened: str, depth: int) -> list[str]:
        """The rows with which an open command goes on: one behind the shell's `> `, or those
        up to its end, where that comes before the next prompt.
        """
        if (begun := self._goes_on(start)) is not None:
            return [self.rows[start].text.rstrip()[begun:]]
        found: list[str] = []
        for at in range(start, min(len(self.rows), start + MOST_GOING_ON)):
            if self._prompts[at] is not None:
                break
            found.append(self.rows[at].text.rstrip())
            opened, depth = _quote(f"\n{found[-1]}", opened), depth + _depth(found[-1])
            if not opened and depth <= 0:
                return found
        return []

    def _document(self, start: int, opened: re.Match[str]) -> list[str]:
        """The rows of a here document and its last word, without the shell's `> `; none where
        it does not end before the next prompt.
        """
        word = next(filter(None, opened.groups()[1:]))
        for end in range(start, min(len(self.rows), start + MOST_GOING_ON)):
            begun = self._goes_on(end)
            bare = self.rows[end].text.rstrip()[begun:]
            if (bare.lstrip("\t") if opened[1] else bare) == word:
                rows = range(start, end + 1)
                return [self.rows[at].text[begun and (self._goes_on(at) or 0) :] for at in rows]
            if self._prompts[end] is not None and begun is None:
                break
        return []

    def _goes_on(self, at: int) -> int | None:
        """Where the text of a row begins behind the shell's `> `, `None` where it has none."""
        row = self.rows[at]
        found = _GOES_ON.match(row.text) or (row.edited and _GLUED.match(row.text))
        return found.end() if found else None


def _fronts(known: Counter[str]) -> str:
    """Prompts as a pattern, for finding them behind output: of those with a user and a host
    these two and any directory.
    """
    usual = [prompt for prompt, _ in known.most_common(MOST_FRONTS)]
    users = {found[0] for prompt in usual if (found := _HOST.search(prompt))}
    bare = {user for user in users if not any(user.endswith(one) for one in users - {user})}
    shapes = {rf"\[?{re.escape(user)}[: ][^\n$#%]{{0,200}}?[$#%]" for user in bare}
    shapes |= {re.escape(one.strip()) for one in usual if "@" not in one and len(one.strip()) > 4}
    return "|".join(sorted(shapes))


def _heredoc(line: str) -> re.Match[str] | None:
    """The here document that a line opens, but for one that is quoted."""
    for found in islice(_HEREDOC.finditer(line), MOST_HEREDOCS):
        before = line[: found.start()]
        if _quote(before) == "" or "$(" in before:
            return found
    return None


def _depth(line: str) -> int:
    """How many blocks a line opens, less those that it closes."""
    words = _BLOCKS.findall(line)
    return sum(-1 if word in ("done", "fi", "esac") else 1 for word in words)


def _quote(text: str, opened: str = "") -> str:
    """The quote that is open at the end of a text, `""` where none is; `opened`: before it."""
    for found in _QUOTES.finditer(text):
        sign = found[0]
        if opened:
            literal = sign[:1] == "\\" and opened != "'"
            opened = "" if opened in sign and not literal else opened
        elif len(sign) == 1:
            opened = sign
    return opened
