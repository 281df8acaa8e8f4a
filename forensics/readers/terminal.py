"""Trials of Terminal-Bench 1, by what the agent's terminal showed.

Formats: Terminal-Bench 0.1 to 0.2 (`terminal_bench/harness/models.py`); the recording of its
session in asciicast 2 or 3 (docs.asciinema.org/manual/asciicast), or the text of it.

1. A trial is its folder: `results.json` says the task and the verdict, a recording of the
   agent's session what was done. Each command is a call of a shell that keeps its directory,
   and what the terminal showed behind it is what came back.
2. What the harness typed (the recorder, the installation, the end of a wait, the tests) is no
   action. The other files of the folder and the tables of the whole run go along.
3. An agent that was started with the task's text acts in a console of its own; what it did there is
   told as unread where its form is not known.

Any other recording or text of a terminal is named as unread (`unknown_files`).

The commands in the rows of a terminal, and what each printed: `commands_in`.

1. A row that begins with a prompt (`PROMPTS`) holds a command, and what follows up to
   the next prompt is its output. A prompt that is known by its user and host is found behind
   output, too, that had no line end.
2. Prompts that say little (`$ `, `/app # `: `PLAIN`) count only where no other is there and
   the first row has one. Where a recording says what was typed or that a line was
   edited, any prompt counts, but those of other programs (`OTHERS`).
3. A command goes on over the rows behind it while a here document, a quote or a line end is
   open, with the shell's `> ` in front of them or without.
4. A command that was given up (`^C`) was not run.

What an agent did in a console of its own, as steps: `console_steps`.

Known are agents that print their messages as lines of JSON (Claude Code's `stream-json` and
what copies it), and mini-swe-agent, whose console wraps at the width of its rules:
the lines of a block are put together again where the next word had no room.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from forensics.actions.tool_calls import command_line
from forensics.readers.content import (
    JsonObject,
    Unreadable,
    UnreadableContent,
    read_head,
    read_text,
)
from forensics.readers.json_rows import (
    MALFORMED,
    Runs,
    first_row,
    in_words,
    parse_or,
    read_document,
    read_json_lines,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import shell_call, steps_of, tool_step
from forensics.readers.submission import content_beside, exit_ending
from forensics.readers.terminal_screen import Screen, ShownRow
from forensics.readers.values import as_mapping, dig, field_names, run_of
from forensics.records import Step

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
}
PLAIN = {
    "$": r"\$",
    "/dir #": r"[~/][\w./~+-]{0,200} ?(?:\([\w./-]{1,60}\) ?)?[$#%>]",
    "host$": r"[\w.-]{1,40}(?::[~/]?[\w./-]{0,100})? ?[$%]",
}
ENDS = r"[$#%>]"
OTHERS = re.compile(  # of interpreters, debuggers and data bases; of a command that goes on
    r"(?:>>>|\.\.\.|In \[\d+\]:|\((?:gdb|lldb|[Pp]db|i?pdb)\)|mysql>|MariaDB \[.*\]>|sqlite>"
    r"|[\w.]+[=\-*!('\"][>#]|irb.*[>*\"']|pry.*>|node>|ghci>|julia>|ftp>|redis.*>|lua>|>|php >)\s*"
)
_GOES_ON = re.compile(
    r"(?:(?:[bd]?quote|heredoc|pipe|cmdand|cmdor|cursh|subsh|for|while|then|else|if)"
    r"(?: (?:[bd]?quote|heredoc|pipe|cmdand|cmdor|cursh|subsh|for|while|then|else|if))*)?>(?: |\Z)"
)
_GLUED = re.compile(r"[^>\n]{1,40}> ")  # behind what was echoed too early
_KNOWN = re.compile(rf"{_FRONT}(?:{'|'.join(PROMPTS.values())})(?: |\Z)")
_PLAIN = [re.compile(rf"{_FRONT}{shape}(?: |\Z)") for shape in PLAIN.values()]
_ABOVE = re.compile("Script started on |Last login: |asciinema: ")
_ANY = re.compile(rf"[^\n]{{0,200}}?{ENDS}(?: |\Z)")
_TYPED = re.compile(rf"[^\n]{{0,200}}{ENDS} ?\Z")
_HOST = re.compile(_USER)
_HEREDOC = re.compile(r"(?<!<)<<(-?)[ \t]*(?:'([\w.!-]+)'|\"([\w.!-]+)\"|\\?(\w[\w.!-]*))")
_OPEN = ("\\", "|", "&&", "{", "(", " do", " then", " else")
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
            if not (opened or depth > 0 or last.rstrip().endswith(_OPEN)):
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


_MINI = re.compile(r"^mini-swe-agent \(step \d{1,6}, \$[\d.]{1,12}\):$", re.M)
_TURN = re.compile(rf"{_MINI.pattern}|^(?:User|System):$|^─{{20,}}$", re.M)
_RULE = re.compile(r"^─{20,}$", re.M)
_BLOCK = re.compile(r"^```bash\n((?:(?!```)[^\n]*\n)*+)```", re.M)


def console_steps(shown: str) -> list[Step]:
    """The steps that a console shows, none where its form is not known."""
    if '{"type":' in shown and (messages := list(_messages(shown))):
        try:
            return list(steps_of(messages))
        except ValueError:
            return []
    return list(_mini(shown)) if _MINI.search(shown) else []


def _messages(shown: str) -> Iterator[dict[str, object]]:
    for row in shown.split("\n"):
        start = row.find('{"type":')
        if start < 0:
            continue
        line = as_mapping(parse_or(row[start:].rstrip()))
        if line.get("type") in ("user", "assistant") and as_mapping(line.get("message")):
            yield {"role": line["type"], **as_mapping(line["message"])}


def _mini(shown: str) -> Iterator[Step]:
    rule = _RULE.search(shown)
    width = len(rule[0]) if rule else 80
    turns = list(_TURN.finditer(shown))
    started = False
    for at, turn in enumerate(turns):
        end = turns[at + 1].start() if at + 1 < len(turns) else len(shown)
        text = shown[turn.end() : end].strip("\n")
        acts = _MINI.fullmatch(turn[0]) is not None
        started |= acts
        if acts:
            blocks = _BLOCK.findall(text)  # it runs the one block of an answer
            lines = ["\n".join(_whole_lines(block.rstrip().split("\n"), width)) for block in blocks]
            calls = tuple(shell_call(line) for line in lines)
            yield Step(role="assistant", text=text, tool_calls=calls if len(calls) == 1 else ())
        elif started and turn[0] == "User:":
            yield tool_step(text)


def _whole_lines(rows: list[str], width: int) -> list[str]:
    """Rows with those put together that were one line before it was wrapped."""
    lines: list[str] = []
    last = 0  # the length of the row before
    for row in rows:
        word = row.split(" ", 1)[0]
        if row[:1].strip() and 0 < last <= width < last + 1 + len(word):
            lines[-1] += f" {row}"
        else:
            lines.append(row)
        last = len(row)
    return lines


NAME = "terminal-bench"
SHOWN = 64 << 20  # bytes, of what one terminal shows
TOOL = "terminal"  # a shell that stays in its directory
_NAMES = field_names("terminal")
HARNESS = re.compile(
    r"asciinema rec\b.*|clear|exit|tmux wait\b.*|source /installed-agent/.*"
    r"|bash +/tests/run-tests\.sh\s*;\s*tmux wait\b.*"  # without the wait the agent ran them
)
_WAITS = re.compile(r"\s*(?:;|&&)\s*tmux wait(?:-for)? -S \S+\s*\Z")
_ATTEMPT = re.compile(r"\.(\d{1,4})-of-\d{1,4}")
_PLAIN_TASK = re.compile(r"[\w ,.-]{24,}")
NOT_THERE = re.compile(r"\s*\S*sh: [^\n]*(?:not found|No such file or directory)\s*")
CONSOLE = "[the console of an agent]"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is the result of a trial."""
    return _is_trial(first_row(head))


