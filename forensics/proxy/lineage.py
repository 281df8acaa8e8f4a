"""Which earlier call a request goes on from: `Lineage`.

1. A request *extends* a call where its messages begin with that call's messages and its answer.
   Messages are compared by what they say (role, text without white space around it, tool calls
   by name and arguments), since agents write them anew.
2. A request *follows* a call where the last answer in it is that call's, but what stands before
   was rewritten.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from forensics.proxy.chat_calls import Message


class Descent(NamedTuple):
    """`extends`, `follows`: numbers of calls; `known`: how many messages stood in that call."""

    extends: int | None = None
    follows: int | None = None
    known: int = 0


class Lineage:
    """The calls of one episode, each as a hash."""

    def __init__(self) -> None:
        self._texts: dict[bytes, int] = {}  # messages and answer -> call
        self._answers: dict[bytes, int] = {}
        self._asked: dict[int, bytes] = {}  # a call under way -> its messages

    def begin(self, number: int, messages: Sequence[Message]) -> Descent:
        """Where a request comes from."""
        digest, descent, last = b"", Descent(), b""
        for place, message in enumerate(messages, 1):
            said = _said(message)
            digest = hashlib.blake2b(digest + said, digest_size=16).digest()
            if message.get("role") == "assistant":
                last = said
                if (found := self._texts.get(digest)) is not None:
                    descent = Descent(extends=found, known=place)
                elif descent.extends is not None:
                    descent = Descent()  # an answer that was not drawn here stands behind
        self._asked[number] = digest
        if descent.extends is None and last:
            return Descent(follows=self._answers.get(last))
        return descent

    def waits(self, number: int) -> bool:
        """Whether a call is under way."""
        return number in self._asked

    def answered(self, number: int, answer: Message) -> None:
        """Note what a call was answered."""
        said = _said(answer)
        digest = hashlib.blake2b(self._asked.pop(number, b"") + said, digest_size=16).digest()
        self._texts[digest] = self._answers[said] = number


def _said(message: Message) -> bytes:
    """What a message says, as a hash."""
    role = {"developer": "system"}.get(message.get("role", ""), message.get("role", ""))
    calls = message.get("tool_calls")
    told = [
        text_of(message.get("content")).strip(),
        *(_call(call) for call in (calls if isinstance(calls, list) else ())),
    ]
    text = "\n".join([str(role), *filter(None, told)])
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments") or ""
    try:
        arguments = json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        arguments = str(arguments)
    return called_as_text(str(function.get("name")), arguments)


def called_as_text(name: str, arguments: str) -> str:
    """A tool call as text."""
    return f"{name}({arguments})"


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or parts with texts, a line between them."""
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
