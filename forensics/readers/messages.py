"""Chat messages as steps, whichever of the usual shapes they have.

Known: OpenAI chat completions (`content` a text or parts, `tool_calls`, the
older `function_call`), OpenAI responses (items `function_call`,
`function_call_output`, `reasoning`), LangChain (`type` beside the content, or `data`,
or `kwargs`), Anthropic (parts `tool_use`, `tool_result`, `thinking`), Inspect (tool
calls with `function` a name, parts `reasoning` and `tool_use` with its result),
`from`/`value` pairs, and the parts of other products.

1. A message is one step. What a tool sent back inside a message becomes a step
   of its own behind it.
2. Visible reasoning stands in front of the text between `<think>` and
   `</think>`; redacted reasoning is left out.
3. What is no text (images, sound, files) becomes its kind in brackets; it is
   never decoded.

Parts of a message that call a tool or hold what one sent back, whatever a product
calls them: `call_part`.

Known beside Anthropic's and Inspect's (`messages`): Bedrock Converse (`toolUse`,
`toolResult`, `reasoningContent`), Gemini (`functionCall`, `functionResponse`), the
Vercel AI SDK (`tool-call` and `tool-result`; in an interface's messages `tool-NAME`,
`dynamic-tool` and `tool-invocation`, which hold the call and its result), and every
kind that ends in `tool_use`, `tool_call` or `tool_result`.

What tools sent back, in the order of the calls that it answers: `in_order`, for chat messages.

An answer may call several tools, and what they send back may come in any order, each with the id
of its call. Actions and results are paired by their order, so results are put into that of the
calls; a call between them that nobody answered has an empty one. Without ids they stay as they are.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forensics.actions.untrusted import first_of, json_value
from forensics.readers.content import JsonObject
from forensics.readers.values import TABLES, as_list, as_mapping, field_names
from forensics.records import Step, ToolCall
from forensics.records.trajectory import Role

_NAMES = field_names("parts")
ANSWERS = ("tool_result", "tool_call_response")
HELD = {  # the kind of what stands under a name of its own
    **dict.fromkeys(_NAMES.calls, "tool_use"),
    "toolInvocation": "tool-invocation",
    **dict.fromkeys(_NAMES.results, "tool_result"),
}
ROLES: dict[str, Any] = {name: role for role, names in TABLES["roles"].items() for name in names}
ITEMS: dict[str, Role] = {
    "function_call": "assistant",
    "function_call_output": "tool",
    "reasoning": "assistant",
}
SPEAKERS = ("human", "ai", "system", "tool", "function")  # of LangChain
SPECIAL = frozenset(
    ["tool_calls", "function_call", "reasoning_content", "reasoning", "error", "type"]
)
Resolve = Callable[[Any], Any]


def is_message(value: Any) -> bool:
    """Whether a JSON value looks like a chat message."""
    return isinstance(value, Mapping) and (_role(value) is not None)


def is_conversation(value: Any) -> bool:
    """Whether a JSON value is a list of chat messages."""
    return isinstance(value, list) and bool(value) and is_message(value[0])


def steps_of(messages: Iterable[Any], resolve: Resolve = lambda value: value) -> tuple[Step, ...]:
    """The steps of a conversation; `resolve` replaces what strings stand for. Calls that follow
    each other as items are of one answer; results stand in the order of their calls. Raises
    `ValueError` for a stranger.
    """
    alone = isinstance(messages, list) and len(messages) == 1
    ordered = messages if alone else in_order(_together(messages))
    return tuple(
        step for number, message in enumerate(ordered) for step in _steps(message, number, resolve)
    )


def _together(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages with items of one answer put together: calls that follow each other, and
    reasoning with what follows it; reasoning that shows nothing is no message.
    """
    calls: list[Any] = []
    thoughts: list[str] = []
    for message in messages:
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "function_call":
            calls.append(message)
            continue
        if calls:
            yield _called(calls, thoughts)
            calls, thoughts = [], []
        if kind == "reasoning" and "role" not in message:
            parts = [*as_list(message.get("content")), *as_list(message.get("summary"))]
            texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
            own = [message.get("reasoning_content"), message.get("reasoning"), message.get("text")]
            thoughts += [text for value in (*own, *texts) for text in _strings(value)]
            continue
        if thoughts and _role(message) == "assistant":
            message = {**message, "reasoning_content": "\n".join(thoughts)}
        elif thoughts:
            yield {"role": "assistant", "reasoning_content": "\n".join(thoughts)}
        thoughts = []
        yield message
    if calls or thoughts:
        yield _called(calls, thoughts)