def _is_trial(first: JsonObject) -> bool:
    return "is_resolved" in first and "task_id" in first and "results" not in first


def accompanies(path: Path) -> bool:
    """Whether a file belongs to a trial of Terminal-Bench, or to a whole run of trials."""
    if path.name.endswith(".traj.json"):
        return False  # a log of its own, which the verdict goes along with
    folders = path.parents
    for depth, folder in enumerate(folders[:-1]):
        if folder.name in _NAMES.parts and _holds_trial(folders[depth + 1]):
            return True
    if path.name in _NAMES.along and _holds_trial(path.parent):
        return True
    is_table = path.name in _NAMES.tables or path.name.endswith("results.json")
    return is_table and not _holds_trial(path.parent) and _holds_trials(path.parent)


def _holds_trial(folder: Path) -> bool:
    try:
        return _trial_at(folder / "results.json", (folder / "results.json").stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=256)
def _trial_at(path: Path, _: int) -> bool:
    try:
        return _is_trial(first_row(read_head(path)))
    except UnreadableContent:
        return False


def _holds_trials(folder: Path) -> bool:
    found = (one for pattern in ("*/*", "*") for one in folder.glob(f"{pattern}/results.json"))
    return any(_holds_trial(one.parent) for one, _ in zip(found, range(20), strict=False))


