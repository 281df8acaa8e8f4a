"""Actions of policies that speak them: ReAct lines, and blocks in a chat that somebody
runs.

1. `react_calls`: `Action: NAME` and `Action Input: ...` on lines of their own,
   `Action: NAME[...]`, or `Action:` with a JSON object. The input ends where the next
   such line begins.
2. `blocks_are_run`: whether the blocks of a shell (fences, `<execute_bash>`) in a
   run's messages were run. A block in a chat is advice as often as an action, so
   evidence is asked for: a message ends with a block, and what came back looks like
   what a program prints. Once with a sign that only programs print (a frame,
   a commit, a traceback), or twice without one; and more often than somebody
   answered in sentences.
3. `is_prose`: whether a text is somebody's sentences. Letters of other scripts count
   as such, so that no talk is taken for output.
"""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from forensics.actions.called_text import RawCall
from forensics.actions.tool_calls import LONGEST, arguments_of
from forensics.actions.untrusted import TABLES, first_of
from forensics.records import Step

SHELL_TAGS = ("bash", "sh", "shell", "console", "zsh", "mswea_bash_command")
ENDS = ("</execute_bash>", "</execute_ipython>", "</bash>")  # of a message that acts
MOST_CALLS = 200  # of one text
LOOKED = 4000  # characters of an answer that are looked through
_ACTION = re.compile(r"^[ \t]*\**Action(?: \d{1,4})?:\**[ \t]*", re.M)
_INPUT = re.compile(r"^[ \t]*\**Action[ _]Input(?: \d{1,4})?:\**[ \t]*", re.M | re.I)
_NEXT = re.compile(r"^[ \t]*\**(?:Observation|Thought|Action|Final Answer)(?: \d{1,4})?:", re.M)
_BRACKETS = re.compile(r"([A-Za-z_][\w.-]{0,60})\[(.*)\][ \t]*\Z", re.S)
_NAME = re.compile(r"[`\"']?([A-Za-z_][\w.-]{0,60})[`\"']?[ \t]*\Z")
_FENCED = re.compile(r"```[\w+-]{0,20}[ \t]*\n")
_FRAME = re.compile(
    r"\s*(?:Observation|Output|STDOUT|stdout|(?:Tool|Execution) (?:output|result)|Result"
    r"|Exit code|exit code|Command executed)\b[^\n]{0,30}?[:.]"
    r"|\s*<(?:output|stdout|returncode|result|observation)>|\s*\[(?:stdout|exit code|output)",
)
_PRINTED = re.compile(
    r"^(?:commit [0-9a-f]{7,40}\b|diff --git |[0-9a-f]{7,40} \S|Traceback \(most recent call last\)"
    r"|=+ .{1,200} in [\d.]+s|total \d+$|[d-][rwx-]{9}|On branch |fatal: |(?:ba)?sh: )"
    r"|command not found|No such file or directory|Permission denied",
    re.M,
)
_WORD = re.compile(r"[A-Za-z']+")
_TALK, _SMALL = (frozenset(TABLES["prose"][name]) for name in ("talk", "small"))
_SHARE = 0.3  # of words in a sentence that are small ones


def react_calls(text: str) -> list[RawCall]:
    """The calls of ReAct lines in a text, in order."""
    if "Action" not in text or len(text) > LONGEST:
        return []
    found = []
    for start, _ in zip(_ACTION.finditer(text), range(MOST_CALLS), strict=False):
        following = _NEXT.search(text, start.end())
        told = _react_call(text[start.end() : following.start() if following else len(text)])
        found += [told] if told is not None else []
    return found


def _react_call(text: str) -> RawCall | None:
    """The call behind `Action:`, `None` where it is a sentence."""
    given = _INPUT.search(text)
    said = text[: given.start()].strip() if given else text.strip()
    name = _NAME.match(said)
    if given is not None:
        return RawCall(name[1], arguments_of(_bare(text[given.end() :]))) if name else None
    brackets = _BRACKETS.match(said)
    if brackets is not None:
        return RawCall(brackets[1], arguments_of(brackets[2].strip()))
    said = _bare(said)
    return _json_call(arguments_of(said)) if said.startswith("{") else None


def _json_call(call: dict[str, Any]) -> RawCall | None:
    name = first_of(call, ("action", "name", "tool"))
    given = first_of(call, ("action_input", "arguments", "args", "input"))
    given = {} if given is None else given
    if not isinstance(name, str):
        return None
    given = given if isinstance(given, dict | str) else json.dumps(given)
    return RawCall(name, given if isinstance(given, dict) else arguments_of(given))


def _bare(text: str) -> str:
    """A text without the fence or the quotes that it stands in."""
    text = text.strip()
    opened = _FENCED.match(text)
    if opened and text.endswith("```"):
        return text[opened.end() : -3].strip("\n")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "`\"'"
    return text[1:-1] if quoted and text[0] not in text[1:-1] else text


def blocks_are_run(steps: Sequence[Step]) -> bool:
    """Whether the blocks in a run's messages were run: `steps` from its first answer on."""
    signs = likely = prose = 0
    for step, answer in pairwise(steps):
        acts = step.role == "assistant" and answer.role != "assistant" and not step.tool_calls
        if not acts or not ends_with_block(step.text):
            continue
        text = answer.text[:LOOKED]
        if answer.role == "tool" or _FRAME.match(text):
            signs += 1
        elif is_prose(text):
            prose += 1
        elif _PRINTED.search(text) or step.text.rstrip().endswith(ENDS[:2]):
            signs += 1
        else:
            likely += bool(text.strip())
    return (signs > 0 or likely > 1) and signs + likely > prose


def ends_with_block(text: str) -> bool:
    """Whether a message ends with a block for a shell."""
    text = text.rstrip()
    if text.endswith(ENDS):
        return True
    if not text.endswith("```"):
        return False
    start = text.rfind("```", 0, len(text) - 3)
    line = text[start + 3 : text.find("\n", start)] if start >= 0 else ""
    return line.strip().lower() in SHELL_TAGS


def looks_printed(text: str) -> bool:
    """Whether an answer looks like what a program prints."""
    text = text[:LOOKED]
    return bool(text.strip()) and (_FRAME.match(text) is not None or not is_prose(text))


def is_prose(text: str) -> bool:
    """Whether a text is somebody's sentences."""
    text = text[:LOOKED].strip()
    letters = sum(map(str.isalpha, text))
    if letters and sum(sign.isalpha() and not sign.isascii() for sign in text) > 0.3 * letters:
        return True
    words = [word.lower() for word in _WORD.findall(text)]
    if not words or not (text[0].isalpha() or text[0] in "\"'("):
        return False
    small = sum(word in _SMALL or word in _TALK for word in words)
    talks = any(word in _TALK for word in words) or text[-1] in ".?!"
    return talks and (small >= _SHARE * len(words) or len(words) < 6)
