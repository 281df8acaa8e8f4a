"""Small things that readers of other tools' logs share: one document as a row, and values that may be of any kind."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from forensics.readers.messages import is_message, steps_of
from forensics.readers.opening import Refused, bare_name, read_whole
from forensics.readers.parsing import MARKS, Row, parse
from forensics.readers.reading import Unreadable
from forensics.records import Step, content_hash

SUFFIX = re.compile(r"(\.(traj|trajectory|jsonl?|log))+$")


def read_document(path: Path) -> Iterator[Row | Unreadable]:
    """The one JSON value of a file, as a row."""
    try:
        yield Row(where="the document", value=parse(read_whole(path).removeprefix(MARKS)))
    except Refused as refused:
        yield Unreadable(path=path, where="the whole file", reason=str(refused))


def stem_of(path: Path) -> str:
    """The file's name without what tells its format: `x__y-1.traj.json.gz` is `x__y-1`."""
    return SUFFIX.sub("", bare_name(path)) or path.name


def holds(folder: Path, pattern: str) -> bool:
    """Whether a folder has an entry whose name fits; looked up once as long as the folder stays as it is."""
    try:
        return _holds(folder, pattern, folder.stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=256)
def _holds(folder: Path, pattern: str, _: int) -> bool:
    with os.scandir(folder) as found:
        return any(fnmatchcase(entry.name, pattern) for entry in found)


def entries(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(content: Any) -> str:
    """The text of a message's content, whether it is a text, parts, or missing."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(step.text for step in steps_of([{"role": "tool", "content": content}]))


def within(value: Any, *keys: str) -> Any:
    """`value[key][key]...`, `None` where one of them is missing."""
    for key in keys:
        value = entries(value).get(key)
    return value


def message_steps(value: Any) -> tuple[Step, ...]:
    """A prompt or an answer as steps, be it a text (of the user), a list of messages, or missing."""
    if isinstance(value, str):
        return (Step(role="user", text=value),)
    return steps_of(without_empty(message) for message in listed(value) if is_message(message))


def without_empty(message: Any) -> Any:
    """A message without entries that are `None`: a table gives every row the entries of all of them."""
    if isinstance(message, Mapping):
        return {key: without_empty(value) for key, value in message.items() if value is not None}
    return [without_empty(value) for value in message] if isinstance(message, list) else message


def prompt_hash(steps: Sequence[Step]) -> str:
    """A name for a task that has none, the same for the same prompt: of what stands before the first answer."""
    first = next((at for at, step in enumerate(steps) if step.role == "assistant"), len(steps))
    return f"prompt-{content_hash([[step.role, step.text] for step in steps[:first]], 12)}"
