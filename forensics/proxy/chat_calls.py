"""One call in chat form, whichever dialect it came in: `Asked`, and what is answered (`Delta`,
`Answer`).

Which earlier call a request goes on from: `Lineage`.

1. A request *extends* a call where its messages begin with that call's messages and its answer.
   Messages are compared by what they say (role, text without white space around it, tool calls
   by name and arguments), since agents write them anew.
2. A request *follows* a call where the last answer in it is that call's, but what stands before
   was rewritten.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, NamedTuple

from forensics.policies.completions import Broken

Message = dict[str, Any]
CARRIED: Final = (  # of a chat request, what says what is asked and not how it is drawn
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "stop",
    "reasoning_effort",
    "chat_template_kwargs",
)


class Refused(Exception):
    """A request that is not answered: a status and one sentence."""

    def __init__(self, status: int, words: str, code: str = "invalid_request_error") -> None:
        super().__init__(words)
        self.status, self.words, self.code = status, words, code


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request. `messages` and `tools` as chat completions have them; `more`: further fields
    that the server is given. `counts`: the stream is to end with its usage. `unheeded`: what the
    agent wished that is not done; of texts and objects the name alone.
    """

    dialect: str
    model: str
    messages: list[Message]
    tools: list[Any] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    counts: bool = False
    unheeded: dict[str, Any] = field(default_factory=dict)


def wishes(body: Mapping[str, Any], heeded: frozenset[str]) -> dict[str, Any]:
    """The fields of a request that are not heeded: numbers with their value, others by name."""
    plain = int | float | None
    return {
        str(name)[:80]: value if isinstance(value, plain) else "given"
        for name, value in body.items()
        if name not in heeded
    }


class CallDelta(NamedTuple):
    """A piece of one tool call; `name` and `key` come with its first."""

    place: int
    key: str = ""
    name: str = ""
    arguments: str = ""


class Delta(NamedTuple):
    """A piece of an answer, or a whole one. `ids`, `logprobs` (nats): of its tokens; `prompt_ids`
    of what stands before. `None`: the server does not say.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    finish: str | None = None
    ids: list[int] | None = None
    logprobs: list[float] | None = None
    prompt_ids: list[int] | None = None
    usage: dict[str, int] | None = None


def read_delta(body: Any, held: str, whole: bool = False) -> Delta:
    """A chat completion (`held` is `message`) or a chunk of one (`delta`). Raises `Broken`."""
    if not isinstance(body, dict) or not isinstance(choices := body.get("choices"), list):
        raise Broken("an answer without choices")
    usage = _usage(body.get("usage"))
    if not choices:
        if whole:
            raise Broken("an answer with no choice")
        return Delta(usage=usage)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    said = choice.get(held)
    if not isinstance(said, dict):
        if whole:
            raise Broken("a choice without a message")
        said = {}
    ids, logprobs = _tokens(choice)
    return Delta(
        content=_text(said.get("content")) or _text(said.get("refusal")),
        reasoning=_text(said.get("reasoning_content")) or _text(said.get("reasoning")),
        calls=tuple(_calls(said.get("tool_calls"))),
        finish=_text(choice.get("finish_reason")) or None,
        ids=ids,
        logprobs=logprobs,
        prompt_ids=_ids(body.get("prompt_token_ids", choice.get("prompt_token_ids"))),
        usage=usage,
    )


def _calls(told: Any) -> list[CallDelta]:
    found = []
    for place, call in enumerate(told if isinstance(told, list) else ()):
        call = call if isinstance(call, dict) else {"function": {"arguments": call}}
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        index, arguments = call.get("index"), function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
        number = index if isinstance(index, int) and 0 <= index < 1000 else place
        found.append(
            CallDelta(number, _text(call.get("id")), _text(function.get("name")), arguments)
        )
    return found


def _tokens(choice: Mapping[str, Any]) -> tuple[list[int] | None, list[float] | None]:
    """Ids and log-probabilities of a choice's tokens; ids may stand as `token_id:N` only."""
    told = choice.get("logprobs")
    rows = told.get("content") if isinstance(told, dict) else None
    rows = rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else None
    ids, logprobs = _ids(choice.get("token_ids")), None
    if rows is not None:
        values = [row.get("logprob") for row in rows]
        good = all(isinstance(value, int | float) and isfinite(value) for value in values)
        logprobs = [float(value) for value in values] if good else None
        names = [_text(row.get("token")).partition("token_id:") for row in rows]
        if ids is None and rows and all(not one[0] and one[2].isdecimal() for one in names):
            ids = [int(one[2]) for one in names]
    return ids, logprobs


