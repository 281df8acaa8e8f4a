"""The normal form of a run's actions: `actions_of`.

1. How the run's messages hold actions is told once (`action_format`), and where
   the work has its root (`root_of`).
2. Actions stand in structured calls, tags, fenced blocks, or the whole text.
   Structured calls are actions as they are. Else the text decides, without its
   visible reasoning (`<think>`): tagged calls (`<function=...>`, `<tool_call>`,
   `<execute_bash>`), and the JSON batches of terminal agents. Fenced blocks are
   actions only where the run is one in a shell: the prompt asks for a block, or
   what came back has a shell harness's frame, or looks like what they print
   (`spoken`). ReAct lines are actions where somebody answers. Where the prompt asks for exactly
   one block, a message with several ran nothing (mini-swe-agent), unless an
   exit code came back; SWE-agent runs the last one. A command that is quoted in
   prose is no action; neither is a block in a chat where nothing runs. Where
   the environment brings its own language (`log_language`), that is asked.
3. Step by step, each of these becomes actions (`command_line`, `tool_calls`);
   the working directory goes on where the harness keeps one shell, and starts
   anew where it does not; where the log shows it, the log is believed.
4. Observations and exit codes are put beside them. Only the harness's own frame
   is read, at the very start or end of an observation: what a program printed
   may hold the same words. The exit code is that of the whole command line.
5. A script that the run wrote itself is read when it is run: what it does is
   done then.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from typing import NamedTuple

from forensics.actions.action import Action, relative_path
from forensics.actions.aliases import Aliases
from forensics.actions.called_text import RawCall, element_calls, spans, tagged_calls
from forensics.actions.command_line import (
    actions_of_line,
    script_of,
    with_arguments,
    with_effects,
)
from forensics.actions.python_source import python_effects
from forensics.actions.spoken import SHELL_TAGS, blocks_are_run, react_calls
from forensics.actions.tool_calls import (
    LASTING,
    action_of_call,
    arguments_of,
    command_line,
    head_word_actions,
    program_text,
    viewer_action,
)
from forensics.actions.wrapped import wrapped_exit_code
from forensics.plugins import load_point, plugin_points
from forensics.records import Step, ToolCall, Trajectory

_FRAME = 400  # characters at either end
_OBJECTS = ("{", "[")  # what an answer in JSON begins with
_HEAD = re.compile(
    r"\s*(?:<returncode>(?P<a>-?\d{1,9})</returncode>|\{\s*\"(?:returncode|exit_code)\"\s*:\s*(?P<b>-?\d{1,9})"
    r"|(?:Exit code|Error: Exit code)[: ]+(?P<c>-?\d{1,9})\b)"
)
_TAIL = re.compile(
    r"(?:\[(?:The command completed|Command finished) with exit code (?P<a>-?\d{1,9})\b[^\n]*\]"
    r"|\"(?:returncode|exit_code)\"\s*:\s*(?P<b>-?\d{1,9})[^{}]{0,80}\}{1,2}"
    r"|<returncode>(?P<c>-?\d{1,9})</returncode>)\s*\Z"
)
_DIRECTORY = re.compile(r"(?:\(Current directory: |\[Current working directory: )([^\n)\]]+)[)\]]")
_OPEN_FILE = re.compile(r"\(Open file: ([^\n)]+)\)")
_VIEWED = re.compile(r"^\[File: ([^\n]+?) \(\d+ lines total\)\]", re.M)
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>|```|<function=|<tool_call>")
_FENCE = re.compile(r"^```([\w+-]*)[ \t]*\r?\n([^\n]*(?:\n(?!```)[^\n]*)*+)\n```", re.M)
_TAGS = {"execute_bash": "bash_session", "execute_ipython": "python", "bash": "bash"}
_TAGGED = re.compile(r"<(execute_bash|execute_ipython|bash)>")
_ASKS = re.compile(
    r"```(?:bash|sh|shell|mswea_bash_command)|<(?:execute_)?bash>|bash (?:code )?block|triple"
    r" backticks"
    r"|code block[^\n]{0,40}command",
    re.I,
)
_ONE = re.compile(r"exactly one", re.I)
_PROMPTED = 60_000  # characters of a prompt that are looked through
_ROOT = re.compile(
    r"<uploaded_files>\s*(/[\w./-]{1,400})|(/[\w./-]{1,400})[ `'\"]*\((?:this is )?the working"
    r" directory"
    r"|working directory(?: is|:|,)?[ `'\"]*(/[\w./-]{1,400})"
)
_ROOT_MARKS = ("<uploaded_files>", "working directory")  # each alternative holds one of them
_MOVED = re.compile(r"\bcd[ \t]+(/[\w./-]+)")
_NO_ROOT = re.compile(r"/|/(?:tmp|root|home|usr|etc|var|opt|dev|proc|sys|bin|mnt)(?:/.*)?")
MOST_SCRIPTS = 20  # actions of one step that are looked up as scripts


def answers_of(steps: tuple[Step, ...], step: int) -> tuple[int, ...]:
    """What came back before the next action, in order: the tools' steps where
    there are any, else what was said.
    """
    found = []
    for at in range(step + 1, len(steps)):
        if steps[at].role == "assistant":
            break
        found.append(at)
    return tuple(at for at in found if steps[at].role == "tool") or tuple(found)


def exit_code(text: str) -> int | None:
    """The exit code in an observation's frame, `None` where it shows none."""
    end = text[-_FRAME:]
    found = _HEAD.match(text[:_FRAME]) or (_TAIL.search(end) if "code" in end else None)
    if found is None:
        return wrapped_exit_code(text) if text[:1] in _OBJECTS else None
    return next((int(group) for group in found.groups() if group), None)


