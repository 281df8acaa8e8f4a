"""Anthropic's messages, as the agent speaks them.

1. Blocks become messages of a chat: results of tools stand before what the user says beside them,
   thinking becomes `reasoning_content`.
2. A tool call is handed on once it is whole; one whose arguments are no JSON object, which a
   `tool_use` cannot hold, is handed on as text.
3. Tools that only Anthropic's own servers run are left out, and that is recorded.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from forensics.proxy.chat_calls import (
    Answer,
    Asked,
    CallDelta,
    Delta,
    Message,
    Refused,
    arguments_of,
    called_as_text,
    text_of,
    wishes,
)
from forensics.proxy.chat_dialect import event, require_text

NAME: Final = "messages"
_HEEDED = frozenset(
    ["messages", "system", "tools", "tool_choice", "stop_sequences", "stream", "model"]
)
_ENDS: Final = {"tool_calls": "tool_use", "length": "max_tokens"}
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def read(body: dict[str, Any]) -> Asked:
    """A request. Raises `Refused`."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "`messages` must be a list of messages")
    told: list[Message] = []
    if body.get("system"):
        require_text(body["system"])
        told.append({"role": "system", "content": text_of(body["system"])})
    for message in messages:
        told += _chat(message)
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
    if body.get("stop_sequences"):
        found["stop"] = body["stop_sequences"]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        found["tool_choice"] = _CHOICES.get(str(choice.get("type")), named)
        if choice.get("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return found


def _tools(tools: Any) -> tuple[list[Any], dict[str, Any]]:
    """Tools as functions, and those that are none by name."""
    given = [one for one in (tools or []) if isinstance(one, dict)]
    own = [one for one in given if isinstance(one.get("input_schema"), dict)]
    functions = [
        {
            "type": "function",
            "function": {
                "name": one.get("name"),
                "description": one.get("description", ""),
                "parameters": one["input_schema"],
            },
        }
        for one in own
    ]
    return functions, {f"tool {one.get('type')}": "left out" for one in given if one not in own}


def _chat(message: Any) -> list[Message]:
    """One message as messages of a chat."""
    role, content = (message.get("role"), message.get("content")) if _is(message) else (None, None)
    if role not in ("user", "assistant", "system"):
        raise Refused(400, "each message has the role user or assistant")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = [one for one in content or [] if _is(one)]
    results = [_result(one) for one in blocks if one.get("type") == "tool_result"]
    rest = [one for one in blocks if one.get("type") not in ("tool_result", "tool_use")]
    require_text([one for one in rest if one.get("type") != "redacted_thinking"])
    texts = [one for one in rest if one.get("type") == "text"]
    calls = [_use(one) for one in blocks if one.get("type") == "tool_use"]
    thoughts = [str(one.get("thinking", "")) for one in rest if one.get("type") == "thinking"]
    said: Message = {"role": role, "content": text_of(texts)}
    said |= {"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {}
    said |= {"tool_calls": calls} if calls else {}
    return [*results, *([said] if texts or calls or thoughts or not results else [])]


def _is(value: Any) -> bool:
    return isinstance(value, dict)


def _result(block: dict[str, Any]) -> Message:
    require_text(block.get("content"))
    text = text_of(block.get("content"))
    return {"role": "tool", "tool_call_id": str(block.get("tool_use_id", "")), "content": text}


def _use(block: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": str(block.get("name", "")), "arguments": arguments}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def whole(answer: Answer, asked: Asked, number: int) -> dict[str, Any]:
    """The answer as one object."""
    thought = [{"type": "thinking", "thinking": answer.reasoning, "signature": ""}]
    text = [{"type": "text", "text": answer.content}]
    content = [*(thought if answer.reasoning else []), *(text if answer.content else [])]
    content += [_block(call) for call in answer.called()]
    return {
        **_head(asked, number),
        "content": content,
        "stop_reason": _end(answer),
        "usage": _usage(answer),
    }


def _head(asked: Asked, number: int) -> dict[str, Any]:
    told = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.model}
    return {**told, "content": [], "stop_reason": None, "stop_sequence": None}


def _block(call: CallDelta) -> dict[str, Any]:
    arguments = arguments_of(call)
    if arguments is None or not call.name:
        return {"type": "text", "text": called_as_text(call.name, call.arguments)}
    return {"type": "tool_use", "id": call.key, "name": call.name, "input": arguments}


def _end(answer: Answer) -> str:
    used = any(_block(call)["type"] == "tool_use" for call in answer.called())
    if used and answer.finish != "length":
        return "tool_use"
    return (
        _ENDS.get(answer.finish or "", "end_turn") if answer.finish != "tool_calls" else "end_turn"
    )


def _usage(answer: Answer) -> dict[str, int]:
    told = answer.usage or {}
    return {
        "input_tokens": told.get("prompt_tokens", 0),
        "output_tokens": told.get("completion_tokens", 0),
    }


class Events:
    """The answer as events."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._message = {**_head(asked, number), "usage": _usage(Answer())}
        self._at, self._open = -1, ""  # the running block and its kind

    def opened(self) -> Iterator[bytes]:
        yield _event("message_start", message=self._message)

    def piece(self, delta: Delta) -> Iterator[bytes]:
        if delta.reasoning:
            yield from self._begun("thinking", {"thinking": "", "signature": ""})
            yield self._more("thinking_delta", thinking=delta.reasoning)
        if delta.content:
            yield from self._begun("text", {"text": ""})
            yield self._more("text_delta", text=delta.content)

    def ended(self, answer: Answer) -> Iterator[bytes]:
        yield from self._stopped()
        for block in map(_block, answer.called()):
            if block["type"] == "text":
                yield from self._begun("text", {"text": ""})
                yield self._more("text_delta", text=block["text"])
            else:
                given = json.dumps(block.pop("input"), ensure_ascii=False)
                yield from self._begun(block.pop("type"), {**block, "input": {}})
                yield self._more("input_json_delta", partial_json=given)
            yield from self._stopped()
        end = {"stop_reason": _end(answer), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage=_usage(answer))
        yield _event("message_stop")

    def failed(self, words: str) -> bytes:
        return _event("error", error={"type": "api_error", "message": words})

    def _begun(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self._stopped()
        self._at, self._open = self._at + 1, kind
        yield _event("content_block_start", index=self._at, content_block={"type": kind, **block})

    def _more(self, kind: str, **told: str) -> bytes:
        return _event("content_block_delta", index=self._at, delta={"type": kind, **told})

    def _stopped(self) -> Iterator[bytes]:
        if self._open:
            self._open = ""
            yield _event("content_block_stop", index=self._at)


def _event(kind: str, **told: Any) -> bytes:
    return event({"type": kind, **told}, kind)
