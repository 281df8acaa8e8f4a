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
   reward that counts is `reward`, or the only one. Where two of `result.json`,
   `reward.json` and `reward.txt` differ, each is kept beside (`differing`).
4. What `forensics report --format atif` wrote is the same run again, by what it told in `extra`.
5. Terminus writes its commands as JSON into the message: they become calls of
   `bash_command`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forensics.readers.content import (
    JsonObject,
    Unreadable,
    UnreadableContent,
    bare_name,
    read_whole,
)
from forensics.readers.json_rows import (
    Runs,
    first_row,
    parse,
    read_document,
    trajectories_from,
)
from forensics.readers.log_reader import Reader
from forensics.readers.messages import answer_of, message_text, steps_of, tool_call, tool_step
from forensics.readers.submission import content_beside
from forensics.readers.values import as_list, as_mapping, dig, ending, number, run_of
from forensics.records import Step, ToolCall, Trajectory, content_hash
from forensics.records.trajectory import differing, outcome_of

ATIF_EXTRA = "policy_forensics"  # the key of what we tell in `extra`
DEPTH = 4  # sub-agents of sub-agents
PART = re.compile(r"^(?P<base>.+)\.(?:cont-(?P<number>\d{1,6})|summarization-[\w.-]+)\.json$")
PARTS = 50  # continuations of one session that may name a file
LONGEST = 1000  # files of one session


@dataclass
class Session:
    """What was read already: the messages (`seen`), and what could not be read."""

    folder: Path
    seen: set[tuple[str, str]] = field(default_factory=set)
    problems: list[Unreadable] = field(default_factory=list)

    def first(self, kind: str, name: str) -> bool:
        """Whether this is met for the first time: what is referred to twice is read once."""
        new = (kind, name) not in self.seen
        self.seen.add((kind, name))
        return new

    def beside(self, name: Any) -> JsonObject | None:
        """The document of a file in the same folder that another one names, once."""
        if not isinstance(name, str) or not name or not self.first("file", name):
            return None
        path = self.folder / name
        if Path(name).name != name or not path.is_file():
            reason = "it continues the run, but it is not beside the first file"
            self.problems.append(Unreadable(path, reason))
            return None
        (row,) = read_document(path)
        if isinstance(row, Unreadable):
            self.problems.append(row)
            return None
        return as_mapping(row.value)

    def steps(self, document: JsonObject, depth: int = 0) -> Iterator[Step]:
        """The steps of a document. Raises `ValueError` or the like where it is none."""
        if not isinstance(document.get("steps"), list):
            raise UnreadableContent("the trajectory has no steps")
        parts = map(as_mapping, as_list(document.get("subagent_trajectories")))
        embedded: dict[str, Any] = {
            str(part["trajectory_id"]): part for part in parts if "trajectory_id" in part
        }
        for step in document["steps"]:
            message = message_text(step.get("message"))
            if not self.first(str(step["source"]), message) and step.get("is_copied_context"):
                continue
            yield _said(step, message)
            for result in as_list(as_mapping(step.get("observation")).get("results")):
                if result.get("content") is not None:
                    yield tool_step(message_text(result["content"]))
                for reference in as_list(result.get("subagent_trajectory_ref")):
                    inner = self._subagent(as_mapping(reference), embedded, depth)
                    if inner is not None:
                        yield from self.steps(inner, depth + 1)

    def _subagent(
        self, reference: JsonObject, embedded: dict[str, Any], depth: int
    ) -> JsonObject | None:
        name = str(reference.get("trajectory_id"))
        if depth >= DEPTH:
            return None
        if name not in embedded:
            return self.beside(reference.get("trajectory_path"))
        inner: JsonObject | None = embedded[name]
        embedded[name] = None  # what is referred to twice is read once
        return inner


def _said(step: JsonObject, message: str) -> Step:
    if step["source"] != "agent":
        return steps_of([{"role": step["source"], "content": message}])[0]
    if step.get("llm_call_count") == 0:
        return Step(role="tool", text=message)
    calls = [
        {"function": {"name": call.get("function_name"), "arguments": call.get("arguments")}}
        for call in as_list(step.get("tool_calls"))
    ]
    said = answer_of(content=message, reasoning=step.get("reasoning_content"), tool_calls=calls)
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
        tool_call("bash_command", {"keystrokes": keys}) for keys in typed if isinstance(keys, str)
    )


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    version = str(first_row(head).get("schema_version", ""))
    return version.startswith("ATIF-") or trial_of(path) is not None


def accompanies(path: Path) -> bool:
    """What Harbor writes beside the folders of a job's trials."""
    return next(path.parent.glob("*/agent/trajectory.json"), None) is not None


