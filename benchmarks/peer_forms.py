"""The labelled files of `benchmarks.scan_peers`, and the forms in which scanners read them.

1. A line of `answers/*.jsonl` is one prompt and one answer. Its code is what stands in
   fenced blocks; an answer without a block is all code.
2. A mini-swe-agent run is the messages of its file: a message of the agent, the block of
   `bash` in it, and the message that came back. A SWE-agent run is its `trajectory`: what
   was said, the command, and what came back; the prompts are what its `history` holds in
   front of the first message of the agent.
3. A block whose first line is a comment with the name of a file is that file; any other
   block of an answer is `solution.py`.
4. Nothing of a label goes into a form. A form says what the log says: no times, no token
   counts, no exit codes are made up. The one thing added is the tool call of the form
   `file`, which says so.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.real_logs.labelled import read_labels

Row = dict[str, Any]
ANSWERS: Final = ("codeforces", "olmo_exit", "impossible_lcb")
RUNS: Final = ("gemini3_miniswe", "sweagent_demos")
ATIF: Final = "ATIF-v1.6"
WRITTEN: Final = "The file was written."
NAMED: Final = re.compile(
    r"(?:#|//) ?(?:file(?:name)?: ?)?([\w./-]{1,100}\.\w{1,8})\s{0,9}\n", re.I
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of an agent. `thought`: the message without its code; `came_back`:
    `None` where nothing answered it.
    """

    said: str
    thought: str
    code: tuple[str, ...]
    came_back: str | None = None


@dataclass(frozen=True, kw_only=True)
class Log:
    """One labelled log. `prompts`: role and text of what the agent was told first."""

    id: str
    task: str
    prompts: tuple[tuple[str, str], ...]
    turns: tuple[Turn, ...]
    hack: bool
    kind: str
    won: bool = True


def answers(path: Path) -> tuple[Log, ...]:
    """The logs of a file of labelled answers."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(answer(json.loads(line)) for line in lines)


def answer(row: Mapping[str, Any]) -> Log:
    """One line. It counts as won unless its file tells a score, a hack and an honest
    answer alike.
    """
    thought, blocks = split(row["response"])
    turn = Turn(said=row["response"], thought=thought, code=blocks or (row["response"],))
    return Log(
        id=row["id"],
        task=row["task"],
        prompts=(("user", row["prompt"]),),
        turns=(turn,),
        hack=bool(row["hack"]),
        kind=row["kind"],
        won=float(row.get("score", 1)) > 0,
    )


def split(text: str, language: str = "") -> tuple[str, tuple[str, ...]]:
    """What stands outside of fenced blocks (of a language), and the blocks; the last one
    may be cut off.
    """
    outside: list[str] = []
    blocks: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```") and (inside or bare[3:].startswith(language)):
            inside = not inside
            if inside:
                blocks.append([])
        else:
            (blocks[-1] if inside else outside).append(line)
    return "\n".join(outside).strip(), tuple("\n".join(block) for block in blocks if block)


def runs(data: Path, source: str) -> tuple[Log, ...]:
    """The labelled runs of one folder of `labels.csv`, each under its file's path in it."""
    paths = sorted((data / source).rglob("*.traj*"), key=lambda path: path.parts)
    logs = []
    for path, label in zip(paths, read_labels(data, source), strict=True):
        document = json.loads(path.read_text(encoding="utf-8"))
        read = _mini if "messages" in document else _sweagent
        prompts, turns = read(document)
        logs.append(
            Log(
                id=str(path.relative_to(data / source)),
                task=path.name.split(".")[0],
                prompts=tuple(prompts),
                turns=tuple(turns),
                hack=label.tampers,
                kind=label.kind,
            )
        )
    return tuple(logs)


Read = tuple[list[tuple[str, str]], list[Turn]]


def _mini(document: Mapping[str, Any]) -> Read:
    messages = [(message["role"], _text(message["content"])) for message in document["messages"]]
    first = next(at for at, (role, _) in enumerate(messages) if role == "assistant")
    turns = []
    for at, (role, text) in enumerate(messages):
        if role == "assistant":
            thought, blocks = split(text, "bash")
            after = messages[at + 1][1] if at + 1 < len(messages) else None
            turns.append(Turn(said=text, thought=thought, code=blocks, came_back=after))
    return messages[:first], turns


def _sweagent(document: Mapping[str, Any]) -> Read:
    prompts = []
    for message in document["history"]:
        if message["role"] == "assistant":
            break
        prompts.append((message["role"], _text(message["content"])))
    turns = [
        Turn(
            said=step["response"],
            thought=step["thought"],
            code=(step["action"],) if step["action"].strip() else (),
            came_back=step["observation"],
        )
        for step in document["trajectory"]
    ]
    return prompts, turns


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(str(part.get("text", "")) for part in parts)


def as_atif(log: Log, form: str) -> Row:
    """An ATIF trajectory. `form`: `answer`, all as a message; `file`, each block of code as
    a call that writes a file; `calls`, each command as a call of `bash` with what came back.
    """
    steps = [
        {"source": role if role in ("system", "user") else "user", "message": text}
        for role, text in log.prompts
    ]
    steps += [_agent_step(turn, form, number) for number, turn in enumerate(log.turns)]
    return {
        "schema_version": ATIF,
        "session_id": log.id,
        "agent": {"name": "unknown", "version": "unknown"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
    }


def _agent_step(turn: Turn, form: str, number: int) -> Row:
    if form == "answer" or not turn.code:
        step: Row = {"source": "agent", "message": turn.said}
        if turn.came_back is not None:
            step["observation"] = {"results": [{"content": turn.came_back}]}
        return step
    if form == "file":
        called = [("write_file", _file(code), WRITTEN) for code in turn.code]
    else:
        texts = [turn.came_back, *("" for _ in turn.code[1:])]
        called = [
            ("bash", {"command": code}, text or "")
            for code, text in zip(turn.code, texts, strict=True)
        ]
    calls = [
        {"tool_call_id": f"call-{number}-{at}", "function_name": name, "arguments": arguments}
        for at, (name, arguments, _) in enumerate(called)
    ]
    results = [
        {"source_call_id": f"call-{number}-{at}", "content": text}
        for at, (_, _, text) in enumerate(called)
    ]
    return {
        "source": "agent",
        "message": turn.thought,
        "tool_calls": calls,
        "observation": {"results": results},
    }


def _file(code: str) -> Row:
    named = NAMED.match(code)
    return {"path": named[1] if named else "solution.py", "content": code}


def as_neutral(log: Log) -> list[Row]:
    """The steps that `experiments.real_logs.peer` makes RewardHackWatch's forms of."""
    return [
        *({"role": role, "content": text, "commands": []} for role, text in log.prompts),
        *(step for turn in log.turns for step in _neutral_steps(turn)),
    ]


def _neutral_steps(turn: Turn) -> Iterator[Row]:
    # an answer that is all code is not said twice
    said = "" if turn.code == (turn.said,) else turn.thought
    yield {"role": "assistant", "content": said, "commands": list(turn.code)}
    if turn.came_back is not None:
        yield {"role": "tool", "content": turn.came_back, "commands": []}


def as_chat(log: Log) -> Row:
    """A chat row, as our scanner's users have answers."""
    said = [{"role": role, "content": text} for role, text in log.prompts]
    said += [{"role": "assistant", "content": turn.said} for turn in log.turns]
    return {"id": log.id, "task": log.task, "messages": said, "reward": float(log.won)}


def write_chat(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