def directory_shown(text: str) -> str | None:
    """The working directory that the frame names at its end."""
    end = text[-_FRAME:]
    found = _DIRECTORY.findall(end) if "directory: " in end else ()
    return found[-1] if found else None


def open_file_shown(text: str) -> str | None:
    """The file that the harness's editor holds, as the frame names it."""
    found = _OPEN_FILE.findall(text[-_FRAME:]) or _VIEWED.findall(text[:_FRAME])
    return found[-1] if found and found[-1] != "n/a" else None


# from a message and its tool calls; `None`: read it like any other
Language = Callable[[str, Sequence[ToolCall]], Sequence[Action] | None]


class ActionFormat(NamedTuple):
    """How a run's messages hold actions."""

    language: Language | None = None  # the environment's own
    shell: bool = False  # fenced blocks are run
    one: bool = False  # the prompt asks for exactly one block
    tagged: bool = False  # only blocks that are tagged as a shell's
    spoken: bool = False  # somebody answers, so ReAct lines are actions
    frame: bool = False  # one shell that shows where it stands, as SWE-agent's: blocks need no tag


@cache
def _languages() -> dict[str, EntryPoint]:
    return {point.name: point for point in plugin_points("forensics.languages")}


def log_language(trajectory: Trajectory) -> Language | None:
    """The language of a run's messages: the one that is installed under the name
    of its environment (entry point `forensics.languages`), else commands told
    by their head words where the log names the kinds of its actions.
    """
    point = _languages().get(trajectory.environment)
    if point is not None:
        language: Language = load_point("forensics.languages", point)
        return language
    return head_word_actions if any(step.kinds for step in trajectory.steps) else None


def action_format(trajectory: Trajectory) -> ActionFormat:
    """How the actions of this run are written."""
    language = log_language(trajectory)
    if language is not None:
        return ActionFormat(language=language)
    first = next((at for at, step in enumerate(trajectory.steps) if step.role == "assistant"), 0)
    prompt = "\n".join(step.text[:_PROMPTED] for step in trajectory.steps[:first])
    shown = [step.text for step in trajectory.steps[first:] if step.role != "assistant"][:3]
    frame = trajectory.environment == "swe-agent" or any(
        directory_shown(text) is not None for text in shown
    )
    shell = (
        frame or any(exit_code(text) is not None for text in shown) or bool(_ASKS.search(prompt))
    )
    spoken = first + 1 < len(trajectory.steps)
    tagged = not shell and spoken and blocks_are_run(trajectory.steps[first:])
    return ActionFormat(
        shell=shell or tagged,
        one=bool(_ONE.search(prompt)),
        tagged=tagged,
        spoken=spoken,
        frame=frame,
    )