def _called(calls: list[Any], thoughts: list[str]) -> Any:
    if len(calls) == 1 and not thoughts:
        return calls[0]
    message = {"role": "assistant", "tool_calls": calls}
    return {**message, "reasoning_content": "\n".join(thoughts)} if thoughts else message


@dataclass
class _Parts:
    """What the parts of a message's content hold."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def text(self) -> str:
        thought = "\n".join(self.thoughts)
        return (f"<think>\n{thought}\n</think>\n" if thought else "") + "\n".join(self.texts)


def _role(message: JsonObject) -> Role | None:
    name = message.get("role", message.get("from"))
    if isinstance(name, str):
        return ROLES.get(name.lower())
    kind = message.get("type")
    if not isinstance(kind, str):
        return None
    return ITEMS.get(kind) or (ROLES.get(_speaker(message) or "") if _held(message) else None)


def _held(message: JsonObject) -> JsonObject | None:
    """What LangChain keeps of a message under a name of its own; the message itself where it
    says its kind and its content.
    """
    for key in ("data", "kwargs"):
        if isinstance(held := message.get(key), Mapping) and "content" in held:
            return held
    return message if message.get("type") in SPEAKERS and "content" in message else None


def _speaker(message: JsonObject) -> str | None:
    """Who speaks: `ai`, or the class at the end of an `id` (`AIMessage`)."""
    place, kind = message.get("id"), message.get("type")
    if kind == "constructor" and isinstance(place, list) and place:
        kind = str(place[-1]).removesuffix("Chunk").removesuffix("Message").lower()
    return kind if kind in SPEAKERS else None


def _steps(message: Any, number: int, resolve: Resolve) -> Iterator[Step]:
    if not isinstance(message, Mapping):
        raise ValueError(f"message {number} is no object")
    role = _role(message)
    if role is None:
        raise ValueError(f"message {number} has the unknown role {str(message.get('role'))[:40]!r}")
    if "role" not in message and "from" not in message and (held := _held(message)) is not None:
        message = {**held, "role": role, "type": None}
    if message.get("from") in ("function_call", "tool_call"):
        message = {"role": "assistant", "tool_calls": _spoken_calls(message.get("value"))}
    content = message.get("content")
    shown = "parts" in message or "toolInvocations" in message  # as an interface shows it
    if isinstance(content, str) and not shown and not any(map(message.get, SPECIAL)):
        yield Step(role=role, text=resolve(content))  # most messages
        return
    if shown and (told := list(turns(message))):
        for turn in told:
            yield from _steps(turn, number, resolve)
        return
    parts = _parts(resolve(_content(message)))
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    parts.thoughts[:0] = _strings(resolve(thought))
    parts.calls += _calls(message, resolve)
    if role == "tool":
        parts.texts += _error(message, parts.texts)
    text = parts.text()
    if text or parts.calls or not parts.results:
        yield Step(role=role, text=text, tool_calls=tuple(parts.calls))
    for result in parts.results:
        yield tool_step(result)


def _spoken_calls(value: Any) -> list[Any]:
    """The calls in a text of JSON, one or a list; a text that is none is the name of one."""
    told = json_value(value) if isinstance(value, str) else value
    told = {"name": value} if told is None else told
    calls = told if isinstance(told, list) else [told]
    return [call for call in calls if isinstance(call, Mapping)]


def _content(message: JsonObject) -> Any:
    content = first_of(message, ("content", "value", "output", "text"))
    return "" if content is None else content


def _parts(content: Any) -> _Parts:
    parts = _Parts()
    for part in content if isinstance(content, list) else [content]:
        _add(parts, part)
    return parts


def _add(parts: _Parts, part: Any) -> None:
    if not isinstance(part, Mapping):
        parts.texts.append(part if isinstance(part, str) else json.dumps(part, ensure_ascii=False))
        return
    kind = part.get("type", "text")
    if kind in ("reasoning", "thinking", "redacted_thinking"):
        held = map(part.get, ("reasoning", "thinking", "text", "content"))
        parts.thoughts += [] if part.get("redacted") else _strings(next(filter(None, held), None))
    elif kind == "tool_use":
        parts.calls.append(tool_call(part.get("name"), part.get("input", part.get("arguments"))))
        parts.results += [_flat(part["result"])] if "result" in part else []
    elif kind == "tool_result":
        parts.results.append(_flat(sent_back(part) if "content" not in part else part["content"]))
    elif isinstance(text := part.get("text", part.get("refusal")), str):
        thought = "thought" in part and part["thought"] is True  # Gemini
        (parts.thoughts if thought else parts.texts).append(text)
    elif kind == "text" and isinstance(text := part.get("content"), str):  # OpenTelemetry
        parts.texts.append(text)
    elif (found := call_part(part)) is not None:
        parts.calls += [] if found.name is None else [tool_call(found.name, found.arguments)]
        parts.results += [_flat(found.result)] if found.answered else []
        parts.thoughts += _strings(found.thought)
    else:
        told = f"[{kind}]" if "type" in part else json.dumps(part, ensure_ascii=False)
        parts.texts.append(told)  # an object that is no part is what a tool sent back


def _flat(content: Any) -> str:
    """What a tool sent back as text; an object that is no part as its JSON."""
    if isinstance(content, Mapping) and not content.keys() & {"type", "text"}:
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        bare = (
            one["json"] if isinstance(one, Mapping) and one.keys() == {"json"} else one
            for one in content
        )
        content = [
            _flat(one) if isinstance(one, Mapping) and "type" not in one else one for one in bare
        ]
    return _parts("" if content is None else content).text()


def _strings(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []


def _calls(message: JsonObject, resolve: Resolve) -> Iterator[ToolCall]:
    """The structured calls of a message, in order."""
    if message.get("type") == "function_call":
        yield tool_call(message.get("name"), resolve(message.get("arguments")))
    older = message.get("function_call")
    listed = message.get("tool_calls")
    for call in [
        *(listed if isinstance(listed, Sequence) else ()),
        *([{"function": older}] if older else ()),
    ]:
        function = call.get("function", call)
        if isinstance(function, str):  # Inspect
            yield tool_call(function, resolve(call.get("arguments")))
        else:
            yield tool_call(
                function.get("name"), resolve(function.get("arguments", function.get("args")))
            )


def tool_call(name: Any, arguments: Any) -> ToolCall:
    """A call by the tool's name and its arguments, a JSON text or a value."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name=str(name), arguments="{}" if arguments is None else text)