def read(path: Path) -> Runs:
    """The run of the file; none where the file is a part of a run that another file begins."""
    trial = trial_of(path)
    if _belongs(path) or (trial is not None and path != trial / "agent" / "trajectory.json"):
        return
    session = Session(path.parent)
    rows = read_document(path)
    yield from trajectories_from(path, rows, lambda row: _run(row.value, session, trial))
    yield from session.problems


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
    names = (f".cont-{number}" for number in range(last, max(last - PARTS, 0), -1))
    before = (path.parent / f"{match['base']}{name}.json" for name in ("", *names))
    return any(_names(other, path.name) for other in before if other.is_file())


def _names(path: Path, name: str) -> bool:
    try:
        return f'"{name}"'.encode() in read_whole(path)
    except UnreadableContent:
        return False


def _run(value: Any, session: Session, trial: Path | None) -> Trajectory:
    first = as_mapping(value)
    if isinstance(told := dig(first, "extra", ATIF_EXTRA), Mapping):
        return _of_ours(first, told)
    steps: list[Step] = []
    part: JsonObject | None = first
    for _ in range(LONGEST):
        if part is None:
            break
        steps += session.steps(part)
        part = session.beside(part.get("continued_trajectory_ref"))
    if not steps:
        raise UnreadableContent("the trajectory has no steps")
    agent = as_mapping(first.get("agent"))
    result = as_mapping(trial and content_beside(trial / "result.json"))
    records = _records(trial, result)
    rewards = next(iter(records.values()), {})
    failures = map(as_mapping, (result, *as_list(result.get("step_results"))))
    kinds = (dig(failure, "exception_info", "exception_type") for failure in failures)
    failure = next((str(kind) for kind in kinds if kind), None)
    name = result.get("trial_name") or first.get("trajectory_id") or first.get("session_id")
    return run_of(
        steps,
        ending(failure, ("timeout", "limit", "length"), "errored" if failure else "terminated"),
        id=name or content_hash(first),
        task=result.get("task_name"),
        policy=agent.get("model_name") or agent.get("name"),
        environment=result.get("source") or "harbor",
        rewards={**rewards, **differing(records)},
        outcome=outcome_of(rewards),
    )


def _of_ours(document: JsonObject, told: Mapping[str, Any]) -> Trajectory:
    """The run that `forensics.report` wrote. Raises `ValueError` or the like for any other."""
    steps = [part for step in as_list(document.get("steps")) for part in _our_steps(step)]
    policy = dig(document, "agent", "model_name")
    run = Trajectory.model_validate(
        {**told, "id": document.get("session_id"), "policy": policy, "steps": steps}
    )
    if run.outcome is not None and not 0 <= run.outcome <= 1:
        raise UnreadableContent(f"its outcome {run.outcome:g} is outside [0, 1]; scale it")
    return run


def _our_steps(step: JsonObject) -> Iterator[JsonObject]:
    told = as_mapping(dig(step, "extra", ATIF_EXTRA))
    names = (call["function_name"] for call in as_list(step.get("tool_calls")))
    calls = zip(names, as_list(told.get("arguments")), strict=True)
    role = "assistant" if step["source"] == "agent" else step["source"]
    yield {
        "role": "tool" if step.get("llm_call_count") == 0 else role,
        "text": step["message"],
        "kinds": told.get("kinds", ()),
        "channels": told.get("channels", ()),
        "tool_calls": [{"name": name, "arguments": text} for name, text in calls],
    }
    shown = as_mapping(told.get("shown"))
    for at, result in enumerate(as_list(as_mapping(step.get("observation")).get("results"))):
        yield {"role": "tool", "text": result["content"], "channels": shown.get(str(at), ())}


def _records(trial: Path | None, result: JsonObject) -> dict[str, dict[str, float | None]]:
    """The verifier's rewards, of the result and of its own files; the first ones count."""
    if trial is None:
        return {}
    text = content_beside(trial / "verifier" / "reward.txt")
    told = {
        "result.json": dig(result, "verifier_result", "rewards"),
        "verifier/reward.json": content_beside(trial / "verifier" / "reward.json"),
        "verifier/reward.txt": {"reward": text} if isinstance(text, int | float | str) else text,
    }
    return {
        file: {str(name): number(value) for name, value in rewards.items()}
        for file, rewards in told.items()
        if isinstance(rewards, Mapping)
    }


reader = Reader(
    name="atif",
    version="1 (ATIF 1.0 to 1.8)",
    rank=10,  # the logs of other agents inside a trial are the same run again
    recognises=recognises,
    accompanies=accompanies,
    reads=read,
)
