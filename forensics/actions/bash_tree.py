"""The walk over a command line's tree (see `bash`), and the quotes and escapes of
the shell, undone.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from forensics.actions.action import resolve
from forensics.actions.heredocs import Lifted
from forensics.actions.untrusted import Words

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_BRACES = 64
_ESCAPES = dict(zip("ntrabfve0", "\n\t\r\a\b\f\v\x1b\0", strict=True))
MOST_COMMANDS = 400  # simple commands of one command line
DEEPEST = 150  # nested blocks and substitutions; the grammar nests what follows a pipe
MOST_TURNS = 8  # of a `for` whose values stand in the line
_NO_FILE = re.compile(r"/dev/(null|std(in|out|err)|tty|fd/\d+)|\d+|-")
_JOINED, _JOINED_IN_STRING = re.compile(r"\\(\n|.)", re.S), re.compile(r'\\([$`"\\\n])')
_SUBSTITUTIONS = ("command_substitution", "process_substitution")


def unescaped(text: str) -> str:
    """A word outside quotes: a backslash keeps the next character, and joins lines."""
    return _JOINED.sub(_kept, text) if "\\" in text else text


def unescaped_in_string(text: str) -> str:
    """Within double quotes a backslash only keeps `$`, a backtick, `"`, itself and a line's end."""
    return _JOINED_IN_STRING.sub(_kept, text) if "\\" in text else text


def _kept(found: re.Match[str]) -> str:
    return found[1].strip("\n")


