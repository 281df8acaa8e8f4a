"""A list of tasks that a reader gives: what a policy was trained on."""

import json
from pathlib import Path

from forensics.errors import UserError


def read_task_list(path: Path) -> tuple[str, ...]:
    """The tasks of a list: a name or a prompt a line, without repeats; a line that
    is a JSON string may hold line breaks. Raises `UserError`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as UTF-8 text ({error})") from None
    lines = (line.strip() for line in text.split("\n"))
    found = tuple(dict.fromkeys(_unquoted(line) for line in lines if line))
    if not found:
        raise UserError(f"{path} lists no tasks; write the name or the prompt of one on each line")
    return found


def _unquoted(line: str) -> str:
    if not line.startswith('"'):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return value if isinstance(value, str) else line
