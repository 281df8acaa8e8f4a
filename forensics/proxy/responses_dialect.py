"""OpenAI's responses, as the agent speaks them.

1. Items become messages of a chat: reasoning, text and calls that follow each other are one
   answer.
2. Nothing is kept between calls: a request with `previous_response_id` is refused.
3. Tools that only OpenAI's own servers run are left out, and that is recorded.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from forensics.proxy.chat_calls import (
    Answer,
    Asked,
    CallDelta,
    Delta,
    Message,
    Refused,
    text_of,
    wishes,
)
from forensics.proxy.chat_dialect import event, require_text

NAME: Final = "responses"
_HEEDED = frozenset(
    ["input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text"]
) | {"stream", "model"}
_STATEFUL: Final = ("previous_response_id", "conversation", "background", "prompt")


def read(body: dict[str, Any]) -> Asked:
    """A request. Raises `Refused`."""
    for name in _STATEFUL:
        if body.get(name):
            raise Refused(400, f"nothing is kept between calls; send the whole input, not `{name}`")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(one, dict) for one in items):
        raise Refused(400, "`input` must be a text or a list of items")
    told: list[Message] = []
    if body.get("instructions"):
        told.append({"role": "system", "content": str(body["instructions"])})
    for item in items:
        _add(told, item)
    tools, left = _tools(body.get("tools"))
    return Asked(
        dialect=NAME,
        model=str(body.get("model", "")),
        messages=told,
        tools=tools,
        more=_more(body),
        stream=body.get("stream") is True,
        unheeded=wishes(body, _HEEDED) | left,
    )


def _more(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if body.get("parallel_tool_calls") is not None:
        found["parallel_tool_calls"] = body["parallel_tool_calls"]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        found["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif isinstance(choice, str):
        found["tool_choice"] = choice
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema = {key: value for key, value in form.items() if key != "type"}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif isinstance(form, dict) and form.get("type") == "json_object":
        found["response_format"] = {"type": "json_object"}
    return found


def _tools(tools: Any) -> tuple[list[Any], dict[str, Any]]:
    given = [one for one in (tools or []) if isinstance(one, dict)]
    own = [one for one in given if one.get("type") == "function"]
    left = {f"tool {one.get('type')}": "left out" for one in given if one not in own}
    named = ("name", "description", "parameters", "strict")
    functions = [{key: one[key] for key in named if one.get(key) is not None} for one in own]
    return [{"type": "function", "function": one} for one in functions], left


def _add(told: list[Message], item: dict[str, Any]) -> None:
    """Add an item to the messages."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        _answer(told, "reasoning_content")["reasoning_content"] = _thought(item)
    elif kind == "function_call":
        function = {"name": str(item.get("name")), "arguments": str(item.get("arguments") or "")}
        call = {"id": str(item.get("call_id")), "type": "function", "function": function}
        _answer(told).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        require_text(item.get("output"))
        key, text = str(item.get("call_id")), text_of(item.get("output"))
        told.append({"role": "tool", "tool_call_id": key, "content": text})
    elif kind == "message" and item.get("role") in ("user", "system", "developer", "assistant"):
        require_text(item.get("content"))
        text = text_of(item.get("content"))
        if item["role"] == "assistant":
            _answer(told, "content", "tool_calls")["content"] = text
        else:
            told.append({"role": item["role"], "content": text})
    else:
        raise Refused(400, f"an item '{str(kind)[:40]}' is not known here; leave it out")


def _answer(told: list[Message], *taken: str) -> Message:
    """The running answer at the end, a new one where it has one of these already."""
    last = told[-1] if told else {}
    if last.get("role") != "assistant" or any(last.get(key) for key in taken):
        told.append({"role": "assistant", "content": ""})
    return told[-1]


def _thought(item: dict[str, Any]) -> str:
    parts = (*(item.get("summary") or ()), *(item.get("content") or ()))
    return text_of(list(parts))


def whole(answer: Answer, asked: Asked, number: int) -> dict[str, Any]:
    """The answer as one object."""
    output = []
    if answer.reasoning:
        output.append(_reasoning(number, answer.reasoning))
    if answer.content or not answer.calls:
        output.append(_message(number, answer.content))
    output += [_call(call) for call in answer.called()]
    cut = answer.finish == "length"
    return {
        **_head(asked, number),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": _usage(answer),
    }


def _head(asked: Asked, number: int) -> dict[str, Any]:
    return {
        "id": f"resp_{number}", "object": "response", "created_at": int(time.time()),
        "model": asked.model, "status": "in_progress", "error": None, "incomplete_details": None,
        "instructions": None, "metadata": {}, "output": [], "parallel_tool_calls": True,
        "temperature": None, "tool_choice": "auto", "tools": [], "top_p": None, "usage": None,
    }  # fmt: skip