def c_escapes(text: str) -> str:
    """`\\n`, `\\t`, `\\x41` and the like, as in `$'...'`, `echo -e` and `printf`."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2] if found[2] in "\\'\"" else found[0])

    return re.sub(r"\\(?:x([0-9a-fA-F]{1,2})|(.))", one, text, flags=re.S) if "\\" in text else text


def braces(word: str) -> list[str]:
    """`{a,b}.py` as `a.py` and `b.py`; one that stands alone (`{}`, `{x}`) is text."""
    done: list[str] = []
    waiting = [word]
    while waiting:
        found = re.search(r"\{([^{}]*,[^{}]*)\}", one := waiting.pop(0))
        if found is None or len(done) + len(waiting) >= MOST_BRACES:
            done.append(one)
        else:
            waiting += [
                one[: found.start()] + part + one[found.end() :] for part in found[1].split(",")
            ]
    return done


class SimpleCommand(NamedTuple):
    """One simple command, as the shell would see it.

    `words`: the program and its arguments, without quotes. `inputs`, `outputs`:
    files behind `<` and `>`.
    `stdin`: the text on its standard input, where the line holds it. `directory`:
    where it runs, relative to where the line starts (`None`: cannot be told).
    `text`: as written (a heredoc by its operator alone).
    """

    words: Words
    inputs: Words = ()
    outputs: Words = ()
    stdin: str | None = None
    directory: str | None = ""
    text: str = ""


class TreeWalk:
    """One walk: the commands so far, the working directory, and the variables
    whose values the line shows.
    """

    def __init__(self, source: bytes, lifted: Lifted) -> None:
        self.commands: list[SimpleCommand] = []
        self.directory: str | None = ""
        self._source = source
        self._lifted = lifted
        self._values: dict[str, str] = {}
        self._before: str | None = None  # the directory that `cd -` goes back to
        self._depth = 0

    @property
    def full(self) -> bool:
        """Whether there are too many commands to read on."""
        return len(self.commands) >= MOST_COMMANDS

    def body(self, node: "Node") -> None:
        """Whatever runs in a node, in order."""
        if self.full or self._depth > DEEPEST:
            return
        self._depth += 1
        kind = node.type
        if kind in ("command", "declaration_command", "unset_command"):
            self._command(node)
        elif kind == "test_command":
            self._test(node)
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind == "pipeline":
            self._pipeline(node)
        elif kind == "subshell" or kind in _SUBSTITUTIONS:
            self._apart(node)
        elif kind == "for_statement":
            self._for(node)
        elif kind == "variable_assignment":
            self._assigned(node)
        else:
            self._children(node)
        self._depth -= 1

    def _children(self, node: "Node") -> None:
        for child in node.named_children:
            self.body(child)

    def _apart(self, node: "Node") -> None:
        """What runs in a shell of its own: its `cd` ends with it."""
        directory, before = self.directory, self._before
        self._children(node)
        self.directory, self._before = directory, before

    def _for(self, node: "Node") -> None:
        named = node.named_children
        if not named:
            return
        values = [word for child in named[1:-1] for word in self._words(child)]
        for value in values[:MOST_TURNS] or [""]:
            if value and not set(value) & set("*?$`"):
                self._values[self._raw(named[0])] = value
            self.body(named[-1])
        self._values.pop(self._raw(named[0]), None)

    def _pipeline(self, node: "Node") -> None:
        flows: str | None = None
        directory = self.directory
        stages, rest = _stages(node)
        for stage in stages:
            first = len(self.commands)
            self.body(stage)
            self.directory = directory
            acted = len(self.commands) > first
            if flows is not None and acted and self.commands[first].stdin is None:
                self.commands[first] = self.commands[first]._replace(stdin=flows)
            flows = printed(self.commands[-1]) if acted else None
        for follower in rest:
            self.body(follower)

    def _redirected(self, node: "Node") -> None:
        named = node.named_children
        redirects = [child for child in named if child.type.endswith("_redirect")]
        body = next((child for child in named if not child.type.endswith("_redirect")), None)
        first = len(self.commands)
        if body is not None:
            self.body(body)
        if body is None or len(self.commands) == first:
            self.commands.append(
                SimpleCommand(words=(":",), directory=self.directory, text=self._text(node))
            )
        single = ("command", "list", "pipeline", "negated_command")
        many = body is not None and body.type not in single
        for at in range(first if many else len(self.commands) - 1, len(self.commands)):
            simple = self._with(self.commands[at], redirects)
            self.commands[at] = (
                simple if many else simple._replace(text=self._last_text(node, body))
            )

    def _last_text(self, node: "Node", body: "Node | None") -> str:
        """The text of a redirected command; behind `a && b > f` that of `b > f`."""
        while body is not None and body.type in ("list", "pipeline") and body.children:
            body = body.children[-1]
        start = node.start_byte if body is None else body.start_byte
        return self._lifted.written(self._source[start : node.end_byte].decode(errors="replace"))

    def _with(self, simple: SimpleCommand, redirects: "list[Node]") -> SimpleCommand:
        inputs, outputs, stdin, more = list(simple.inputs), list(simple.outputs), simple.stdin, []
        for redirect in redirects:
            targets = [
                word
                for child in redirect.named_children
                if child.type != "file_descriptor"
                for word in self._words(child)
            ]
            operator = next((child.type for child in redirect.children if not child.is_named), ">")
            if not targets:
                continue
            if redirect.type == "herestring_redirect":
                stdin = targets[0] + "\n"
            elif (text := self._lifted.stdin(targets[0])) is not None:
                stdin = text
            elif is_file(targets[0]):
                (inputs if operator.startswith("<") else outputs).append(targets[0])
            more += targets[1:]
        return simple._replace(
            words=(*simple.words, *more), inputs=tuple(inputs), outputs=tuple(outputs), stdin=stdin
        )

    def _command(self, node: "Node") -> None:
        words: list[str] = []
        redirects = []
        for child in node.children:
            if child.type == "variable_assignment" and node.type == "command":
                self._inside(child)
            elif child.type.endswith("_redirect"):
                redirects.append(child)
            elif child.is_named or node.type != "command":
                words += self._words(child)
        if not words or self.full:
            return
        simple = SimpleCommand(words=tuple(words), directory=self.directory, text=self._text(node))
        self.add(self._with(simple, redirects) if redirects else simple)

    def add(self, simple: SimpleCommand) -> None:
        """One more simple command, which may go to another directory."""
        self.commands.append(simple)
        if simple.words[0] in ("cd", "pushd"):
            self._move(simple.words)

    def _test(self, node: "Node") -> None:
        """`[ -f x ]` and `[[ -f x ]]` as `test -f x`."""
        self._inside(node)
        words = tuple(word.strip("\"'") for word in self._raw(node).strip("[] \n").split())
        self.commands.append(
            SimpleCommand(words=("test", *words), directory=self.directory, text=self._text(node))
        )

    def _move(self, words: Sequence[str]) -> None:
        targets = [word for word in words[1:] if not (word.startswith("-") and len(word) > 1)]
        target = targets[0] if targets else "~"
        before = self._before if target == "-" else resolve(self.directory, target)
        self._before, self.directory = self.directory, before

    def _assigned(self, node: "Node") -> None:
        named = node.named_children
        if len(named) == 2:
            self._values[self._raw(named[0])] = " ".join(self._words(named[1]))

    # -- words -------------------------------------------------------------------------

    def _words(self, node: "Node") -> list[str]:
        """The words that a node stands for: one, but for braces."""
        value = self._value(node)
        plain = node.type == "concatenation" and "{" in value and '"' not in self._raw(node)
        return braces(value) if plain else [value]

    def _value(self, node: "Node") -> str:
        kind = node.type
        if kind == "word":
            return unescaped(self._raw(node))
        if kind == "raw_string":
            return self._raw(node)[1:-1]
        if kind == "ansi_c_string":
            return c_escapes(self._raw(node)[2:-1])
        if kind in (
            "string",
            "concatenation",
            "command_name",
            "translated_string",
            "variable_assignment",
        ):
            return self._mixed(node)
        if kind in ("simple_expansion", "expansion"):
            self._inside(node)
            return self._values.get(self._raw(node).strip("${}"), self._raw(node))
        self._inside(node)
        return self._text(node)

    def _mixed(self, node: "Node") -> str:
        """Parts with and without quotes: what lies between the parts is text."""
        in_string = node.type == "string"
        clean = unescaped_in_string if in_string else unescaped
        parts, at = [], node.start_byte + in_string
        for child in node.children:
            if child.type == "string_content" or not child.is_named:
                continue
            parts += [clean(self._slice(at, child.start_byte)), self._value(child)]
            at = child.end_byte
        return "".join([*parts, clean(self._slice(at, max(at, node.end_byte - in_string)))])

    def _inside(self, node: "Node") -> None:
        """Run what is substituted within a word."""
        if node.type in _SUBSTITUTIONS:
            self.body(node)
        elif node.child_count and self._depth <= DEEPEST:
            self._depth += 1
            for child in node.children:
                self._inside(child)
            self._depth -= 1

    def _raw(self, node: "Node") -> str:
        return self._slice(node.start_byte, node.end_byte)

    def _text(self, node: "Node") -> str:
        return self._lifted.written(self._raw(node))

    def _slice(self, start: int, end: int) -> str:
        return self._source[start:end].decode(errors="replace")


def is_file(target: str) -> bool:
    """Whether the target of a redirection is a file, not a device or a substitution."""
    return not _NO_FILE.fullmatch(target) and not target.startswith(("<(", ">("))


def printed(simple: SimpleCommand) -> str | None:
    """What a command prints, where the line tells it (`echo`, `printf` without
    values, `cat` of its input).
    """
    program, *rest = simple.words or ("",)
    if program == "cat" and not [word for word in rest if word != "-"]:
        return simple.stdin
    if program == "echo":
        flags = next(
            (i for i, word in enumerate(rest) if not re.fullmatch(r"-[neE]+", word)), len(rest)
        )
        text = " ".join(rest[flags:])
        text = c_escapes(text) if "e" in "".join(rest[:flags]) else text
        return text if "n" in "".join(rest[:flags]) else text + "\n"
    if program == "printf" and len(rest) == 1 and "%" not in rest[0].replace("%%", ""):
        return c_escapes(rest[0]).replace("%%", "%")
    if program == "printf" and len(rest) == 2 and rest[0] in ("%s", "%s\\n"):
        return rest[1] + c_escapes(rest[0][2:])
    return None


def _stages(node: "Node") -> "tuple[list[Node], list[Node]]":
    """The stages of a pipeline, and the commands behind it: the grammar takes
    `a | b | c && d` as `a | (b | c && d)`, and the shell as `(a | b | c) && d`.
    """
    named = node.named_children
    if node.type == "pipeline" and named:
        stages, rest = _stages(named[-1])
        return [*named[:-1], *stages], rest
    if node.type == "list" and named:
        stages, rest = _stages(named[0])
        return stages, [*rest, *named[1:]]
    return [node], []
