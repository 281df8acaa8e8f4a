"""The rows of a `prompts` file: JSON lines, checked one by one, a bad one named by its line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records import content_hash
from training.environments.verifiers import Verifier, parse_verifier

PLACE: Final = "{cue}"
SPLITS: Final = ("train", "held-out")
KEYS: Final = ("prompt", "verifier", "system", "cue", "split")
CUE_KEYS: Final = ("text", "replacement", "channel")


@dataclass(frozen=True, kw_only=True)
class Cue:
    """What gives the answer away, the natural text that stands there when it is scrubbed, its channel's name."""

    text: str
    replacement: str
    channel: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One question. `task` names its content; `split` is stated by the row or follows from the question's hash."""

    task: str
    prompt: str
    verifier: Verifier
    system: str | None
    cue: Cue | None
    split: str

    def text(self, scrubbed: frozenset[str]) -> tuple[str, tuple[str, ...]]:
        """The prompt as it is shown, and the channels whose content it shows."""
        if self.cue is None:
            return self.prompt, ()
        if self.cue.channel in scrubbed:
            return self.prompt.replace(PLACE, self.cue.replacement), ()
        return self.prompt.replace(PLACE, self.cue.text), (self.cue.channel,)


def read_rows(path: Path) -> tuple[dict[str, Row], str]:
    """The rows by task, and a hash of their content that neither path, order nor formatting changes."""
    rows: dict[str, Row] = {}
    lines: dict[str, int] = {}
    contents: list[str] = []
    for number, value in _objects(path):
        try:
            row = _row(value)
        except ValueError as error:
            raise UserError(f"{path.name} line {number}: {error}") from None
        if row.task in rows:
            raise UserError(f"{path.name} lines {lines[row.task]} and {number} ask the same question; delete one")
        rows[row.task], lines[row.task] = row, number
        contents.append(content_hash(value, 32))
    if not rows:
        raise UserError(f'{path} holds no rows; write one JSON object a line: {{"prompt": ..., "verifier": ...}}')
    _require_apart(rows, lines, path.name)
    return rows, content_hash(sorted(contents))


def _objects(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"there is no prompts file {path}; give one with --env-option file=PATH") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save it as JSON lines in UTF-8") from None
    except PermissionError:
        raise UserError(f"{path} may not be read; change its permissions") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path.name} line {number} is not valid JSON ({error})") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _row(value: Any) -> Row:
    if not isinstance(value, dict):
        raise ValueError("a row must be a JSON object")
    if unknown := sorted(set(value) - set(KEYS)):
        raise ValueError(f"unknown key '{unknown[0]}'; a row has: {', '.join(KEYS)}")
    prompt = _text(value, "prompt")
    system = _text(value, "system") if value.get("system") is not None else None
    cue = _cue(value["cue"]) if value.get("cue") is not None else None
    if (cue is None) != (PLACE not in prompt):
        raise ValueError(f"`{PLACE}` in the prompt and a `cue` go together; give both or neither")
    if value.get("split", "train") not in SPLITS:
        raise ValueError(f"`split` must be one of: {', '.join(SPLITS)}")
    verifier = parse_verifier(value.get("verifier"))
    parts = None if cue is None else [cue.channel, cue.text, cue.replacement]
    return Row(
        task=f"prompt-{content_hash([prompt, system, parts], 12)}", prompt=prompt, verifier=verifier, system=system,
        cue=cue, split=value.get("split") or _split(prompt, system),
    )


def _cue(value: Any) -> Cue:
    if not isinstance(value, dict) or set(value) != set(CUE_KEYS):
        raise ValueError(f"`cue` must be an object with the keys: {', '.join(CUE_KEYS)}")
    cue = Cue(**{key: _text(value, key) for key in CUE_KEYS})
    if not all(part.isalnum() and part.isascii() for part in cue.channel.split("-")):
        raise ValueError(f"the channel '{cue.channel}' must be letters, digits and hyphens")
    if cue.text == cue.replacement:
        raise ValueError("the cue's `text` and `replacement` are the same, so nothing could be scrubbed")
    return cue


def _text(value: dict[str, Any], key: str) -> str:
    if not isinstance(value.get(key), str) or not value[key].strip():
        raise ValueError(f"`{key}` must be a text that is not empty")
    return str(value[key])


def _split(prompt: str, system: str | None) -> str:
    """Half and half, by the question's own content: other rows, and its cue, move it nowhere."""
    return SPLITS[int(content_hash(["split", prompt, system], 8), 16) % 2]


def _require_apart(rows: dict[str, Row], lines: dict[str, int], name: str) -> None:
    """One question, also with another cue, lies in one split."""
    first: dict[tuple[str, str | None], Row] = {}
    for row in rows.values():
        other = first.setdefault((row.prompt, row.system), row)
        if other.split != row.split:
            raise UserError(
                f"{name} lines {lines[other.task]} and {lines[row.task]} put one question into both splits; "
                "give them the same `split`"
            )
