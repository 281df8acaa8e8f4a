"""Agent trajectories of Harbor (ATIF 1.0 to 1.8).

Format: harbor 0.25 `models/trajectories/`, `utils/traces_utils.py`, `models/trial/`.

1. A step of the agent is its message, visible reasoning in front, with its tool calls; each result of its observation
   is a step behind it. A step of the agent without a model call (`llm_call_count` 0) is the harness's.
2. Continuations of one session are joined to the file that they continue; steps that they copy are left out. Sub-agents
   (embedded, or in files beside) stand behind the step that they answer.
3. In a trial's folder `result.json` (else `verifier/reward.txt`) tells task, rewards and failures, and the other files
   of the trial belong to it. The reward that counts is `reward`, or the only one.
4. Terminus writes its commands as JSON into the message: they become calls of `bash_command`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.readers.atif_steps import Told, steps_in
from forensics.readers.documents import entries, listed, prompt_hash, read_document, within
from forensics.readers.opening import Refused, bare_name, read_whole
from forensics.readers.parsing import CUT, first_row, in_words, parse
from forensics.readers.reading import Unreadable
from forensics.readers.scores import number, share
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import Ending

PART = re.compile(r"^(?P<base>.+)\.(?:cont-(?P<number>\d{1,6})|summarization-[\w.-]+)\.json$")
PARTS = 50  # continuations of one session that may name a file
LONGEST = 1000  # files of one session


@dataclass(frozen=True, kw_only=True)
class Atif:
    """Reads trajectory files, and Harbor's trials by theirs."""

    name: str = "atif"
    version: str = "1 (ATIF 1.0 to 1.8)"
    rank: int = 10  # the logs of other agents inside a trial are the same run again

    def recognises(self, path: Path, head: bytes) -> bool:
        return str(first_row(head).get("schema_version", "")).startswith("ATIF-") or trial_of(path) is not None

    def accompanies(self, path: Path) -> bool:
        """What Harbor writes beside the folders of a job's trials."""
        return next(path.parent.glob("*/agent/trajectory.json"), None) is not None

    def read(self, path: Path) -> Iterator[Trajectory | Unreadable]:
        """The run of the file; none where the file is a part of a run that another file begins."""
        trial = trial_of(path)
        if _belongs(path) or (trial is not None and not _is_main(path, trial)):
            return
        for row in read_document(path):
            if isinstance(row, Unreadable):
                yield row
                continue
            problems: list[Unreadable] = []
            try:
                yield _run(entries(row.value), path, trial, problems)
            except CUT as error:
                yield Unreadable(path=path, where=row.where, reason=in_words(error))
            yield from problems


reader = Atif()


def trial_of(path: Path) -> Path | None:
    """The folder of the Harbor trial that a file belongs to, where it has a trajectory."""
    for folder in path.parents[:4]:
        if (folder / "agent" / "trajectory.json").is_file() and (folder / "config.json").is_file():
            return folder
    return None


def _is_main(path: Path, trial: Path) -> bool:
    return path.parent == trial / "agent" and path.name == "trajectory.json"


def _belongs(path: Path) -> bool:
    """Whether a file beside names this one as its continuation or as a sub-agent's."""
    match = PART.match(bare_name(path))
    if match is None:
        return False
    last = int(match["number"] or PARTS) - 1
    names = [f"{match['base']}.cont-{number}.json" for number in range(last, max(last - PARTS, 0), -1)]
    before = (path.parent / name for name in (f"{match['base']}.json", *names))
    return any(_names(other, path.name) for other in before if other.is_file())


def _names(path: Path, name: str) -> bool:
    try:
        return f'"{name}"'.encode() in read_whole(path)
    except Refused:
        return False


def _run(first: Mapping[str, Any], path: Path, trial: Path | None, problems: list[Unreadable]) -> Trajectory:
    told = Told(folder=path.parent, seen=set(), problems=problems)
    steps: list[Step] = []
    part: Mapping[str, Any] = first
    for _ in range(LONGEST):
        steps += steps_in(part, told)
        following = told.beside(part.get("continued_trajectory_ref"))
        if following is None:
            break
        part = following
    return _trajectory(first, tuple(steps), entries(_result(trial)), _rewards(trial))


def _trajectory(
    first: Mapping[str, Any], steps: tuple[Step, ...], result: Mapping[str, Any], rewards: dict[str, float | None]
) -> Trajectory:
    if not steps:
        raise Refused("the trajectory has no steps")
    agent = entries(first.get("agent"))
    end, reason = _ending(result)
    outcome = rewards.get("reward") if "reward" in rewards or len(rewards) != 1 else next(iter(rewards.values()))
    name = result.get("trial_name") or first.get("trajectory_id") or first.get("session_id")
    return Trajectory(
        id=str(name or content_hash(first)), task=str(result.get("task_name") or prompt_hash(steps)),
        policy=str(agent.get("model_name") or agent.get("name") or "unknown"),
        environment=str(result.get("source") or "harbor"), seed=0, steps=steps, rewards=rewards, outcome=share(outcome),
        end=end, end_reason=reason,
    )


def _result(trial: Path | None) -> Any:
    try:
        return parse(read_whole(trial / "result.json")) if trial is not None else None
    except Refused:
        return None


def _rewards(trial: Path | None) -> dict[str, float | None]:
    """The verifier's rewards, of the result or of its own files."""
    if trial is None:
        return {}
    told = within(_result(trial), "verifier_result", "rewards")
    if not isinstance(told, Mapping):
        told = _file(trial / "verifier" / "reward.json")
    if not isinstance(told, Mapping):
        told = _file(trial / "verifier" / "reward.txt")
    values = told if isinstance(told, Mapping) else {} if told is None else {"reward": told}
    return {str(name): number(value) for name, value in values.items()}


def _file(path: Path) -> Any:
    try:
        return parse(read_whole(path))
    except Refused:
        return None


def _ending(result: Mapping[str, Any]) -> tuple[Ending, str | None]:
    failures = [entries(result.get("exception_info"))]
    failures += [entries(entries(step).get("exception_info")) for step in listed(result.get("step_results"))]
    kind = next((str(failure["exception_type"]) for failure in failures if failure.get("exception_type")), None)
    if kind is None:
        return "terminated", None
    return ("truncated" if "Timeout" in kind or "Limit" in kind or "Length" in kind else "errored"), kind
