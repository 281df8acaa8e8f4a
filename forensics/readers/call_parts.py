"""Parts of a message that call a tool or hold what one sent back, whatever a product
calls them: `call_part`.

Known beside Anthropic's and Inspect's (`messages`): Bedrock Converse (`toolUse`,
`toolResult`, `reasoningContent`), Gemini (`functionCall`, `functionResponse`), the
Vercel AI SDK (`tool-call` and `tool-result`; in an interface's messages `tool-NAME`,
`dynamic-tool` and `tool-invocation`, which hold the call and its result), and every
kind that ends in `tool_use`, `tool_call` or `tool_result`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forensics.actions.untrusted import first_of
from forensics.readers.content import JsonObject
from forensics.readers.values import as_mapping, field_names

_NAMES = field_names("parts")
ANSWERS = ("tool_result", "tool_call_response")
HELD = {  # the kind of what stands under a name of its own
    **dict.fromkeys(_NAMES.calls, "tool_use"),
    "toolInvocation": "tool-invocation",
    **dict.fromkeys(_NAMES.results, "tool_result"),
}


class CallPart(NamedTuple):
    """`name`: of the tool that is called, `None` where none is. `answered`: whether
    `result` is what a tool sent back.
    """

    name: str | None = None
    arguments: Any = None
    answered: bool = False
    result: Any = None
    thought: str = ""


def call_part(part: JsonObject) -> CallPart | None:
    """A part as a call, an answer or both; `None` where it is neither."""
    for key, meant in HELD.items():
        if isinstance(part.get(key), Mapping):
            return _told(meant, part[key])
    if isinstance(held := part.get("reasoningContent"), Mapping):
        text = as_mapping(held.get("reasoningText")).get("text")
        return CallPart(thought=text if isinstance(text, str) else "")
    kind = part.get("type")
    if not isinstance(kind, str):
        return None
    if kind in _NAMES.silent:
        return CallPart()
    is_call = kind.startswith("tool-") or kind in ("dynamic-tool", "function_call")
    known = is_call or kind.endswith(("tool_use", "tool_call", *ANSWERS))
    return _told(kind, part) if known else None


def sent_back(part: JsonObject) -> Any:
    """What a part with a result holds of it (in Amp's logs what its run gave)."""
    found, held = first_of(part, _NAMES.sent_back), part.get("run")
    return sent_back(held) if found is None and isinstance(held, Mapping) else found


def _told(kind: str, part: JsonObject) -> CallPart:
    held = first_of(part, _NAMES.sent_back)
    result = held["value"] if isinstance(held, Mapping) and "value" in held else held
    if kind in ("tool-result", "tool-error") or kind.endswith(ANSWERS):
        return CallPart(answered=True, result=result)
    name = first_of(part, _NAMES.names, str)
    only_call = kind == "tool-call" or kind.endswith(("tool_use", "tool_call", "function_call"))
    return CallPart(
        kind.removeprefix("tool-") if name is None else name,
        first_of(part, _NAMES.given),
        answered=held is not None and not only_call,
        result=result,
    )


def turns(message: JsonObject) -> Iterator[JsonObject]:
    """The message of an interface as one message for each tool that it ran: it shows
    a whole answer with all of them.
    """
    listed = message.get("toolInvocations")
    called = [{"toolInvocation": one} for one in listed] if isinstance(listed, list) else []
    parts = message.get("parts")
    own = message.get("content")
    rest = [{"type": "text", "text": own}] if isinstance(own, str) and own else []
    held: list[Any] = []
    for part in parts if isinstance(parts, list) else [*called, *rest]:
        held.append(part)
        found = call_part(part) if isinstance(part, Mapping) else None
        if found is not None and found.name is not None and found.answered:
            yield {"role": message.get("role"), "content": held}
            held = []
    if held:
        yield {"role": message.get("role"), "content": held}
