"""Agent trajectories of Harbor (ATIF 1.0 to 1.8).

Format: harbor 0.25 `models/trajectories/`, `utils/traces_utils.py`,
`models/trial/`.

1. A step of the agent is its message, visible reasoning in front, with its tool
   calls; each result of its observation is a step behind it. A step of the
   agent without a model call (`llm_call_count` 0) is the harness's.
2. Continuations of one session are joined to the file that they continue; steps
   that they copy are left out. Sub-agents (embedded, or in files beside) stand
   behind the step that they answer.
3. In a trial's folder `result.json` (else `verifier/reward.txt`) tells task,
   rewards and failures, and the other files of the trial belong to it. The
   reward that counts is `reward`, or the only one.
4. Terminus writes its commands as JSON into the message: they become calls of
   `bash_command`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forensics.readers.content import Unreadable, UnreadableContent, bare_name, read_whole
from forensics.readers.json_rows import MALFORMED, first_row, in_words, parse, read_document
from forensics.readers.log_reader import Reader
from forensics.readers.messages import message_text, prompt_hash, steps_of
from forensics.readers.values import as_list, as_mapping, dig, number, score_of
from forensics.records import Step, ToolCall, Trajectory, content_hash
from forensics.records.trajectory import Ending

DEPTH = 4  # sub-agents of sub-agents
PART = re.compile(r"^(?P<base>.+)\.(?:cont-(?P<number>\d{1,6})|summarization-[\w.-]+)\.json$")
PARTS = 50  # continuations of one session that may name a file
LONGEST = 1000  # files of one session


@dataclass
class Session:
    """What was read already: the messages (`seen`), and what could not be read."""

    folder: Path
    seen: set[tuple[str, str]]
    problems: list[Unreadable]
    _embedded: dict[int, "_Index"] = field(default_factory=dict)

    def embedded(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The trajectories inside a document by their ids."""
        index = self._embedded.get(id(document))
        if index is None:
            parts = [as_mapping(part) for part in as_list(document.get("subagent_trajectories"))]
            index = _Index(
                document,
                {str(part["trajectory_id"]): part for part in parts if "trajectory_id" in part},
            )
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
                return as_mapping(row.value)
        return None


class _Index(NamedTuple):
    """The parts of a document, which is kept so that its identity stays its own."""

    document: Mapping[str, Any]
    parts: dict[str, Mapping[str, Any]]


def steps_in(document: Mapping[str, Any], told: Session, depth: int = 0) -> Iterator[Step]:
    """The steps of a document. Raises `ValueError` or the like where it is none."""
    if not isinstance(document.get("steps"), list):
        raise UnreadableContent("the trajectory has no steps")
    for step in document["steps"]:
        message = message_text(step.get("message"))
        if told.first(str(step["source"]), message) or not step.get("is_copied_context"):
            yield from _steps(step, message, document, told, depth)


def _steps(
    step: Mapping[str, Any], message: str, document: Mapping[str, Any], told: Session, depth: int
) -> Iterator[Step]:
    yield _said(step, message)
    for result in as_list(as_mapping(step.get("observation")).get("results")):
        if result.get("content") is not None:
            yield Step(role="tool", text=message_text(result["content"]))
        for reference in as_list(result.get("subagent_trajectory_ref")):
            if (
                depth < DEPTH
                and (inner := _subagent(as_mapping(reference), document, told)) is not None
            ):
                yield from steps_in(inner, told, depth + 1)


def _subagent(
    reference: Mapping[str, Any], document: Mapping[str, Any], told: Session
) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = told.embedded(document).get(
        str(reference.get("trajectory_id"))
    )
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
        for call in as_list(step.get("tool_calls"))
    ]
    said = steps_of(
        [
            {
                "role": "assistant",
                "content": message,
                "reasoning": step.get("reasoning_content"),
                "tool_calls": given,
            }
        ]
    )[0]
    return said if said.tool_calls else said.model_copy(update={"tool_calls": _typed(message)})


def _typed(message: str) -> tuple[ToolCall, ...]:
    """The commands that Terminus types, where the message is the JSON in which it writes them."""
    start, end = message.find("{"), message.rfind("}")
    if start < 0 or '"keystrokes"' not in message:
        return ()
    try:
        commands = as_list(as_mapping(parse(message[start : end + 1])).get("commands"))
    except UnreadableContent:
        return ()
    typed = (as_mapping(command).get("keystrokes") for command in commands)
    return tuple(
        ToolCall(
            name="bash_command", arguments=json.dumps({"keystrokes": keys}, ensure_ascii=False)
        )
        for keys in typed
        if isinstance(keys, str)
    )


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return (
        str(first_row(head).get("schema_version", "")).startswith("ATIF-")
        or trial_of(path) is not None
    )