def calls_of(step: Step, form: ActionFormat, observation: str | None) -> list[RawCall]:
    """The actions of one assistant step. `observation`: the text of the first
    answer, where there is one.
    """
    if step.tool_calls:
        return [RawCall(call.name, arguments_of(call.arguments)) for call in step.tool_calls]
    text = _said(step.text)
    return (
        _batch(text)
        or _tagged(text, form)
        or (react_calls(text) if form.spoken else [])
        or (_blocks(text, form, observation) if form.shell else [])
    )


def _said(text: str) -> str:
    """A message without the visible reasoning that it starts with (whose
    opening tag may stand in the prompt).
    """
    if (found := _THOUGHT.match(text)) is not None:
        return text[found.end() :]
    ends = _THOUGHT_ENDS.search(text) if "</think" in text else None
    return text[ends.end() :] if ends and ends[0].startswith("</think") else text


def _tagged(text: str, form: ActionFormat) -> list[RawCall]:
    if "<" not in text:
        return []
    tagged = spans(text, _TAGGED, "</{}>") if form.shell else ()
    return (tagged_calls(text) or element_calls(text)) + [
        RawCall(_TAGS[tag], {"command": body}) for tag, body in tagged
    ]


def _batch(text: str) -> list[RawCall]:
    """The JSON of a terminal agent: keystrokes in order, and whether it calls the task done."""
    start = text.find("{")
    if start < 0 or '"commands"' not in text:
        return []
    batch = arguments_of(text[start : text.rfind("}") + 1])
    if not isinstance(batch.get("commands"), list):
        return []
    keys = [command.get("keystrokes") for command in batch["commands"] if isinstance(command, dict)]
    line = "".join(
        key for key in keys if isinstance(key, str) and not re.fullmatch(r"(C-\w|Enter)\s*", key)
    )
    done = [RawCall("task_complete", {})] if batch.get("task_complete") is True else []
    return [RawCall("terminal", {"command": line})] * bool(line.strip()) + done


def _blocks(text: str, form: ActionFormat, observation: str | None) -> list[RawCall]:
    first = text.find("```")
    if first < 0:
        return []
    bare = form.frame or not (form.one or form.tagged)
    blocks = ((tag, body.removesuffix("\r")) for tag, body in _FENCE.findall(text, first))
    found = [body for tag, body in blocks if tag.lower() in SHELL_TAGS or (bare and not tag)]
    if len(found) > 1 and form.frame:
        found = found[-1:]
    elif len(found) > 1 and form.one:
        found = found[-1:] if observation is not None and exit_code(observation) is not None else []
    return [RawCall("shell", {"command": body}) for body in found]


def actions_of(trajectory: Trajectory) -> tuple[Action, ...]:
    """Every action of a run, in order. Never raises for what is in the log."""
    run = _Run(trajectory)
    for at, _ in trajectory.actions:
        run.step(at)
    return tuple(run.actions)


def root_of(trajectory: Trajectory) -> str | None:
    """The folder of the work, as far as the log tells: by a frame, by the
    prompt, or where the first `cd` goes.
    """
    moved = None
    for step in trajectory.steps:
        shown = directory_shown(step.text) if step.role != "assistant" else None
        if shown and not _NO_ROOT.fullmatch(shown):
            return shown.rstrip("/")
        text = step.text[:_PROMPTED]
        named = step.role in ("system", "user") and any(mark in text for mark in _ROOT_MARKS)
        if named and (found := _ROOT.search(text)):
            return next(group for group in found.groups() if group).rstrip("/.") or None
        if moved is None and step.role == "assistant":
            text = "\n".join([step.text, *(call.arguments for call in step.tool_calls)])[:_PROMPTED]
            moved = next(
                (path for path in _MOVED.findall(text) if not _NO_ROOT.fullmatch(path)), None
            )
    return moved.rstrip("/.") if moved else None