def _reasoning(number: int, text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary if text else []}


def _message(number: int, text: str | None) -> dict[str, Any]:
    told = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    if text is None:
        return {**told, "status": "in_progress", "content": []}
    return {**told, "status": "completed", "content": [_part(text)]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: CallDelta, status: str = "completed") -> dict[str, Any]:
    told = {"type": "function_call", "id": f"fc_{call.key}", "call_id": call.key}
    return {**told, "name": call.name, "arguments": call.arguments, "status": status}


def _usage(answer: Answer) -> dict[str, Any] | None:
    if (told := answer.usage) is None:
        return None
    return {
        "input_tokens": told["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": told["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(told.values()),
    }


class Events:
    """The answer as events."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._asked, self._number, self._sent, self._items = asked, number, 0, 0
        self._places: dict[str, int] = {}  # of the items that are open
        self._calls: dict[int, CallDelta] = {}

    def opened(self) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=_head(self._asked, self._number))

    def piece(self, delta: Delta) -> Iterator[bytes]:
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        if delta.content:
            yield from self._text()
            yield self._of("response.output_text.delta", "text", delta=delta.content, logprobs=[])
        for piece in delta.calls:
            yield from self._called(piece)

    def ended(self, answer: Answer) -> Iterator[bytes]:
        if not self._places:
            yield from self._text()
        if "thought" in self._places:
            yield from self._thought(answer.reasoning)
        if "text" in self._places:
            yield self._of("response.output_text.done", "text", text=answer.content, logprobs=[])
            yield self._of("response.content_part.done", "text", part=_part(answer.content))
            yield self._done("text", _message(self._number, answer.content))
        for call in answer.called():
            key, done = f"call {call.place}", "response.function_call_arguments.done"
            yield self._of(done, key, name=call.name, arguments=call.arguments)
            yield self._done(key, _call(call))
        response = whole(answer, self._asked, self._number)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, words: str) -> bytes:
        told = {"code": "server_error", "message": words, "param": None}
        return self._event("error", **told, error=told)

    def _text(self) -> Iterator[bytes]:
        if "text" not in self._places:
            yield self._added("text", _message(self._number, None))
            yield self._of("response.content_part.added", "text", part=_part(""))

    def _think(self, text: str) -> Iterator[bytes]:
        kind, empty = "response.reasoning_summary_", {"type": "summary_text", "text": ""}
        if "thought" not in self._places:
            yield self._added("thought", _reasoning(self._number, ""))
            yield self._of(f"{kind}part.added", "thought", part=empty)
        yield self._of(f"{kind}text.delta", "thought", delta=text)

    def _thought(self, text: str) -> Iterator[bytes]:
        kind, part = "response.reasoning_summary_", {"type": "summary_text", "text": text}
        yield self._of(f"{kind}text.done", "thought", text=text)
        yield self._of(f"{kind}part.done", "thought", part=part)
        yield self._done("thought", _reasoning(self._number, text))

    def _called(self, piece: CallDelta) -> Iterator[bytes]:
        key = f"call {piece.place}"
        if key not in self._places:
            self._calls[piece.place] = piece._replace(key=piece.key or f"call_{piece.place}")
            opened = self._calls[piece.place]._replace(arguments="")
            yield self._added(key, _call(opened, "in_progress"))
        if piece.arguments:
            kind = "response.function_call_arguments.delta"
            yield self._of(kind, key, delta=piece.arguments)

    def _id(self, key: str) -> str:
        if key in ("text", "thought"):
            return f"{'msg' if key == 'text' else 'rs'}_{self._number}"
        return f"fc_{self._calls[int(key.removeprefix('call '))].key}"

    def _added(self, key: str, item: dict[str, Any]) -> bytes:
        self._places[key] = len(self._places)
        kind = "response.output_item.added"
        return self._event(kind, output_index=self._places[key], item=item)

    def _done(self, key: str, item: dict[str, Any]) -> bytes:
        kind = "response.output_item.done"
        return self._event(kind, output_index=self._places[key], item=item)

    def _of(self, kind: str, key: str, **told: Any) -> bytes:
        index = "summary_index" if key == "thought" else "content_index"
        at = {index: 0} if not key.startswith("call ") else {}
        where = {"item_id": self._id(key), "output_index": self._places[key], **at}
        return self._event(kind, **where, **told)

    def _event(self, kind: str, **told: Any) -> bytes:
        self._sent += 1
        return event({"type": kind, "sequence_number": self._sent - 1, **told}, kind)
