"""Tool calls as actions, whatever the tools of a harness are called.

1. A tool that takes a command line gives the actions of that line; one that
   takes a program text gives a `python` action.
2. Editors (SWE-agent, OpenHands, Inspect, Anthropic, Claude Code, Codex) and
   other tools are told by name and arguments: a tool that changes things and
   has a path is an edit, another one with a path reads, and a patch names its
   own files. A path under a name that is not known is read where the tool's name only reads,
   and a command line where its first word is a program.
3. What ends a run (`submit`, `finish`, ...) is a submission. Everything else is
   a tool with its arguments.
4. SWE-agent adds commands to its shell: `open FILE [LINE]`, `create FILE`,
   `edit FROM:TO` with the new lines up to `end_of_edit`, `append`, `submit`.
   Its edits go to the file that is open.
5. A text that is all commands, apart by `;`, is told by their head words:
   `open FILE`, `edit FILE BODY`, `submit`, and any other word.

`arguments` are `name=value`, without the text that is in `content`.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from forensics.actions.action import Action, Kind, relative_path
from forensics.actions.command_heads import command_head
from forensics.actions.unified_diff import patched_files
from forensics.actions.unknown_tools import named_by, only_reads
from forensics.actions.untrusted import TABLES, Words, first_of, json_value
from forensics.records import ToolCall

SHELLS = re.compile(
    r"(?:container\.)?(?:execute_|run_|local_)?(?:bash|shell|terminal|exec|command|cmd|sh|cli|powershell|pwsh)"
    r"(?:_command|_session|_tool|_exec|_cmd)?|run_shell_command|exec_command|run_in_terminal|run",
    re.I,
)
PYTHONS = re.compile(
    r"(?:execute_|run_)?(?:i?python|jupyter|code_interpreter)(?:_cell|_code|_exec|_session)?"
    r"|run_code|execute_code|code_execution|python_(?:interpreter|repl|tool|executor)",
    re.I,
)
_PREFIX = re.compile(r"^.*(?:__|[./:])(?=[A-Za-z])")
LASTING = re.compile(r"execute_bash|Bash|bash_session|terminal|run_in_terminal|exec_command")
_TOOLS = TABLES["tools"]
COMMANDS = TABLES["tool words"]["commands"]
_PROGRAMS = frozenset(
    word
    for names in (*map(TABLES.get, ("readers", "searchers", "writers")), *TABLES["names"].values())
    for word in names or ()
)
_SURE, _SHELL_NAMES, _RUNNERS = (
    frozenset(TABLES["tool words"][name]) for name in ("sure", "shells", "runs")
)
_NAME_WORDS = re.compile(r"[a-z]+")
_PLAIN_KEY = re.compile(r"[_-]")
_IN_SCRIPT = re.compile(
    r"\btools\.(?:exec|shell)_command\(\s*\{\s*\"?(?:cmd|command)\"?\s*:\s*"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^'\\]*'|`[^`$\\]*`)"
)
_SHELL_SIGN = re.compile(r"\S[ \t]+[^\n]*[-/.|&>~]")
_CHANGING = re.compile(
    r"create|write|edit|replace|insert|append|delete|remove|unlink|undo|patch|move|rename|update"
    r"|str_replace",
    re.I,
)
LONGEST = 2_000_000  # characters of one call's arguments that are read
_EDIT = re.compile(
    r"(edit|append|insert)\b[ \t]*([^\n]*)\n?(.*?)\n?(?:end_of_(?:edit|append|insert))?\s*\Z", re.S
)
_VIEW = re.compile(
    r"(open|create|goto|scroll_up|scroll_down|search_file|set_cursors)\b[ \t]*([^\n;&|]*)\s*\Z"
)
_RANGE = re.compile(r"\d+:\d+.*|\d*:?\d*")


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call; text that is no JSON object stands under `input`."""
    found = json_value(text) if len(text) <= LONGEST else None
    if isinstance(found, dict):
        return found
    found = text if found is None and text.strip() != "null" else found
    return {} if found in (None, "") else {"input": found}


