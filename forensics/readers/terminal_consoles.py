"""What an agent did in a console of its own, as steps: `console_steps`.

Known are agents that print their messages as lines of JSON (Claude Code's `stream-json` and
what copies it), and mini-swe-agent, whose console wraps at the width of its rules:
the lines of a block are put together again where the next word had no room.
"""

import re
from collections.abc import Iterator

from forensics.readers.content import UnreadableContent
from forensics.readers.json_rows import parse
from forensics.readers.messages import shell_call, steps_of, tool_step
from forensics.readers.values import as_mapping
from forensics.records import Step

_MINI = re.compile(r"^mini-swe-agent \(step \d{1,6}, \$[\d.]{1,12}\):$", re.M)
_TURN = re.compile(rf"{_MINI.pattern}|^(?:User|System):$|^─{{20,}}$", re.M)
_RULE = re.compile(r"^─{20,}$", re.M)
_BLOCK = re.compile(r"^```bash\n((?:(?!```)[^\n]*\n)*+)```", re.M)


def console_steps(shown: str) -> list[Step]:
    """The steps that a console shows, none where its form is not known."""
    if '{"type":' in shown and (messages := list(_messages(shown))):
        try:
            return list(steps_of(messages))
        except ValueError:
            return []
    return list(_mini(shown)) if _MINI.search(shown) else []


def _messages(shown: str) -> Iterator[dict[str, object]]:
    for row in shown.split("\n"):
        start = row.find('{"type":')
        if start < 0:
            continue
        try:
            line = as_mapping(parse(row[start:].rstrip()))
        except UnreadableContent:
            continue
        if line.get("type") in ("user", "assistant") and as_mapping(line.get("message")):
            yield {"role": line["type"], **as_mapping(line["message"])}


def _mini(shown: str) -> Iterator[Step]:
    rule = _RULE.search(shown)
    width = len(rule[0]) if rule else 80
    turns = list(_TURN.finditer(shown))
    started = False
    for at, turn in enumerate(turns):
        end = turns[at + 1].start() if at + 1 < len(turns) else len(shown)
        text = shown[turn.end() : end].strip("\n")
        acts = _MINI.fullmatch(turn[0]) is not None
        started |= acts
        if acts:
            blocks = _BLOCK.findall(text)  # it runs the one block of an answer
            lines = ["\n".join(_whole_lines(block.rstrip().split("\n"), width)) for block in blocks]
            calls = tuple(shell_call(line) for line in lines)
            yield Step(role="assistant", text=text, tool_calls=calls if len(calls) == 1 else ())
        elif started and turn[0] == "User:":
            yield tool_step(text)


def _whole_lines(rows: list[str], width: int) -> list[str]:
    """Rows with those put together that were one line before it was wrapped."""
    lines: list[str] = []
    last = 0  # the length of the row before
    for row in rows:
        word = row.split(" ", 1)[0]
        if row[:1].strip() and 0 < last <= width < last + 1 + len(word):
            lines[-1] += f" {row}"
        else:
            lines.append(row)
        last = len(row)
    return lines
