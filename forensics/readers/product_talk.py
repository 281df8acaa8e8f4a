"""The entries of a run as its steps, by the rules of a product's table."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forensics.actions.unread import NOT_UNDERSTOOD
from forensics.actions.untrusted import first_of, python_literal
from forensics.phrases import printable
from forensics.readers.call_order import placed
from forensics.readers.content import Unreadable
from forensics.readers.json_rows import MALFORMED, in_words
from forensics.readers.messages import message_text, steps_of, tool_call, tool_step
from forensics.readers.paths import Place, first, found, places
from forensics.readers.product_table import Entry
from forensics.readers.values import field_names
from forensics.records import Step

LONGEST = 200_000  # characters of a text that may be a Python dictionary


class Part(NamedTuple):
    place: Place
    where: str


@dataclass
class Talk:
    """The steps of a run, entry by entry."""

    path: Path
    steps: list[Step] = field(default_factory=list)
    problems: list[Unreadable] = field(default_factory=list)
    closing: str = ""
    whole: list[Any] = field(default_factory=list)
    _messages: list[tuple[Any, Any, str]] = field(default_factory=list)  # value, id, where
    _called: set[Any] = field(default_factory=set)  # ids of calls
    _order: list[str | None] = field(default_factory=list)  # ... of the last answer
    _waiting: list[tuple[str | None, Step]] = field(default_factory=list)  # results of these

    def add(self, part: Part, rule: Entry | None) -> None:
        """One more entry."""
        place = part.place
        if rule is None:
            self._flush()
            self.steps.append(_unknown(place))
            return
        if rule.silent:
            return
        if rule.unread:
            self._flush()
            self.steps.append(_unknown(place))
            return
        for path in rule.closing:
            self.closing = next((text_of(value) for value in found(place, path)), self.closing)
        whole = _conversation(place, rule.whole)
        self.whole = whole if len(whole) >= len(self.whole) else self.whole
        if rule.message is not None:
            for value in found(place, rule.message):
                self._messages.append((value, first(place, rule.join), part.where))
        elif rule.name or rule.tool or rule.text or rule.thought or rule.result:
            if self._messages:
                self._flush()
            self._add(place, rule)

    def _add(self, place: Place, rule: Entry) -> None:
        """An entry that is no chat message; its results wait for those of the same calls."""
        if not (rule.name or rule.tool or rule.text or rule.thought):
            for one in places(place, rule.calls):
                key, text = _key(one, rule), _results(one, rule) or ""
                calls = len(self.steps[-1].tool_calls) if self.steps else 0
                if key is None and self._waiting and len(self._waiting) >= max(calls, 1):
                    text = f"{self._waiting.pop()[1].text}\n{text}"  # more of the same answer
                self._waiting.append((key, tool_step(text)))
            return
        order: list[str | None] = []
        if steps := list(_spoken(place, rule, self._called, order)):
            self._settle()
            self._order = order
            self.steps += steps

    def _settle(self) -> None:
        """Put what came back in the order of the calls."""
        empty = tool_step("")
        order = [key for key in self._order if key is not None]
        self.steps += placed(self._waiting, order, empty)
        self._waiting = []

    def finished(self) -> list[Step]:
        """The steps of all entries."""
        self._flush()
        if self.whole:
            problems = list(self.problems)
            told = self._steps_of([(value, None, "the conversation") for value in self.whole])
            calls = [sum(len(step.tool_calls) for step in steps) for steps in (told, self.steps)]
            silent = not any(calls) and len(told) > len(self.steps)
            if calls[0] > calls[1] or silent:
                self.steps = told
            else:
                self.problems = problems
        if self.closing and not any(self.closing in step.text for step in self.steps[-1:]):
            self.steps.append(Step(role="assistant", text=self.closing))
        return self.steps

    def _flush(self) -> None:
        self._settle()
        self.steps += self._steps_of(self._messages)
        self._messages = []

    def _steps_of(self, messages: Sequence[tuple[Any, Any, str]]) -> list[Step]:
        whole: list[tuple[Any, str]] = []
        last: Any = None
        for value, key, where in messages:
            message = {"role": "user", "content": value} if isinstance(value, str) else value
            if key is None or key != last:
                own = message if key is None else {**message, "content": [*_parts(message)]}
                whole.append((own, where))
            else:  # parts of one answer
                whole[-1][0]["content"] += _parts(message)
            last = key
        try:
            return list(steps_of(message for message, _ in whole))
        except MALFORMED:
            return [step for message, where in whole for step in self._one(message, where)]

    def _one(self, message: Any, where: str) -> Iterable[Step]:
        try:
            return steps_of([message])
        except MALFORMED as error:
            reason = in_words(error)
            self.problems.append(Unreadable(self.path, reason, where))
            return ()


def _conversation(place: Place, paths: Sequence[str]) -> list[Any]:
    """The messages at all paths; a list that begins with those before takes their place."""
    told: list[Any] = []
    for path in paths:
        values = list(found(place, path))
        more = [one for value in values for one in (value if isinstance(value, list) else [value])]
        told = more if told and more[: len(told)] == told else [*told, *more]
    return told


def _parts(message: Any) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content or ""]


def _unknown(place: Place) -> Step:
    value = place.value if isinstance(place.value, Mapping) else {}
    kind = printable(first_of(value, field_names("product").kinds, str) or "an entry", 40)
    return Step(role="assistant", text=f"{NOT_UNDERSTOOD}{kind}]")


def _key(place: Place, rule: Entry) -> str | None:
    """The id of the call that is made or answered."""
    key = first(place, rule.call_id)
    return key if isinstance(key, str) else None


def _spoken(place: Place, rule: Entry, called: set[Any], order: list[str | None]) -> Iterator[Step]:
    """The steps of one entry that speaks or calls. `called`: the ids of calls so far; a call that
    is told again is none. `order`: takes the ids of these calls.
    """
    calls, results = [], []
    for one in places(place, rule.calls) if rule.name or rule.tool else ():
        name = first(one, rule.name) or rule.tool
        key = _key(one, rule)
        if name is not None and (key is None or key not in called):
            called |= {key} if key is not None else set()
            order.append(key)
            given = _object(first(one, rule.arguments))
            calls.append(tool_call(name, {rule.argument: given} if rule.argument else given))
            results.append(_results(one, rule))
    text, thought = ("\n".join(_all(place, paths)) for paths in (rule.text, rule.thought))
    told = (f"<think>\n{thought}\n</think>\n" if thought else "") + text
    if told or calls:
        role = _role(place, rule)
        yield Step(role=role, text=told, tool_calls=tuple(calls) if role == "assistant" else ())
    if any(result is not None for result in results):
        yield from (tool_step(result or "") for result in results)


def _object(value: Any) -> Any:
    """What a text that is a Python dictionary holds (LangSmith)."""
    if isinstance(value, str) and value.startswith("{'") and len(value) < LONGEST:
        return python_literal(value) or value
    return value


def _role(place: Place, rule: Entry) -> Any:
    if rule.role_at is None:
        return rule.role
    name = next(found(place, rule.role_at), rule.role)
    return steps_of([{"role": name, "content": ""}])[0].role


def _results(place: Place, rule: Entry) -> str | None:
    texts = _all(place, rule.result)
    return "\n".join(texts) if texts else None


def _all(place: Place, paths: Sequence[str]) -> list[str]:
    """The texts at the first of the paths that has any; `a + b` is both together."""
    for path in paths:
        values = [value for one in path.split(" + ") for value in found(place, one)]
        if values:
            return [text_of(value) for value in values]
    return []


def text_of(value: Any) -> str:
    """The text of a value; of a text that is JSON of a text, that."""
    if isinstance(value, str) and value[:1] == '"' == value[-1:]:
        with suppress(ValueError):
            value = told if isinstance(told := json.loads(value), str) else value
    return message_text(value if isinstance(value, str | list) else [value])
