"""What a tool printed, without what a harness put around it: `unwrapped`.

1. A cheap look first: most answers begin with no brace and hold no numbered lines,
   and are left as they are.
2. A JSON object, a list of parts (`[{"type": "text", "text": ...}]`, as MCP has it)
   or the Python form of a dict is opened where all that it holds is known to belong to
   an answer of a tool: a text (`TEXTS`, or `stdout` and `stderr`) and what goes along
   with it (`ALONG`). An object with any other entry is data that a program
   printed, and stays. What was opened may hold such an answer again (`DEEPEST`).
3. Frames of words (`Observation:`, `Output:`, Cline's `[... ] Result:`,
   `<output>...</output>`) are taken off.
4. Line numbers in front of lines that follow each other (`cat -n`, editors) are
   taken off, with what stands above and below left as it is.

The log keeps what it holds: `unwrapped_run` is a view for a scan. Texts are read as
data, never run, and only up to `LONGEST`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from forensics.actions.untrusted import TABLES, json_value, python_literal
from forensics.records import Step, Trajectory

LONGEST = 1_000_000  # characters of an answer that is parsed
LONGEST_LITERAL = 200_000  # ... as a Python literal
DEEPEST = 4  # answers in answers
_NAMES = TABLES["wrapped"]
TEXTS, STREAMS, CODES = _NAMES["texts"], _NAMES["streams"], _NAMES["codes"]
ALONG = frozenset((*CODES, *_NAMES["along"]))  # what else such an object may hold
PARTS = ("text", "input_text", "output_text")
_OBJECT = re.compile(r"\s*(?:\{\s*[\"'}]|\[\s*\{\s*[\"'])")
_WORDS = re.compile(
    r"\s*(?:\[[\w-]{1,40} for '|Command executed\.[ \t]*\n"
    r"|(?:Observation|OBSERVATION|Output|OUTPUT|(?:Tool|Execution|Command) (?:output|result))"
    r"(?: \d{1,4})?:[ \t]*\n?|<(?:output|stdout|result"
    r"|observation|tool_response|function_results?)>)"
)
_CLOSED = re.compile(
    r"</(?:output|stdout|result|observation|tool_response|function_results?)>\s*\Z"
)
_NUMBERED = re.compile(r"^[ \t]{0,10}(\d{1,7})[ ]?(\t|→|:|\|)", re.M)
_LOOK = 1500  # characters in which the first numbered line stands
_FEWEST = {"\t": 2, "→": 2}  # numbered lines after each other, by the sign behind the number
_USUAL = 4  # ... behind a colon or a bar, which other texts have, too


class _Opened(NamedTuple):
    """What an answer holds, and the exit code that stands beside it."""

    text: str
    code: int | None = None


def unwrapped(text: str) -> str:
    """What a tool printed. The same text where nothing is around it."""
    if len(text) > LONGEST:
        return text
    bare = text
    for _ in range(DEEPEST):
        before, opened = bare, _opened(bare)
        bare = _without_words(bare) if opened is None else opened.text
        if bare == before:
            break
    return _without_numbers(bare)


def wrapped_exit_code(text: str) -> int | None:
    """The exit code that stands in the object around an answer, `None` where none does."""
    opened = _opened(text) if len(text) <= LONGEST else None
    return None if opened is None else opened.code


def unwrapped_run(trajectory: Trajectory) -> Trajectory:
    """A run whose answers are what the tools printed; the same one where they are already."""
    first = next((at for at, step in enumerate(trajectory.steps) if step.role == "assistant"), None)
    if first is None or first + 1 == len(trajectory.steps):
        return trajectory
    rest = trajectory.steps[first + 1 :]
    bare = tuple(map(_bare_step, rest))
    if all(new is old for new, old in zip(bare, rest, strict=True)):
        return trajectory
    return trajectory.model_copy(update={"steps": (*trajectory.steps[: first + 1], *bare)})


def _bare_step(step: Step) -> Step:
    if step.role in ("assistant", "system"):
        return step
    bare = unwrapped(step.text)
    return step if bare == step.text else step.model_copy(update={"text": bare})


@lru_cache(maxsize=64)
def _opened(text: str) -> _Opened | None:
    """The text in an object around it, `None` where there is none."""
    if not _OBJECT.match(text) or text.rstrip()[-1:] not in "}]":
        return None
    value = _value(text.strip())
    return None if value is None else _printed(value, DEEPEST)


def _value(text: str) -> Any:
    value = json_value(text, strict=False)
    if value is not None or len(text) > LONGEST_LITERAL or "'" not in text:
        return value
    return python_literal(text)


def _printed(value: Any, depth: int) -> _Opened | None:
    """What a value says that a tool printed, `None` where it is data of another kind."""
    if isinstance(value, str):
        return _Opened(value)
    if depth and isinstance(value, list) and value:
        parts = [_part(part) for part in value]
        return _Opened("\n".join(map(str, parts))) if None not in parts else None
    return _answer(value, depth) if depth and isinstance(value, dict) else None


def _part(part: Any) -> str | None:
    """The text of one part of a list, a kind in brackets for what is no text."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return None
    text = part.get("text")
    if part["type"] in PARTS:
        return text if isinstance(text, str) else None
    return f"[{part['type'][:40]}]"