class _Run:
    """One pass over a run: where its shell stands, which file its editor holds,
    which files it wrote.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.actions: list[Action] = []
        self._steps = trajectory.steps
        self._format: ActionFormat = action_format(trajectory)
        self._root = root_of(trajectory)
        self._directory: str | None = ""
        self._opened: str | None = None
        self._wrote: dict[str, str] = {}
        self._aliases = Aliases()

    def step(self, at: int) -> None:
        answers = answers_of(self._steps, at)
        step, language = self._steps[at], self._format.language
        said = language and language(step.text, step.tool_calls)
        if said is not None:
            self.actions += [
                action.answered(
                    at, answers[min(number, len(answers) - 1)] if answers else None, None
                )
                for number, action in enumerate(said)
            ]
            return
        observation = self._steps[answers[0]].text if answers else None
        calls = calls_of(step, self._format, observation)
        for number, call in enumerate(calls):
            answer = answers[min(number, len(answers) - 1)] if answers else None
            shown = self._steps[answer].text if answer is not None else ""
            code = exit_code(shown) if answer is not None and language is None else None
            for action in self._ran(self._actions(call)):
                self.actions.append(action.answered(at, answer, code))
            self._look(shown)

    def _look(self, shown: str) -> None:
        """Believe what the harness shows of itself."""
        if (directory := directory_shown(shown)) is not None:
            self._directory = directory
        if self._format.frame:
            self._opened = open_file_shown(shown) or self._opened

    def _actions(self, call: RawCall) -> list[Action]:
        line = command_line(call.name, call.arguments)
        if line is not None:
            return self._line(call, line)
        program = program_text(call.name, call.arguments)
        if program is not None:
            action = Action(0, "command", "python", ("-c",), text=program, content=program)
            return with_effects(action, python_effects(program), self._directory, self._root)
        action = action_of_call(
            call.name, call.arguments, self._directory, self._root, self._opened
        )
        self._opened = next(iter(action.writes or action.reads), self._opened)
        return [action]

    def _line(self, call: RawCall, line: str) -> list[Action]:
        viewed = (
            viewer_action(line, self._directory, self._root, self._opened)
            if self._format.frame
            else None
        )
        if viewed is not None:
            self._opened = next(iter(viewed.writes or viewed.reads), self._opened)
            return [viewed]
        told = actions_of_line(line, self._directory, self._root)
        if self._format.frame or LASTING.fullmatch(call.name):
            self._directory = told.directory
        return [
            self._own(meant)
            for action in told.actions
            for meant in self._aliases.undone(action, self._directory, self._root)
        ]

    def _own(self, action: Action) -> Action:
        """A command that the harness added to its shell."""
        if action.program == "submit":
            return action._replace(kind="submit")
        if (
            action.program in ("edit", "insert")
            and self._format.frame
            and self._opened
            and action.arguments
        ):
            writes = (relative_path(self._directory, self._opened, self._root),)
            return action._replace(kind="edit", writes=writes, content=action.arguments[-1])
        return action

    def _ran(self, actions: list[Action]) -> list[Action]:
        """Put what own scripts do beside the actions that run them; keep what was written."""
        found: list[Action] = []
        for action in actions:
            script = (
                self._wrote.get(script_of(action) or "") if len(found) < MOST_SCRIPTS * 10 else None
            )
            if script is None:
                found.append(action)
            elif action.program == "python" or (script_of(action) or "").endswith(".py"):
                told = action._replace(content=script)
                found += with_effects(told, python_effects(script), self._directory, self._root)
            else:
                line = with_arguments(script, action)
                found += [action, *actions_of_line(line, self._directory, self._root).actions]
            if action.content is not None and len(action.writes) == 1:
                self._wrote[action.writes[0]] = action.content
        return found
