"""Where the actions stand in a message: structured calls, tags, fenced blocks, or the whole text.

1. Structured calls are actions as they are. Else the text decides, without its visible reasoning (`<think>`).
2. Tagged calls (`<function=...>`, `<tool_call>`, `<execute_bash>`), and the JSON batches of terminal agents.
3. Fenced blocks are actions only where the run is one in a shell: the prompt asks for a block, or what came back has a
   shell harness's frame. Where the prompt asks for exactly one block, a message with several ran nothing
   (mini-swe-agent), unless an exit code came back; SWE-agent runs the last one.
4. Where the environment names the kinds of its actions (`mini-repo`), the whole text is its own small language, read
   by its head words.

A command that is quoted in prose is no action; neither is a block in a chat where nothing runs.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from forensics.acts.answers import directory_shown, exit_code
from forensics.acts.tools import arguments_of
from forensics.records import Step, Trajectory

_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.S)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>|```|<function=|<tool_call>")
_FENCE = re.compile(r"^```([\w+-]*)[ \t]*\r?\n([^\n]*(?:\n(?!```)[^\n]*)*+)\n```", re.M)
_SHELLS: Final = ("bash", "sh", "shell", "console", "mswea_bash_command", "zsh")
_FUNCTION = re.compile(r"<function=([\w.-]{1,80})>")
_PARAMETER = re.compile(r"<parameter=([\w.-]{1,80})>")
_CALL = re.compile(r"<(tool_call)>")
_TAGS: Final = {"execute_bash": "bash_session", "execute_ipython": "python", "bash": "bash"}
_TAGGED = re.compile(r"<(execute_bash|execute_ipython|bash)>")
_ASKS = re.compile(
    r"```(?:bash|sh|shell|mswea_bash_command)|<(?:execute_)?bash>|bash (?:code )?block|triple backticks"
    r"|code block[^\n]{0,40}command", re.I,
)
_ONE = re.compile(r"exactly one", re.I)
_PROMPTED: Final = 60_000  # characters of a prompt that are looked through


class Habit(NamedTuple):
    """How a run's messages hold actions."""

    language: bool = False  # the whole text is in the small language of `mini-repo`
    shell: bool = False  # fenced blocks are run
    one: bool = False  # the prompt asks for exactly one block
    frame: bool = False  # one shell that shows where it stands, as SWE-agent's: blocks need no tag


class Call(NamedTuple):
    """One action as it stands in a message: a tool by its name, or `shell`, with its arguments."""

    name: str
    arguments: dict[str, Any]
    text: str | None = None  # of a fenced block, or of the small language


def habit_of(trajectory: Trajectory) -> Habit:
    """How the actions of this run are written."""
    if trajectory.environment == "mini-repo" or any(step.kinds for step in trajectory.steps):
        return Habit(language=True)
    first = next((at for at, step in enumerate(trajectory.steps) if step.role == "assistant"), 0)
    prompt = "\n".join(step.text[:_PROMPTED] for step in trajectory.steps[:first])
    shown = [step.text for step in trajectory.steps[first:] if step.role != "assistant"][:3]
    frame = trajectory.environment == "swe-agent" or any(directory_shown(text) is not None for text in shown)
    shell = frame or any(exit_code(text) is not None for text in shown) or bool(_ASKS.search(prompt))
    return Habit(shell=shell, one=bool(_ONE.search(prompt)), frame=frame)


def calls_of(step: Step, habit: Habit, came_back: str | None) -> list[Call]:
    """The actions of one assistant step. `came_back`: the text of the first answer, where there is one."""
    if step.tool_calls:
        return [Call(call.name, arguments_of(call.arguments)) for call in step.tool_calls]
    if habit.language:
        return [Call("", {}, part.strip()) for part in step.text.split(";") if part.strip()]
    text = _said(step.text)
    return _batch(text) or _tagged(text, habit) or (_blocks(text, habit, came_back) if habit.shell else [])


def _said(text: str) -> str:
    """A message without the visible reasoning that it starts with (whose opening tag may stand in the prompt)."""
    if (found := _THOUGHT.match(text)) is not None:
        return text[found.end() :]
    ends = _THOUGHT_ENDS.search(text) if "</think" in text else None
    return text[ends.end() :] if ends and ends[0].startswith("</think") else text


def _tagged(text: str, habit: Habit) -> list[Call]:
    if "<" not in text:
        return []
    functions = _spans(text, _FUNCTION, "</function>")
    found = [Call(name, dict(_spans(body, _PARAMETER, "</parameter>"))) for name, body in functions]
    for _, body in _spans(text, _CALL, "</tool_call>"):
        call = _json(body)
        if isinstance(call, dict) and isinstance(call.get("name"), str):
            given = call.get("arguments", {})
            found.append(Call(call["name"], given if isinstance(given, dict) else arguments_of(str(given))))
    tagged = _spans(text, _TAGGED, "</{}>") if habit.shell else ()
    return found + [Call(_TAGS[tag], {"command": body}) for tag, body in tagged]


def _spans(text: str, opening: re.Pattern[str], closing: str) -> Iterator[tuple[str, str]]:
    """Each `(name, what stands up to its closing tag)`, in linear time; what is not closed is left out."""
    at = 0
    while found := opening.search(text, at):
        end = text.find(closing.format(found[1]), found.end())
        if end < 0:
            return
        yield found[1], text[found.end() : end].removeprefix("\n").removesuffix("\n")
        at = end


def _batch(text: str) -> list[Call]:
    """The JSON of a terminal agent: keystrokes in order, and whether it calls the task done."""
    start = text.find("{")
    if start < 0 or '"commands"' not in text:
        return []
    batch = _json(text[start : text.rfind("}") + 1])
    if not isinstance(batch, dict) or not isinstance(batch.get("commands"), list):
        return []
    keys = [command.get("keystrokes") for command in batch["commands"] if isinstance(command, dict)]
    line = "".join(key for key in keys if isinstance(key, str) and not re.fullmatch(r"(C-\w|Enter)\s*", key))
    done = [Call("task_complete", {})] if batch.get("task_complete") is True else []
    return [Call("terminal", {"command": line})] * bool(line.strip()) + done


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _blocks(text: str, habit: Habit, came_back: str | None) -> list[Call]:
    first = text.find("```")
    if first < 0:
        return []
    bare = habit.frame or not habit.one
    blocks = ((tag, body.removesuffix("\r")) for tag, body in _FENCE.findall(text, first))
    found = [body for tag, body in blocks if tag.lower() in _SHELLS or (bare and not tag)]
    if len(found) > 1 and habit.frame:
        found = found[-1:]
    elif len(found) > 1 and habit.one:
        found = found[-1:] if came_back is not None and exit_code(came_back) is not None else []
    return [Call("shell", {"command": body}, body) for body in found]