def _commands(path: Path, first: JsonObject) -> tuple[list[Command], list[Unreadable]]:
    """The commands of a recording or of a text."""
    if not first:
        screen = Screen()
        text, lost = read_text(path, SHOWN)
        screen.show(text)
        return commands_in(screen.rows()), list(lost)
    screen = Screen(first.get("width") or dig(first, "term", "cols"))
    broken: list[Unreadable] = []
    held: list[str] = []
    total = 0
    for kind, data in _events(path, broken):
        total += len(data)
        if total > SHOWN:
            raise UnreadableContent(f"it shows more than {SHOWN >> 20} MB")
        if kind == "o":
            held.append(data)
            continue
        screen.show("".join(held))
        held = []
        if kind == "i":
            screen.type(data)
        elif kind == "r" and (columns := data.split("x")[0]).isdecimal():
            screen.width = int(columns[:4])
    screen.show("".join(held))
    return commands_in(screen.rows()), broken


def _events(path: Path, broken: list[Unreadable]) -> Iterator[tuple[str, str]]:
    """The events of a recording: what kind each is of, and its text."""
    for row in read_json_lines(path):
        if isinstance(row, Unreadable):
            broken.append(row)
            continue
        event = row.value
        if isinstance(event, list) and len(event) == 3 and isinstance(event[2], str):
            yield str(event[1]), event[2]


def _steps(commands: Iterable[Command]) -> Iterator[Step]:
    for command in commands:
        call = shell_call(command.text, TOOL)
        yield Step(role="assistant", text="", tool_calls=(call,))
        yield tool_step(command.output)


def read(path: Path) -> Runs:
    """The run of a trial's folder, and what of it could not be read."""
    try:
        yield from _trial(path)
    except (*MALFORMED, UnreadableContent) as error:
        yield Unreadable(path, in_words(error))


def _trial(path: Path) -> Runs:
    result: JsonObject = {}
    for row in read_document(path):
        if isinstance(row, Unreadable):
            yield row
            return
        result = as_mapping(row.value)
    task, told = str(result.get("task_id")), str(result.get("instruction") or "")
    attempt = _ATTEMPT.search(str(result.get("trial_name", "")))
    commands, broken = _session(path.parent)
    yield from broken
    meta = as_mapping(content_beside(path.parent.parent.parent / "run_metadata.json"))
    steps = [Step(role="user", text=told)] if told else []
    resolved = result.get("is_resolved")
    yield run_of(
        (*steps, *_acted(commands, told)),
        exit_ending(
            result.get("failure_mode") or "unset", _NAMES.ended, field_names("cut_off").terminal
        ),
        id=result.get("trial_name") or task,
        task=task,
        policy=meta.get("model_name") or meta.get("agent_name"),
        environment=NAME,
        sample=int(attempt[1]) - 1 if attempt else None,
        rewards={} if resolved is None else {"resolved": resolved},
        outcome=resolved,
    )


def _session(folder: Path) -> tuple[list[Command], list[Unreadable]]:
    """The commands of the first recording of a trial that shows any."""
    broken: list[Unreadable] = []
    for name in _NAMES.sessions:
        path = folder / name
        if not path.is_file():
            continue
        try:
            commands, told = _commands(path, first_row(read_head(path)))
        except (*MALFORMED, UnreadableContent) as error:
            broken.append(Unreadable(path, in_words(error)))
            continue
        broken += told
        if typed := [one for one in commands if not HARNESS.fullmatch(one.text)]:
            return [one._replace(text=_WAITS.sub("", one.text)) for one in typed], broken
    return [], broken


def _acted(commands: Sequence[Command], told: str) -> Iterator[Step]:
    """The steps of a trial. A command that holds the task's own words starts an agent."""
    words = max(_PLAIN_TASK.findall(told), key=len, default="")[:60]
    for command in commands:
        if words and words in command.text:
            if not NOT_THERE.fullmatch(command.output):
                back = tool_step(command.output)
                unknown = [Step(role="assistant", text=CONSOLE), back]
                yield from console_steps(command.output) or unknown
        else:
            yield from _steps((command,))


reader = Reader(
    name=NAME,
    version="1 (Terminal-Bench 0.2)",
    rank=-15,  # behind the others: their rows may say the verdict under the same names
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)