def _ids(told: Any) -> list[int] | None:
    whole = isinstance(told, list) and {*map(type, told)} <= {int}
    return told if whole and min(told, default=0) >= 0 else None


def _text(value: Any) -> str:
    if not isinstance(value, str) or value.isascii():
        return value if isinstance(value, str) else ""
    return value.encode(errors="replace").decode()  # half of a pair is no text


def _usage(told: Any) -> dict[str, int] | None:
    names = ("prompt_tokens", "completion_tokens")
    if not isinstance(told, dict) or not all(type(told.get(name)) is int for name in names):
        return None
    return {name: told[name] for name in names}


@dataclass
class Answer:
    """What was drawn in one call, from its pieces."""

    content: str = ""
    reasoning: str = ""
    calls: dict[int, CallDelta] = field(default_factory=dict)
    finish: str | None = None
    ids: list[int] | None = None
    logprobs: list[float] | None = None
    prompt_ids: list[int] | None = None
    usage: dict[str, int] | None = None

    def take(self, delta: Delta) -> None:
        """Add a piece."""
        self.content += delta.content
        self.reasoning += delta.reasoning
        for piece in delta.calls:
            had = self.calls.get(piece.place, CallDelta(piece.place))
            self.calls[piece.place] = CallDelta(
                piece.place,
                had.key or piece.key,
                had.name or piece.name,
                had.arguments + piece.arguments,
            )
        self.ids = _joined(self.ids, delta.ids)
        self.logprobs = _joined(self.logprobs, delta.logprobs)
        self.finish = delta.finish or self.finish
        self.prompt_ids = delta.prompt_ids or self.prompt_ids
        self.usage = delta.usage or self.usage

    def called(self) -> list[CallDelta]:
        """The tool calls, in order, each with an id."""
        ordered = [self.calls[index] for index in sorted(self.calls)]
        return [one._replace(key=one.key or f"call_{one.place}") for one in ordered]

    @property
    def said(self) -> tuple[Any, ...]:
        """What tells two answers apart: text and tool calls, no ids."""
        return self.content, *((call.name, call.arguments) for call in self.called())

    @property
    def malformed(self) -> list[int]:
        """Which tool calls have no name, or arguments that are no JSON object."""
        called = enumerate(self.called())
        return [at for at, one in called if not one.name or arguments_of(one) is None]

    @property
    def message(self) -> Message:
        """The answer as a message of a chat."""
        told: Message = {"role": "assistant", "content": self.content}
        if self.reasoning:
            told["reasoning_content"] = self.reasoning
        if self.calls:
            told["tool_calls"] = [
                {
                    "id": one.key,
                    "type": "function",
                    "function": {"name": one.name, "arguments": one.arguments},
                }
                for one in self.called()
            ]
        return told


def _joined(had: list[Any] | None, more: list[Any] | None) -> list[Any] | None:
    if had is None or more is None:
        return had if more is None else list(more)
    had.extend(more)
    return had


def arguments_of(call: CallDelta) -> dict[str, Any] | None:
    """The arguments of a call, `{}` where there are none; `None` where they are no JSON object."""
    try:
        found = json.loads(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


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
