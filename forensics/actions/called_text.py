"""Tool calls that stand in the text of a message, by name and arguments.

1. In tags: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen),
   `<function=NAME><parameter=KEY>value</parameter></function>` (OpenHands, Qwen),
   `<function=NAME>{...}</function>` (Llama), `<invoke name="NAME"><parameter
   name="KEY">value</parameter></invoke>` (Anthropic), and tools as elements that begin a
   line (`<execute_command><command>...`, Cline and its kin).
2. Else as JSON that begins a line: an object with a name and arguments, a list of
   such objects, or what an API answers (`tool_calls`, `function`), behind
   `[TOOL_CALLS]` or `<|python_tag|>` too. Arguments may be a text that holds JSON.

Texts are untrusted: they are read, never run, and only so far (`LONGEST`).
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from forensics.actions.apply_patch import searched_texts
from forensics.actions.tool_calls import LONGEST, arguments_of
from forensics.actions.untrusted import first_of

GIVEN = ("arguments", "parameters", "input", "args")  # what calls name their arguments
MOST_TRIES = 50  # places of one text that are tried as JSON
_FUNCTION = re.compile(r"<function=([\w.-]{1,80})>")
_PARAMETER = re.compile(r"<parameter=([\w.-]{1,80})>")
_INVOKE = re.compile(r"""<invoke name=["']([\w.-]{1,80})["']>""")
_NAMED_PARAMETER = re.compile(r"""<parameter name=["']([\w.-]{1,80})["']>""")
_CALL = re.compile(r"<(tool_call)>")
_ELEMENT = re.compile(
    r"^[ \t]*<(execute_command|write_to_file|replace_in_file|apply_diff|insert_content|read_file"
    r"|search_and_replace|search_files|list_files|list_code_definition_names|use_mcp_tool"
    r"|browser_action|attempt_completion)>",
    re.M,
)
_CHILD = re.compile(r"<([a-z_]{1,40})>")
_PATH = re.compile(r"<(path)>")
_JSON = re.compile(r"^[ \t]*(?:\[TOOL_CALLS\]|<\|python_tag\|>|<tool_call>)?\s*(?=[{\[])", re.M)


class RawCall(NamedTuple):
    """One action as it stands in a message: a tool by its name, or `shell`, with its arguments."""

    name: str
    arguments: dict[str, Any]


def calls_in_text(text: str) -> list[RawCall]:
    """Every call in what acts in a text, in order; none where it is no text of calls."""
    if len(text) > LONGEST or ("{" not in text and "<" not in text):
        return []
    return tagged_calls(text) or element_calls(text) or list(_invoked(text)) or list(_written(text))


def tagged_calls(text: str) -> list[RawCall]:
    """`<function=...>` and `<tool_call>`; what is not closed is left out."""
    found = [
        RawCall(name, dict(spans(body, _PARAMETER, "</parameter>")) or _object(body))
        for name, body in spans(text, _FUNCTION, "</function>")
    ]
    for _, body in spans(text, _CALL, "</tool_call>"):
        found += calls_of(arguments_of(body), bare=False)
    return found


def spans(text: str, opening: re.Pattern[str], closing: str) -> Iterator[tuple[str, str]]:
    """Each `(name, what stands up to its closing tag)`, in linear time; what is
    not closed is left out.
    """
    at = 0
    while found := opening.search(text, at):
        end = text.find(closing.format(found[1]), found.end())
        if end < 0:
            return
        yield found[1], text[found.end() : end].removeprefix("\n").removesuffix("\n")
        at = end


def element_calls(text: str) -> list[RawCall]:
    """Tools as elements whose children are their arguments; one without any is none."""
    found = []
    for name, body in spans(text, _ELEMENT, "</{}>"):
        given: dict[str, Any] = dict(spans(body, _CHILD, "</{}>"))
        given |= dict(spans(given.pop("args", ""), _PATH, "</{}>"))
        blocks = searched_texts(given.get("diff", ""))
        texts = ([one.removesuffix("\n") for one in block[1:]] for block in blocks)
        if edits := [{"old_string": old, "new_string": new} for old, new in texts]:
            del given["diff"]
            given |= edits[0] if len(edits) == 1 else {"edits": edits}
        found += [RawCall(name, given)] if given else []
    return found


def _object(body: str) -> dict[str, Any]:
    return arguments_of(body) if body.lstrip().startswith("{") else {}


def _invoked(text: str) -> Iterator[RawCall]:
    for name, body in spans(text, _INVOKE, "</invoke>"):
        yield RawCall(name, dict(spans(body, _NAMED_PARAMETER, "</parameter>")))


def _written(text: str) -> Iterator[RawCall]:
    """Calls as JSON that begins a line."""
    decoder, end = json.JSONDecoder(), 0
    for tried, start in enumerate(_JSON.finditer(text)):
        if tried >= MOST_TRIES:
            return
        if start.end() < end:  # within what was read already
            continue
        try:
            value, end = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            continue
        yield from calls_of(value)


def calls_of(value: Any, bare: bool = True, depth: int = 3) -> list[RawCall]:
    """The calls in a JSON value. `bare`: it stands in no tag, so a name alone is no call."""
    if isinstance(value, list) and depth:
        return [call for one in value for call in calls_of(one, bare, depth - 1)]
    if not isinstance(value, dict):
        return []
    inner = value.get("tool_calls") or value.get("function_call") or value.get("function")
    if isinstance(inner, list | dict) and depth:
        return calls_of(inner, bare, depth - 1)
    name = first_of(value, ("name", "tool"), str)
    given: Any = next((value[key] for key in GIVEN if key in value), None if bare else {})
    if name is None or (bare and not isinstance(given, dict | str)):
        return []
    return [RawCall(name, given if isinstance(given, dict) else arguments_of(str(given)))]