def _answer(value: Mapping[Any, Any], depth: int) -> _Opened | None:
    held = [key for key in TEXTS if key in value]
    streams = [key for key in STREAMS if isinstance(value.get(key), str)]
    if not (held or streams) or not value.keys() <= ALONG | {*held, *streams}:
        return None
    inner = [_printed(value[key] if value[key] is not None else "", depth - 1) for key in held]
    if any(one is None for one in inner):
        return None
    printed = [one for one in inner if one is not None]
    code = next((one.code for one in printed if one.code is not None), _code(value))
    texts = [*(one.text for one in printed), *(value[key] for key in streams)]
    error = value.get("error")
    texts += [error] if isinstance(error, str) and error not in texts else []
    return _Opened("\n".join(text for text in texts if text), code)


def _code(value: Mapping[Any, Any]) -> int | None:
    """The exit code that an object names, itself or in its metadata."""
    for holder in (value, value.get("metadata")):
        for key in CODES if isinstance(holder, dict) else ():
            code = holder.get(key)  # type: ignore[union-attr]  # an object here
            if isinstance(code, int) and not isinstance(code, bool) and abs(code) < 1 << 31:
                return code
    return None


def _without_words(text: str) -> str:
    """A text without the words that a harness put in front of it."""
    found = _WORDS.match(text[:200])
    if found is None:
        return text
    if found[0].lstrip().startswith("["):  # `[execute_command for 'LINE'] Result:`
        _, closed, rest = text.partition("'] Result:")
        return rest.removeprefix("\n") if closed else text
    rest = text[found.end() :]
    return _CLOSED.sub("", rest) if found[0].rstrip().endswith(">") else rest


def _without_numbers(text: str) -> str:
    """A text whose longest stretch of numbered lines has its numbers taken off."""
    first = _NUMBERED.search(text[:_LOOK])
    if first is None:
        return text
    sign = first[2]
    start, lines, bare = first.start(), text[first.start() :].split("\n"), []
    expected = int(first[1])
    for line in lines:
        found = _NUMBERED.match(line)
        if found is None or int(found[1]) != expected or found[2] != sign:
            break
        bare.append(line[found.end() :])
        expected += 1
    if len(bare) < _FEWEST.get(sign, _USUAL):
        return text
    if all(line[:1] in ("", " ") for line in bare) and sign in ":|":  # a blank behind each sign
        bare = [line[1:] for line in bare]
    return text[:start] + "\n".join([*bare, *lines[len(bare) :]])