def command_line(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The command line that a tool is given, `None` where it is given none."""
    if not _is_shell(name) or (name.lower() == "run" and "command" not in arguments):
        return _told_line(name, arguments)
    given = first_of(arguments, _TOOLS["lines"])
    if given is None:
        return _told_line(name, arguments)
    if isinstance(given, list):
        return shlex.join(map(str, given)) if given else None
    if isinstance(given, str) and "tools." in given and "_command(" in given:
        return _script_lines(given)
    return given if isinstance(given, str) else None


def _script_lines(text: str) -> str | None:
    """The command lines that a script in JavaScript gives to its tools (Codex); `None` where it
    puts them together as it runs.
    """
    lines = []
    for found in _IN_SCRIPT.finditer(text[:LONGEST]):
        try:
            lines.append(str(json.loads(found[1])) if found[1][0] == '"' else found[1][1:-1])
        except ValueError:
            return None
    whole = lines and len(lines) == text.count("_command(")
    return "\n".join(lines) if whole else None


def _told_line(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The command line among the arguments of a tool of any name, told by its first word, or, of a
    tool that is called after a shell, by the name of the argument.
    """
    words = set(_NAME_WORDS.findall(name.lower()))
    keys = {_PLAIN_KEY.sub("", key.lower()): key for key in arguments}
    wanted = (*COMMANDS, *(_TOOLS["lines"] if words & _RUNNERS else ()))
    plain = [_PLAIN_KEY.sub("", one.lower()) for one in wanted]
    for key in (keys[one] for one in plain if one in keys):
        line = arguments[key]
        if isinstance(line, list) and line and all(isinstance(one, str) for one in line):
            line = "\n".join(line)
        if not isinstance(line, str) or not line.strip():
            continue
        head = command_head(line[:2000].lstrip())
        program = head.split(" ")[0] if head is not None else None
        sign = program in _SURE or _SHELL_SIGN.search(line[:2000]) is not None
        if (program in _PROGRAMS and (sign or words & _RUNNERS)) or words & _SHELL_NAMES:
            return line
    return None


def argument_object(arguments: Mapping[str, Any]) -> str | None:
    """What a call is about: its path, else its first text, else its first number."""
    given = {
        key: one[0] if isinstance(one, list) and one else one for key, one in arguments.items()
    }
    texts = [one for one in given.values() if isinstance(one, str)]
    numbers = [str(one) for one in given.values() if isinstance(one, int) and one is not True]
    paths = [given[key] for key in _TOOLS["paths"] if isinstance(given.get(key), str)]
    return next((one for one in (*paths, *texts, *numbers) if one.strip()), None)


@lru_cache(maxsize=256)
def _is_shell(name: str) -> bool:
    return SHELLS.fullmatch(_own_name(name)) is not None


def _own_name(name: str) -> str:
    """A tool's name without the server or the group before it (`developer__shell`)."""
    return _PREFIX.sub("", name)


def program_text(name: str, arguments: Mapping[str, Any]) -> str | None:
    """The program that a Python tool is given, `None` for any other tool."""
    if not PYTHONS.fullmatch(_own_name(name)):
        return None
    given: str | None = first_of(arguments, _TOOLS["programs"], str)
    return given


def action_of_call(
    name: str,
    arguments: Mapping[str, Any],
    directory: str | None,
    root: str | None,
    opened: str | None,
) -> Action:
    """The action of a tool that is neither a shell nor an interpreter. `opened`:
    the file the editor holds.
    """
    text = f"{name}({', '.join(_told(arguments))})"
    if name.lower() in _TOOLS["submits"]:
        return Action(0, "submit", "submit", tuple(_told(arguments)), text=text)
    patch = _patch(name, arguments)
    where = tuple(
        path for key in _TOOLS["paths"] if isinstance(path := arguments.get(key), str) and path
    )[:1]
    changes = _changes(name, arguments) or patch is not None
    content = patch or (_wrote(arguments) if changes else None)
    held = (opened,) if content is not None and opened else ()
    told = _placed(patched_files(patch) if patch else where or held, directory, root)
    kept = _told({key: value for key, value in arguments.items() if value != content})
    reads, writes = ((), told) if changes else (told, ())
    kind: Kind = "edit" if changes and told else "tool"
    found = Action(0, kind, name, tuple(kept), reads, writes, text, content)
    if told or changes or not only_reads(name):
        return found
    named = named_by(found).paths  # under a name that no table has
    return found._replace(reads=_placed(named, directory, root))


def _patch(name: str, arguments: Mapping[str, Any]) -> str | None:
    given: str | None = first_of(arguments, _TOOLS["patches"], str)
    is_patch = given and (
        "patch" in name.lower() or given.lstrip().startswith(("*** Begin Patch", "diff --git"))
    )
    return given if is_patch else None


def _changes(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool writes: by the editor's command where there is one, else
    by the tool's name.
    """
    command = arguments.get("command")
    return bool(
        _CHANGING.match(command) if isinstance(command, str) and command else _CHANGING.search(name)
    )


def _wrote(arguments: Mapping[str, Any]) -> str | None:
    texts = [value for key in _TOOLS["texts"] if isinstance(value := arguments.get(key), str)]
    edits = arguments.get("edits")
    for edit in edits if isinstance(edits, list) else []:
        texts += [
            value
            for key in _TOOLS["texts"]
            if isinstance(edit, dict) and isinstance(value := edit.get(key), str)
        ]
    return "\n".join(texts) if texts else None


def _told(arguments: Mapping[str, Any]) -> list[str]:
    return [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in arguments.items()
    ]


def viewer_action(
    text: str, directory: str | None, root: str | None, opened: str | None
) -> Action | None:
    """The action of a command of SWE-agent's file viewer, `None` for any other command line."""
    text, held = text.strip(), (opened,) if opened else ()
    found = _EDIT.match(text)
    if found and _RANGE.fullmatch(found[2].strip().split("<<")[0].strip()):
        writes, words = _placed(held, directory, root), tuple(found[2].split())
        return Action(0, "edit", found[1], words, writes=writes, text=text, content=found[3])
    if (found := _VIEW.match(text)) is None:
        return None
    words = tuple(word.strip("\"'") for word in found[2].split())
    named = words[1:2] if found[1] == "search_file" else ()
    named = words[:1] if found[1] in ("open", "create") else named
    paths = _placed(named or held, directory, root)
    if found[1] == "create":
        return Action(0, "edit", "create", words, writes=paths, text=text)
    return Action(0, "tool", found[1], words, paths, text=text)


def _placed(paths: Words, directory: str | None, root: str | None) -> Words:
    return tuple(relative_path(directory, path, root) for path in paths)


def head_word_actions(text: str, calls: Sequence[ToolCall] = ()) -> list[Action] | None:
    """The commands of a text that is nothing else, by their head words; `None`
    where the message has tool calls, or a fenced block, which say more.
    """
    if calls or "```" in text:
        return None
    found = []
    for part in map(str.strip, text.split(";")):
        head, *rest = part.split() or [""]
        edits = head == "edit" and len(rest) > 1
        if part:
            kind: Kind = "submit" if head == "submit" else "edit" if edits else "tool"
            path = tuple(rest[:1])
            reads, writes = path if head == "open" else (), path if edits else ()
            content = " ".join(rest[1:]) if edits else None
            found.append(Action(0, kind, head, tuple(rest), reads, writes, part, content))
    return found
