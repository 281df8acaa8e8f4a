"""The steps of one ATIF document, with those of its sub-agents in their places."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forensics.readers.documents import entries, listed, read_document, text_of
from forensics.readers.messages import steps_of
from forensics.readers.opening import Refused
from forensics.readers.parsing import parse
from forensics.readers.reading import Unreadable
from forensics.records import Step, ToolCall

DEPTH = 4  # sub-agents of sub-agents


@dataclass
class Told:
    """What was read already: the messages (`seen`), and what could not be read."""

    folder: Path
    seen: set[tuple[str, str]]
    problems: list[Unreadable]
    _embedded: dict[int, "_Index"] = field(default_factory=dict)

    def embedded(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The trajectories inside a document by their ids."""
        index = self._embedded.get(id(document))
        if index is None:
            parts = [entries(part) for part in listed(document.get("subagent_trajectories"))]
            index = _Index(document, {str(part["trajectory_id"]): part for part in parts if "trajectory_id" in part})
            self._embedded[id(document)] = index
        return index.parts

    def first(self, kind: str, name: str) -> bool:
        """Whether this is met for the first time: what is referred to twice is read once."""
        new = (kind, name) not in self.seen
        self.seen.add((kind, name))
        return new

    def beside(self, name: Any) -> Mapping[str, Any] | None:
        """The document of a file in the same folder that another one names, once."""
        if not isinstance(name, str) or not name or not self.first("file", name):
            return None
        path = self.folder / name
        if Path(name).name != name or not path.is_file():
            reason = "it continues the run, but it is not beside the first file"
            self.problems.append(Unreadable(path=path, where="the whole file", reason=reason))
            return None
        for row in read_document(path):
            if isinstance(row, Unreadable):
                self.problems.append(row)
            else:
                return entries(row.value)
        return None


class _Index(NamedTuple):
    """The parts of a document, which is kept so that its identity stays its own."""

    document: Mapping[str, Any]
    parts: dict[str, Mapping[str, Any]]


def steps_in(document: Mapping[str, Any], told: Told, depth: int = 0) -> Iterator[Step]:
    """The steps of a document. Raises `ValueError` or the like where it is none."""
    if not isinstance(document.get("steps"), list):
        raise Refused("the trajectory has no steps")
    for step in document["steps"]:
        message = text_of(step.get("message"))
        if told.first(str(step["source"]), message) or not step.get("is_copied_context"):
            yield from _steps(step, message, document, told, depth)


def _steps(
    step: Mapping[str, Any], message: str, document: Mapping[str, Any], told: Told, depth: int
) -> Iterator[Step]:
    yield _said(step, message)
    for result in listed(entries(step.get("observation")).get("results")):
        if result.get("content") is not None:
            yield Step(role="tool", text=text_of(result["content"]))
        for reference in listed(result.get("subagent_trajectory_ref")):
            if depth < DEPTH and (inner := _subagent(entries(reference), document, told)) is not None:
                yield from steps_in(inner, told, depth + 1)


def _subagent(reference: Mapping[str, Any], document: Mapping[str, Any], told: Told) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = told.embedded(document).get(str(reference.get("trajectory_id")))
    if found is None:
        return told.beside(reference.get("trajectory_path"))
    return found if told.first("embedded", str(id(found))) else None


def _said(step: Mapping[str, Any], message: str) -> Step:
    source = step["source"]
    if source != "agent":
        return steps_of([{"role": source, "content": message}])[0]
    if step.get("llm_call_count") == 0:
        return Step(role="tool", text=message)
    given = [
        {"function": {"name": call.get("function_name"), "arguments": call.get("arguments")}}
        for call in listed(step.get("tool_calls"))
    ]
    said = steps_of([{"role": "assistant", "content": message, "reasoning": step.get("reasoning_content"),
                      "tool_calls": given}])[0]  # fmt: skip
    return said if said.tool_calls else said.model_copy(update={"tool_calls": _typed(message)})


def _typed(message: str) -> tuple[ToolCall, ...]:
    """The commands that Terminus types, where the message is the JSON in which it writes them."""
    start, end = message.find("{"), message.rfind("}")
    if start < 0 or '"keystrokes"' not in message:
        return ()
    try:
        commands = listed(entries(parse(message[start : end + 1])).get("commands"))
    except Refused:
        return ()
    typed = (entries(command).get("keystrokes") for command in commands)
    return tuple(
        ToolCall(name="bash_command", arguments=json.dumps({"keystrokes": keys}, ensure_ascii=False))
        for keys in typed if isinstance(keys, str)
    )  # fmt: skip
