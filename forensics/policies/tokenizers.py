"""The identity of a tokenizer: a hash of what decides which tokens a
conversation becomes.

That is the tokenizer's rules and vocabulary, and the chat template. What does
not decide it is left out: the formatting of the files, the order of keys,
truncation and padding that a trainer left switched on, and whether the template
lies in a file of its own or inside `tokenizer_config.json`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records import canonical_json

RULES: Final = "tokenizer.json"
CONFIG: Final = "tokenizer_config.json"
SLOW_FILES: Final = (
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "vocab.txt",
    "added_tokens.json",
)


def tokenizer_parts(directory: Path) -> dict[str, str]:
    """SHA-256 of each deciding part: `vocabulary and rules`, `chat template`."""
    return {
        "vocabulary and rules": _sha(_rules(directory)),
        "chat template": _sha(_template(directory)),
    }


def identify_tokenizer(directory: Path) -> str:
    """One SHA-256 over the deciding parts. Raises `UserError` where there is no
    readable tokenizer.
    """
    return _sha(canonical_json(tokenizer_parts(directory)).encode())


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _rules(directory: Path) -> bytes:
    config = _read_config(directory)
    switches = {key: True for key in ("add_bos_token", "add_eos_token") if config.get(key)}
    if (directory / RULES).is_file():
        rules = read_object(directory / RULES)
        if not isinstance(rules.get("model"), dict):
            raise UserError(f"{directory / RULES} has no tokenizer model; save the tokenizer again")
        return canonical_json([_normalised(rules), switches]).encode()
    slow = [name for name in SLOW_FILES if (directory / name).is_file()]
    if not {"vocab.json", "tokenizer.model", "spiece.model", "vocab.txt"} & set(slow):
        raise UserError(
            f"{directory} has no tokenizer ({RULES}); save it there with tokenizer.save_pretrained"
        )
    files = {name: _sha((directory / name).read_bytes()) for name in slow}
    return canonical_json([files, switches]).encode()


def _normalised(rules: dict[str, Any]) -> dict[str, Any]:
    """The rules without what changes no token: run-time settings, and spellings
    of one and the same model.
    """
    kept = {
        key: value
        for key, value in rules.items()
        if key not in {"version", "truncation", "padding"}
    }
    model = {
        key: value
        for key, value in rules["model"].items()
        if value is not None and value is not False
    }
    if isinstance(
        model.get("merges"), list
    ):  # older files write a merge as one text, newer ones as a pair
        model["merges"] = [m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"]]
    added = sorted(rules.get("added_tokens") or [], key=lambda token: int(token.get("id", 0)))
    return {**kept, "model": model, "added_tokens": added}


def _template(directory: Path) -> bytes:
    """The default chat template's text; empty where there is none."""
    if (directory / "chat_template.jinja").is_file():
        text: Any = (directory / "chat_template.jinja").read_text(encoding="utf-8")
    elif (directory / "chat_template.json").is_file():
        text = read_object(directory / "chat_template.json").get("chat_template")
    else:
        text = _read_config(directory).get("chat_template")
    if isinstance(text, list):
        named = {
            entry.get("name"): entry.get("template") for entry in text if isinstance(entry, dict)
        }
        text = named.get("default")
    return str(text or "").replace("\r\n", "\n").rstrip("\n").encode()


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    return read_object(path) if path.is_file() else {}


def read_object(path: Path, cure: str = "copy or save the checkpoint again") -> dict[str, Any]:
    """A JSON object from a file of a checkpoint; anything else is a `UserError`
    that names the file and the cure.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); {cure}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object; {cure}")
    return value
