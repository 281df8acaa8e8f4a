"""What tools sent back, in the order of the calls that it answers: `in_order`, for chat messages.

An answer may call several tools, and what they send back may come in any order, each with the id
of its call. Actions and results are paired by their order, so results are put into that of the
calls; a call between them that nobody answered has an empty one. Without ids they stay as they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forensics.actions.untrusted import first_of
from forensics.readers.values import as_list, field_names

_NAMES = field_names("parts")


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
        called = _called(message)
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


def _called(message: Any) -> list[str]:
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