def shell_call(line: str, tool: str = "bash") -> ToolCall:
    """A call of a shell."""
    return tool_call(tool, {"command": line})


def tool_step(text: str) -> Step:
    """What a tool sent back."""
    return Step(role="tool", text=text)


def _error(message: JsonObject, shown: list[str]) -> list[str]:
    """The error of a tool message, where the text does not say it already."""
    error = message.get("error")
    told = error.get("message") if isinstance(error, Mapping) else error
    if not isinstance(told, str) or not told or any(told in text for text in shown):
        return []
    return [f"Error: {told}"]


def answer_of(**message: Any) -> Step:
    """One message of the model as a step, by its `content`, `tool_calls` and so on."""
    return steps_of([{**message, "role": "assistant"}])[0]


def message_text(content: Any) -> str:
    """The text of a message's content, whether it is a text, parts, or missing."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(step.text for step in steps_of([{"role": "tool", "content": content}]))


def message_steps(value: Any) -> tuple[Step, ...]:
    """A prompt or an answer as steps, be it a text (of the user), a list of
    messages, or missing.
    """
    if isinstance(value, str):
        return (Step(role="user", text=value),)
    return steps_of(without_empty(message) for message in as_list(value) if is_message(message))


def without_empty(message: Any) -> Any:
    """A message without entries that are `None`: a table gives every row the
    entries of all of them.
    """
    if isinstance(message, Mapping):
        return {key: without_empty(value) for key, value in message.items() if value is not None}
    return [without_empty(value) for value in message] if isinstance(message, list) else message


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


def in_order(messages: Iterable[Any]) -> Iterator[Any]:
    """The messages, results behind several calls in the order of these."""
    called: list[str] = []
    held: list[Any] = []
    for message in messages:
        if called and (answered := _answered(message)):
            if len(answered) > 1:
                message = {**message, "content": _sorted(message["content"], called)}
            held.append(message)
            continue
        if held:
            yield from _placed(held, called)
            held = []
        called = _called_ids(message)
        yield message
    yield from _placed(held, called)


def placed(
    results: Sequence[tuple[str | None, Any]], called: Sequence[str], empty: Any
) -> list[Any]:
    """Results (the id of the call, what came back) in the order of the calls. `empty`: what stands
    for one that is missing before others.
    """
    known = {key: value for key, value in results if key in called}
    if len(called) < 2 or len(known) < len(results):
        return [value for _, value in results]
    last = max((called.index(key) for key in known), default=-1)
    return [known.get(key, empty) for key in called[: last + 1]]


def _placed(held: Sequence[Any], called: Sequence[str]) -> list[Any]:
    keys = [_answered(message) for message in held]
    if any(len(one) != 1 for one in keys):
        return list(held)
    pairs = [(one[0], message) for one, message in zip(keys, held, strict=True)]
    return placed(pairs, called, {"role": "tool", "content": ""})


def _sorted(parts: Sequence[Any], called: Sequence[str]) -> list[Any]:
    """Parts with results, these in order, the others where they are."""
    keys = {
        at: key
        for at, part in enumerate(parts)
        if (key := _key(part, _NAMES.answer_ids, _NAMES.results[:2]))
    }
    if not set(keys.values()) <= set(called):
        return list(parts)
    places = iter(sorted(keys, key=lambda at: called.index(keys[at])))
    return [parts[next(places)] if at in keys else part for at, part in enumerate(parts)]


def _called_ids(message: Any) -> list[str]:
    """The ids of a message's calls, `[]` where there are fewer than two or not all have one."""
    if not isinstance(message, dict):
        return []
    listed, parts = message.get("tool_calls"), message.get("content")
    listed = listed if isinstance(listed, list) else []
    parts = parts if isinstance(parts, list) else []
    if len(listed) + len(parts) < 2:
        return []
    parts = [part for part in parts if _is_call(part)]
    keys = [_key(one, ("call_id", *_NAMES.call_ids), _NAMES.calls[:2]) for one in (*listed, *parts)]
    return [] if None in keys else [key for key in keys if key is not None]


def _answered(message: Any) -> list[str]:
    """The ids of the calls that a message answers."""
    if not isinstance(message, Mapping):
        return []
    parts = [
        _key(part, _NAMES.answer_ids, _NAMES.results[:2])
        for part in as_list(message.get("content"))
    ]
    told = [key for key in parts if key is not None]
    own = _key(message, _NAMES.answer_ids[:2], ())
    return told or ([own] if own is not None else [])


def _is_call(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    named = isinstance(kind, str) and kind.endswith(("tool_use", "tool_call", "tool-call"))
    return named or any(key in part for key in _NAMES.calls[:2])


def _key(part: Any, names: Sequence[str], held: Sequence[str]) -> str | None:
    if not isinstance(part, Mapping):
        return None
    inner = next((part[key] for key in held if isinstance(part.get(key), Mapping)), part)
    names = (*names, "toolUseId", "id") if inner is not part else names
    found: str | None = first_of(inner, names, str)
    return found
