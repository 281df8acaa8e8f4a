"""OpenAI's chat completions, as the agent speaks them."""

import json
import time
from collections.abc import Iterator
from typing import Any

from forensics.proxy.chat_calls import (
    CARRIED,
    Answer,
    Asked,
    CallDelta,
    Delta,
    Message,
    Refused,
    wishes,
)

NAME = "chat"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_HEEDED = frozenset([*CARRIED, "messages", "tools", "model", "stream", "n", "stream_options"])


def read(body: dict[str, Any]) -> Asked:
    """A request. Raises `Refused`."""
    messages, tools = body.get("messages"), body.get("tools") or []
    if not isinstance(messages, list) or not messages or not _are_objects(messages):
        raise Refused(400, "`messages` must be a list of messages")
    if body.get("n") not in (None, 1):
        raise Refused(400, "one answer is given to a call; ask with `n` 1 and call again")
    if body.get("functions") or not isinstance(tools, list) or not _are_objects(tools):
        raise Refused(400, "tools are given as the list `tools`, not as `functions`")
    for message in messages:
        if not isinstance(role := message.get("role"), str) or role not in ROLES:
            raise Refused(400, f"a message has one of the roles {', '.join(sorted(ROLES))}")
        require_text(message.get("content"))
        _require_calls(message)
    options = body.get("stream_options")
    return Asked(
        dialect=NAME,
        model=str(body.get("model", "")),
        messages=[_with_content(message) for message in messages],
        tools=tools,
        more={name: body[name] for name in CARRIED if body.get(name) is not None},
        stream=body.get("stream") is True,
        counts=isinstance(options, dict) and options.get("include_usage") is True,
        unheeded=wishes(body, _HEEDED),
    )


def _are_objects(values: list[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _require_calls(message: Message) -> None:
    calls, older = message.get("tool_calls") or [], message.get("function_call") or {}
    if not isinstance(calls, list) or not _are_objects([*calls, older]):
        raise Refused(400, "the calls of an answer are objects, as they were given; send them so")
    if not _are_objects([call.get("function", {}) for call in calls]):
        raise Refused(400, "a call names its `function` by an object, as it was given; send it so")


def _with_content(message: Message) -> Message:
    """A message that says nothing has an empty text: templates write a missing one as `None`."""
    empty = message.get("content") is None and not message.get("tool_calls")
    return {**message, "content": ""} if empty else message


def require_text(content: Any) -> None:
    """Refuse content that is no text: a server would fetch a picture from an address in it."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind not in ("text", "input_text", "output_text", "refusal", "thinking"):
            raise Refused(400, f"content is text here, not '{str(kind)[:40]}'; leave it out")


def whole(answer: Answer, asked: Asked, number: int) -> dict[str, Any]:
    """The answer as one object."""
    choice = {
        "index": 0,
        "message": {**answer.message, "content": answer.content or (None if answer.calls else "")},
        "finish_reason": answer.finish,
        "logprobs": None,
    }
    return {**_head("chat.completion", asked, number), "choices": [choice], "usage": usage(answer)}


def usage(answer: Answer) -> dict[str, int] | None:
    told = answer.usage
    return None if told is None else {**told, "total_tokens": sum(told.values())}


def _head(kind: str, asked: Asked, number: int) -> dict[str, Any]:
    name, now = f"chatcmpl-{number}", int(time.time())
    return {"id": name, "object": kind, "created": now, "model": asked.model}


class Events:
    """The answer as chunks."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._head, self._counts = _head("chat.completion.chunk", asked, number), asked.counts

    def opened(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def piece(self, delta: Delta) -> Iterator[bytes]:
        said: dict[str, Any] = {"content": delta.content} if delta.content else {}
        said |= {"reasoning_content": delta.reasoning} if delta.reasoning else {}
        if delta.calls:
            said["tool_calls"] = [_call_piece(one) for one in delta.calls]
        if said:
            yield self._chunk(said)

    def ended(self, answer: Answer) -> Iterator[bytes]:
        yield self._chunk({}, answer.finish or "stop")
        if self._counts and answer.usage is not None:
            yield event({**self._head, "choices": [], "usage": usage(answer)})
        yield b"data: [DONE]\n\n"

    def failed(self, words: str) -> bytes:
        return event({"error": {"message": words, "type": "errored_episode"}})

    def _chunk(self, said: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": said, "finish_reason": finish}
        return event({**self._head, "choices": [choice]})


def _call_piece(call: CallDelta) -> dict[str, Any]:
    first = {"id": call.key, "type": "function"} if call.key or call.name else {}
    named = {"name": call.name} if call.name else {}
    return {"index": call.place, **first, "function": {**named, "arguments": call.arguments}}


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")