def accompanies(path: Path) -> bool:
    """What Harbor writes beside the folders of a job's trials."""
    return next(path.parent.glob("*/agent/trajectory.json"), None) is not None


def read(path: Path) -> Iterator[Trajectory | Unreadable]:
    """The run of the file; none where the file is a part of a run that another file begins."""
    trial = trial_of(path)
    if _belongs(path) or (
        trial is not None
        and not (path.parent == trial / "agent" and path.name == "trajectory.json")
    ):
        return
    for row in read_document(path):
        if isinstance(row, Unreadable):
            yield row
            continue
        problems: list[Unreadable] = []
        try:
            yield _run(as_mapping(row.value), path, trial, problems)
        except MALFORMED as error:
            yield Unreadable(path=path, where=row.where, reason=in_words(error))
        yield from problems


reader = Reader(
    name="atif",
    version="1 (ATIF 1.0 to 1.8)",
    rank=10,  # the logs of other agents inside a trial are the same run again
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)


def trial_of(path: Path) -> Path | None:
    """The folder of the Harbor trial that a file belongs to, where it has a trajectory."""
    for folder in path.parents[:4]:
        if (folder / "agent" / "trajectory.json").is_file() and (folder / "config.json").is_file():
            return folder
    return None


def _belongs(path: Path) -> bool:
    """Whether a file beside names this one as its continuation or as a sub-agent's."""
    match = PART.match(bare_name(path))
    if match is None:
        return False
    last = int(match["number"] or PARTS) - 1
    names = [
        f"{match['base']}.cont-{number}.json" for number in range(last, max(last - PARTS, 0), -1)
    ]
    before = (path.parent / name for name in (f"{match['base']}.json", *names))
    return any(_names(other, path.name) for other in before if other.is_file())


def _names(path: Path, name: str) -> bool:
    try:
        return f'"{name}"'.encode() in read_whole(path)
    except UnreadableContent:
        return False


def _run(
    first: Mapping[str, Any], path: Path, trial: Path | None, problems: list[Unreadable]
) -> Trajectory:
    told = Session(folder=path.parent, seen=set(), problems=problems)
    steps: list[Step] = []
    part: Mapping[str, Any] = first
    for _ in range(LONGEST):
        steps += steps_in(part, told)
        following = told.beside(part.get("continued_trajectory_ref"))
        if following is None:
            break
        part = following
    return _trajectory(first, tuple(steps), as_mapping(_result(trial)), _rewards(trial))


def _trajectory(
    first: Mapping[str, Any],
    steps: tuple[Step, ...],
    result: Mapping[str, Any],
    rewards: dict[str, float | None],
) -> Trajectory:
    if not steps:
        raise UnreadableContent("the trajectory has no steps")
    agent = as_mapping(first.get("agent"))
    end, reason = _ending(result)
    outcome = (
        rewards.get("reward")
        if "reward" in rewards or len(rewards) != 1
        else next(iter(rewards.values()))
    )
    name = result.get("trial_name") or first.get("trajectory_id") or first.get("session_id")
    return Trajectory(
        id=str(name or content_hash(first)),
        task=str(result.get("task_name") or prompt_hash(steps)),
        policy=str(agent.get("model_name") or agent.get("name") or "unknown"),
        environment=str(result.get("source") or "harbor"),
        seed=0,
        steps=steps,
        rewards=rewards,
        outcome=score_of(outcome),
        end=end,
        end_reason=reason,
    )


def _result(trial: Path | None) -> Any:
    try:
        return parse(read_whole(trial / "result.json")) if trial is not None else None
    except UnreadableContent:
        return None


def _rewards(trial: Path | None) -> dict[str, float | None]:
    """The verifier's rewards, of the result or of its own files."""
    if trial is None:
        return {}
    told = dig(_result(trial), "verifier_result", "rewards")
    if not isinstance(told, Mapping):
        told = _file(trial / "verifier" / "reward.json")
    if not isinstance(told, Mapping):
        told = _file(trial / "verifier" / "reward.txt")
    values = told if isinstance(told, Mapping) else {} if told is None else {"reward": told}
    return {str(name): number(value) for name, value in values.items()}


def _file(path: Path) -> Any:
    try:
        return parse(read_whole(path))
    except UnreadableContent:
        return None


def _ending(result: Mapping[str, Any]) -> tuple[Ending, str | None]:
    failures = [as_mapping(result.get("exception_info"))]
    failures += [
        as_mapping(as_mapping(step).get("exception_info"))
        for step in as_list(result.get("step_results"))
    ]
    kind = next(
        (str(failure["exception_type"]) for failure in failures if failure.get("exception_type")),
        None,
    )
    if kind is None:
        return "terminated", None
    return (
        "truncated" if "Timeout" in kind or "Limit" in kind or "Length" in kind else "errored"
    ), kind
