r"""What a script of `sed -i` (or `perl -pi -e 's/a/b/'`) does to a file: `edited_in_place`.

1. A script is read as commands: an address (`12`, `12,14`, `$`, `/text/`, `/a/,/b/`, `!`), then
   `s/a/b/`, `d`, `a`, `i` or `c` with their text. Anything else is not read.
2. A pattern that is plain text, with what its dialect escapes (`\(`, `\.`), anchors, groups and
   simple sets, is put into Python's form. One that repeats within a group is not read, so
   that no text can make it slow.
3. The commands are done on lines of which some may be unknown. A command that is said by
   number needs no text. One that is said by text is *missed* where no known line has it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from forensics.actions.action import Action
from forensics.actions.known_file import KnownFile, unknown

LONGEST = 20_000  # characters of a script
MOST = 200  # commands of a script
LONGEST_LINE = 2_000  # characters of a line that is searched
MOST_WORK = 20_000_000  # steps that all searches of a script may take
LAST = -1
_REPEAT = re.compile(r"(?<!\\)[*+{?]")
_NUMBER = re.compile(r"\d{1,6}")
_SPECIAL_BASIC = "(){}|+?"
_CLASSES = "wWsSbBdDnt"


_OPTIONS = re.compile(r"-[iEres]+|-i\S*|-[Er]i\S*|--in-place(?:=\S*)?|--expression(?:=.*)?", re.S)
_PERL = re.compile(r"-(?:p?i?e?|pi\.\w{1,9}|i\.\w{1,9}|p|w|pie?|ip|0777p?i?e?|0pi?e?)")
_GROUP = re.compile(r"\$\{?(\d)\}?")


def edited_in_place(action: Action, file: KnownFile) -> bool:
    """Do a command line of `sed -i` or `perl -pi` to a file. Whether all of it could be done."""
    script, options = action.content or "", [w for w in action.arguments if w[:1] == "-"]
    if action.program == "perl":
        return _by_perl(script, options, file)
    if not all(map(_OPTIONS.fullmatch, options)):
        return False
    extended = any(re.fullmatch(r"-\w*[Er]\w*", word) for word in options)
    return _done(script, extended, file)


def _by_perl(script: str, options: Sequence[str], file: KnownFile) -> bool:
    letters = "".join(options)
    if not all(map(_PERL.fullmatch, options)) or "p" not in letters or re.search(r"[&@]", script):
        return False
    script = _GROUP.sub(r"\\\1", script)
    if "0" not in letters:
        return _done(script, True, file)
    commands = _Script(script, True).commands() if len(script) <= LONGEST else None
    if commands is None or any(one.name != "s" or not one.plain for one in commands):
        return False
    for one in commands:
        assert one.plain is not None
        file.replace(one.plain[0], one.plain[1], -1 if one.everywhere else 1)
    return True


def _done(script: str, extended: bool, file: KnownFile) -> bool:
    commands = _Script(script, extended).commands() if len(script) <= LONGEST else None
    if commands is None:
        return False
    if not file.whole:
        ends = [end for one in commands for end in (one.first, one.last) if isinstance(end, int)]
        if not file.reach(max([*ends, len(file.after)]) + 1):
            return False
    file.after, missed, is_open = _Pass(commands, file.whole).run(file.after)
    for old, new in missed:
        file.add_part(old, new)
    return not is_open


@dataclass
class _Command:
    first: int | re.Pattern[str] | None
    last: int | re.Pattern[str] | None
    turned: bool
    name: str
    text: str = ""
    pattern: re.Pattern[str] | None = None
    plain: tuple[str, str] | None = None
    everywhere: bool = False


class _Script:
    """A script, read from left to right."""

    def __init__(self, script: str, extended: bool) -> None:
        self._text, self._at, self._extended = script, 0, extended

    def commands(self) -> list[_Command] | None:
        """The commands; `None` where one of them is not read."""
        found: list[_Command] = []
        try:
            while self._skip(" \t\n;"):
                if len(found) >= MOST:
                    return None
                found.append(self._command())
        except (ValueError, IndexError, re.error, RecursionError, OverflowError):
            return None
        return found

    def _skip(self, signs: str) -> bool:
        while self._at < len(self._text) and self._text[self._at] in signs:
            self._at += 1
        return self._at < len(self._text)

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _command(self) -> _Command:
        first, last = self._address(), None
        if first is not None and self._text[self._at] == ",":
            self._at += 1
            last = self._address(first)
        self._skip(" \t")
        turned = self._text[self._at] == "!"
        self._at += turned
        self._skip(" \t")
        name = self._next()
        command = _Command(first, last, turned, name)
        if name == "s":
            self._substitution(command)
        elif name in "aic":
            command.text = self._lines()
        elif name != "d":
            raise ValueError(name)
        return command

    def _address(self, first: int | re.Pattern[str] | None = None) -> int | re.Pattern[str] | None:
        sign = self._text[self._at]
        if sign == "$":
            self._at += 1
            return LAST
        if sign == "+" and isinstance(first, int):  # so many lines further
            self._at += 1
            return first + int(self._number())
        if sign.isdigit():
            return int(self._number())
        if sign == "/":
            self._at += 1
            return re.compile(pattern_of(self._until("/"), self._extended))
        return None

    def _number(self) -> str:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise ValueError
        self._at = found.end()
        return found[0]

    def _until(self, sign: str) -> str:
        """What stands up to a sign that is not escaped, and not in a set."""
        found: list[str] = []
        while (one := self._next()) != sign:
            if one == "\\":
                one = self._next()
                found.append(one if one == sign else f"\\{one}")
            else:
                found.append(one)
        return "".join(found)

    def _substitution(self, command: _Command) -> None:
        sign = self._next()
        if sign in "\\\n" or sign.isalnum():
            raise ValueError(sign)
        old, new = self._until(sign), self._until(sign)
        flags = ""
        while self._at < len(self._text) and self._text[self._at] in "gIipe0123456789":
            flags += self._next()
        if set(flags) - set("gIi"):
            raise ValueError(flags)
        ignores = re.I if set(flags) & set("Ii") else 0
        command.pattern = re.compile(pattern_of(old, self._extended), ignores)
        command.text, command.everywhere = substitute_of(new), "g" in flags
        anchored = old.removeprefix("^")
        if anchored.endswith("$") and not anchored.endswith("\\$"):
            anchored = anchored[:-1]
        literal = literal_of(anchored, self._extended)
        text = command.text.replace("\\g<0>", literal or "")
        if literal is not None and "\\g<" not in text:
            command.plain = literal, text.replace("\\\\", "\\")

    def _lines(self) -> str:
        r"""The text of `a`, `i` and `c`: lines that go on behind a backslash."""
        self._skip(" \t")
        if self._text[self._at : self._at + 1] == "\\":
            self._at += 1
            blanks = self._at
            if self._skip(" \t") and self._text[self._at] == "\n":
                self._at += 1
            else:
                self._at = blanks  # `a\  text` keeps its blanks
        found: list[str] = []
        while self._at < len(self._text):
            one = self._next()
            if one == "\n":
                break
            if one == "\\" and self._at < len(self._text):
                one = {"t": "\t", "n": "\n"}.get(following := self._next(), following)
            found.append(one)
        return "".join(found)


class _Pass:
    """One pass of commands over lines."""

    def __init__(self, commands: Sequence[_Command], whole: bool) -> None:
        self._commands, self._whole = commands, whole
        self._inside = [False] * len(commands)
        self._hit = [False] * len(commands)
        self._work = 0
        self._blind = [one.first == LAST and not whole for one in commands]

    def run(self, lines: Sequence[str]) -> tuple[list[str], tuple[tuple[str, str], ...], bool]:
        """The lines then, the changes that no known line held, whether something stays open."""
        now: list[str] = []
        for number, line in enumerate(lines, 1):
            now += self._line(number, line, number == len(lines))
        missed, is_open = [], self._work >= MOST_WORK
        for command, hit, blind in zip(self._commands, self._hit, self._blind, strict=True):
            if hit or not blind:
                continue
            if command.name in "aic":
                missed.append(("", command.text))
            elif command.plain:
                missed.append(command.plain)
            at_end = command.first == LAST and command.name == "a"
            is_open |= not at_end and command.plain is None
        return now, tuple(missed), is_open

    def _line(self, number: int, line: str, last: bool) -> list[str]:
        before: list[str] = []
        behind: list[str] = []
        for at, command in enumerate(self._commands):
            chosen = self._chosen(at, command, number, line, last)
            if unknown(line) and ((command.name == "s" and chosen) or _by_text(command)):
                self._blind[at] = True
            if chosen == command.turned:
                continue
            if command.name == "s":
                line = self._substituted(at, command, line)
                continue
            self._hit[at] = True
            if command.name == "a":
                behind += command.text.split("\n")
            elif command.name == "i":
                before += command.text.split("\n")
            elif command.name == "c":
                ends = command.last is None or not self._inside[at]
                return [*before, *(command.text.split("\n") if ends else ()), *behind]
            else:
                return [*before, *behind]
        return [*before, *line.split("\n"), *behind]

    def _chosen(self, at: int, command: _Command, number: int, line: str, last: bool) -> bool:
        if command.first is None:
            return True
        if self._inside[at]:
            self._inside[at] = not self._ends(command.last, number, line, last)
            return True
        if not self._is(command.first, number, line, last):
            return False
        if command.last is not None:
            past = isinstance(command.last, int) and command.last != LAST and number >= command.last
            self._inside[at] = not past and not last
        return True

    def _ends(
        self, address: int | re.Pattern[str] | None, number: int, line: str, last: bool
    ) -> bool:
        if isinstance(address, int) and address != LAST:
            return number >= address
        return last or self._is(address, number, line, last)

    def _is(
        self, address: int | re.Pattern[str] | None, number: int, line: str, last: bool
    ) -> bool:
        if isinstance(address, int):
            return last and self._whole if address == LAST else number == address
        if address is None or unknown(line):
            return False
        return self._may_search(address, line) and address.search(line) is not None

    def _may_search(self, pattern: re.Pattern[str], line: str) -> bool:
        """Whether a search stays short: each repeat may try every place again."""
        if len(line) > LONGEST_LINE:
            return False
        repeats = len(_REPEAT.findall(pattern.pattern))
        self._work += len(line) ** min(repeats + 1, 3)
        return self._work < MOST_WORK

    def _substituted(self, at: int, command: _Command, line: str) -> str:
        assert command.pattern is not None
        if unknown(line) or not self._may_search(command.pattern, line):
            return line
        new, count = command.pattern.subn(command.text, line, 0 if command.everywhere else 1)
        self._hit[at] |= count > 0
        return new


def _by_text(command: _Command) -> bool:
    return any(isinstance(one, re.Pattern) for one in (command.first, command.last))


_PIECE = re.compile(r"\[\^?\]?[^\]]*\]|\\?.", re.S)


def literal_of(pattern: str, extended: bool = False) -> str | None:
    """The plain text that a pattern matches, `None` where it is more than that."""
    found: list[str] = []
    for piece in _PIECE.findall(pattern):
        sign = piece[-1]
        special = sign in _SPECIAL_BASIC and (piece[0] == "\\") != extended
        meant = piece[0] == "\\" and (len(piece) == 1 or sign.isalnum())
        if special or meant or (piece[0] != "\\" and piece[0] in "[*^$"):
            return None
        found.append(sign)
    return "".join(found)


def pattern_of(pattern: str, extended: bool = False) -> str:
    """A pattern of sed in Python's form. Raises `ValueError` where it could be slow, or says more
    than is read here.
    """
    found: list[str] = []
    repeats = 0
    for one in _PIECE.finditer(pattern):
        piece, sign = one[0], one[0][-1]
        escaped = piece[0] == "\\"
        if piece == "[" or piece == "\\" or "[:" in piece[1:] or (escaped and _unknown_class(sign)):
            raise ValueError(pattern)
        if sign in _SPECIAL_BASIC:
            special = escaped != extended
            repeats += special and sign in "{+?"
            found.append(sign if special else re.escape(sign))
        elif escaped:
            found.append(piece if sign.isalnum() else re.escape(sign))
        elif len(piece) > 1:
            inside = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            found.append(f"[{inside}]")
        else:
            repeats += sign == "*" and bool(found)
            anchors = (sign == "^" and not one.start()) or (
                sign == "$" and one.end() == len(pattern)
            )
            found.append(
                sign if sign == "." or anchors or (sign == "*" and found) else re.escape(sign)
            )
    whole = "".join(found)
    if repeats > 2 or (repeats and re.search(r"\)[*+?{]", whole)):
        raise ValueError(pattern)
    return whole


def _unknown_class(sign: str) -> bool:
    return sign.isalnum() and sign not in _CLASSES


def substitute_of(text: str) -> str:
    """What is put in, in Python's form: `&` is all that was found."""
    return re.sub(r"&|\\(.?)", _put_in, text, flags=re.S)


def _put_in(found: re.Match[str]) -> str:
    sign = found[1]
    if sign is None:
        return r"\g<0>"
    if sign.isdigit():
        return rf"\g<{sign}>"
    return {"n": "\n", "t": "\t", "\\": "\\\\"}.get(sign, sign)
