"""What a terminal showed, as rows of text: `Screen`.

1. The stream is taken apart into text, control characters and escape sequences. What
   moves within a row (`\r`, backspace, erasing) is done to it; colours and titles go.
2. A row is what stands between two line ends, however often it was wrapped: where the
   width is known, a carriage return goes back to the start of the wrapped part.
3. A clearing of the screen starts a new row, so that nothing of what was shown is lost. What
   a program of the whole screen (an editor, a pager) shows on the other screen is left out.
4. Beside the rows stand what was typed on them, and where the shell edited a line (the
   mark of bracketed paste): signs of a prompt, whatever it looks like.
"""

import re
from dataclasses import dataclass

from forensics.readers.content import UnreadableContent

LONG = 1 << 16  # characters of a row in which text is still put into the middle
MOST_ROWS = 2_000_000
MOST_TYPED, MOST_KEYS = 20, 4000  # lines that are entered on one row, keys of the last one
MOST_COLUMNS = 1000  # that a cursor moves at once
_HELD = re.compile(r"\x1b(?:\[[\d;:?<>=! -/]{0,64}|\][^\x07\x1b\n]{0,4096})?\Z")
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<mark>[?<>=!]?)(?P<numbers>[\d;:]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b(?:\](?:[^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\))?|[PX^_k][^\x1b\n]{0,4096}\x1b\\"
    r"|[ -/]*[0-~])"
    r"|(?P<control>[\x00-\x08\x0a-\x1f\x7f-\x9f])",
)
_EDITED = re.compile(r"\x1b\[\?2004h.{0,100000}?\x1b\[\?2004l", re.S)
_WRAP = re.compile(r" \r(?=[^\r\n\x1b])")  # how a line that is edited goes on in the next row
_OTHER_SCREEN = ("47", "1047", "1049")
_EDITING = "2004"
_PASTED = re.compile(r"\x1b\[20[01]~")


@dataclass(slots=True)
class ShownRow:
    """One row. `typed`: the lines that were entered while the cursor stood on it. `edited`:
    whether the shell said that a line is edited here.
    """

    text: str = ""
    typed: tuple[str, ...] = ()
    edited: bool = False


class Screen:
    """The rows that a stream shows. `width`: in columns, `None` where the log does not say it.
    Raises `UnreadableContent` for too many rows.
    """

    def __init__(self, width: int | None = None) -> None:
        self.width = width if width and width > 1 else None
        self._rows = [ShownRow()]
        self._pieces: list[str] = []  # of the row at the cursor
        self._length = self._row = self._column = 0
        self._full = self._away = False
        self._held = self._keys = ""

    def rows(self) -> list[ShownRow]:
        """All rows so far."""
        self._store()
        return self._rows

    def show(self, data: str) -> None:
        """More of what the terminal printed; an escape sequence that breaks off waits for more."""
        data, self._held = self._held + data, ""
        if cut := _HELD.search(data, max(0, len(data) - 5000)):
            data, self._held = data[: cut.start()], data[cut.start() :]
        if self.width is None and "\x1b[?2004" in data:
            data = _EDITED.sub(lambda found: _WRAP.sub("", found[0]), data)
        for token in _TOKEN.finditer(data):
            if token["text"]:
                self._put(token["text"])
            elif token["final"]:
                self._sequence(token["mark"], token["numbers"], token["final"])
            elif token["control"]:
                self._control(token["control"])

    def type(self, keys: str) -> None:
        """What was typed: lines that are entered are put down at the row of the cursor."""
        first, *others = re.split(r"[\r\n]", keys)
        *lines, last = [self._keys + first, *others]
        self._keys = last[-MOST_KEYS:]
        row = self._rows[self._row]
        row.typed += tuple(map(_without_edits, lines[: MOST_TYPED - len(row.typed)]))

    def _control(self, sign: str) -> None:
        if self._away:
            return
        if sign in "\n\x0b\x0c":
            self._go(self._row + 1)
        elif sign == "\r":
            width = self.width or max(self._length, self._column) + 1
            wrapped = self._column - 1 if self._full and self._column else self._column
            self._column, self._full = wrapped // width * width, False
        elif sign == "\b":
            self._column, self._full = max(0, self._column - 1), False

    def _put(self, text: str) -> None:
        if self._away:
            return
        if self._column == self._length:
            self._pieces.append(text)
            self._length += len(text)
        elif self._roomy():
            line = self._line().ljust(self._column)
            end = self._column + len(text)
            self._set(line[: self._column] + text + line[end:])
        else:
            self._pieces.append(text)
            self._length = len(text)
        self._column = min(self._column + len(text), self._length)
        self._full = bool(self.width) and self._column % (self.width or 1) == 0

    def _sequence(self, mark: str, numbers: str, final: str) -> None:
        if mark == "?" and final in "hl":
            self._mode(numbers.split(";"), final == "h")
        elif mark or self._away or final == "m":
            return
        count = min(int(numbers) if numbers.isdecimal() and len(numbers) < 6 else 1, MOST_COLUMNS)
        if final in "AF":
            self._go(max(0, self._row - count), self._column if final == "A" else 0)
        elif final in "BE":
            self._go(min(self._row + count, len(self._rows) - 1), self._column)
        elif final in "CD":
            self._column = max(0, self._column + (count if final == "C" else -count))
        elif final == "G":
            width = self.width or LONG
            self._column = self._column // width * width + count - 1
        elif final in "Hf" or (final == "J" and numbers in ("2", "3")):
            self._go(len(self._rows) - 1)
            if self._length:
                self._go(len(self._rows))
        elif final in "JKPX@" and self._roomy():
            self._erase(final, numbers, count)
        self._full = False

    def _mode(self, modes: list[str], on: bool) -> None:
        if any(mode in _OTHER_SCREEN for mode in modes):
            self._away = on
        if _EDITING in modes and on and not self._away:
            self._rows[self._row].edited = True

    def _erase(self, final: str, numbers: str, count: int) -> None:
        line, at = self._line(), self._column
        if final == "P":
            self._set(line[:at] + line[at + count :])
        elif final == "@":
            self._set(line[:at].ljust(at) + " " * count + line[at:])
        elif final == "X":
            self._set(line[:at] + " " * len(line[at : at + count]) + line[at + count :])
        elif numbers in ("", "0"):
            self._set(line[:at])
            if final == "J":
                del self._rows[self._row + 1 :]
        elif final == "K":
            self._set(" " * len(line[: at + 1]) + line[at + 1 :] if numbers == "1" else "")

    def _roomy(self) -> bool:
        """Whether a row may be changed within; one that is too long is ended instead."""
        if max(self._length, self._column) <= LONG:
            return True
        self._go(len(self._rows))
        return False

    def _go(self, row: int, column: int = 0) -> None:
        self._store()
        if row == len(self._rows):
            if row == MOST_ROWS:
                raise UnreadableContent(f"the terminal shows more than {MOST_ROWS:,} rows")
            self._rows.append(ShownRow())
        self._row, self._column, self._full = row, column, False
        self._set(self._rows[row].text)

    def _line(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _set(self, line: str) -> None:
        self._pieces, self._length = [line], len(line)

    def _store(self) -> None:
        self._rows[self._row].text = self._line()


def _without_edits(keys: str) -> str:
    """A line that was typed, less what was taken back while typing; `""` where keys moved in it,
    completed it or fetched another one, so that nobody knows it.
    """
    kept: list[str] = []
    for sign in _PASTED.sub("", keys):
        if sign in "\x7f\b":
            del kept[-1:]
        elif sign in "\x15\x03":
            kept.clear()
        elif sign.isprintable():
            kept.append(sign)
        else:
            return ""
    return "".join(kept).strip()
