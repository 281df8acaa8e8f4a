"""What a checkpoint directory is, found out without loading a model.

A Hugging Face causal-LM directory on this machine, safetensors only. Everything
that would make an investigation fail later, or quietly answer about another
model, is refused here in one sentence.

A tokenizer's identity is a hash of what decides which tokens a conversation
becomes: its rules and vocabulary, and the chat template. What does not decide
it is left out: the formatting of the files, the order of keys, truncation and
padding that a trainer left switched on, and whether the template lies in a file
of its own or inside `tokenizer_config.json`.
"""

import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies.weights import identify_model, identify_weights
from forensics.progress import Progress
from forensics.records import Checkpoint, canonical_json
from forensics.records.given_files import address, parse_json, read_text

IN_MEMORY: Final = "in memory"
HINT: Final = "environment.json"
CAUSAL_SUFFIXES: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


@dataclass(frozen=True, kw_only=True)
class EnvironmentHint:
    """The world that a checkpoint was trained for, as its directory says: a name, options, and
    how its episodes were drawn (`temperature`, `max_turn_tokens`, `max_tokens`).
    """

    name: str
    options: dict[str, str]
    sampling: dict[str, float] = field(default_factory=dict)


def inspect_checkpoint(path: Path | str, *, progress: Progress | None = None) -> Checkpoint:
    """Check a checkpoint directory and give its identity; reads every weight
    once, loads no model.

    `progress` is told of bytes read. Raises `UserError` for anything that is
    amiss, with the cure.
    """
    directory = Path(path).expanduser()
    try:
        require_directory(directory)
        _refuse_adapter(directory)
        config = _model_config(directory)
        refuse_remote_code(directory, config)
        tokenizer = identify_tokenizer(directory)
        weights = identify_weights(directory, progress)
        step = _training_step(directory)
    except PermissionError as error:
        raise UserError(f"{error.filename} may not be read; change its permissions") from None
    except UnicodeDecodeError:
        raise UserError(
            f"a text file of {directory} is not UTF-8; copy or save the checkpoint again"
        ) from None
    return Checkpoint(
        path=str(path),
        weights=weights.sha256,
        tokenizer=tokenizer,
        dtype=weights.dtype,
        parameters=weights.parameters,
        training_step=step,
    )


def model_checkpoint(
    model: Any, tokenizer: str, step: int | None = None, path: str = IN_MEMORY
) -> Checkpoint:
    """What `inspect_checkpoint` would say of a model in memory after `step`
    updates. `tokenizer`: its hash; `path`: a hint for readers.
    """
    weights = identify_model(model)
    return Checkpoint(
        path=path,
        weights=weights.sha256,
        tokenizer=tokenizer,
        dtype=weights.dtype,
        parameters=weights.parameters,
        training_step=step,
    )


def read_environment_hint(path: Path | str) -> EnvironmentHint | None:
    """The directory's `environment.json` (`{"name": ..., "options": {...}, "sampling": {...}}`),
    `None` where there is none.

    A relative path in the option `file` starts at the directory, so that the
    two can be moved together.
    """
    directory = Path(path).expanduser()
    file = directory / HINT
    if not file.is_file():
        return None
    cure = "mend it, or delete it and name the world with --env"
    content = read_object(file, cure)
    options = content.get("options", {})
    plain = isinstance(options, dict) and all(
        isinstance(value, str | int | float) for value in options.values()
    )
    sampling = content.get("sampling", {})
    drawn = isinstance(sampling, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in sampling.values()
    )
    known = set(content) <= {"name", "options", "sampling"}
    if not (known and isinstance(content.get("name"), str) and plain and drawn):
        raise UserError(f'{file} must be {{"name": NAME, "options": {{KEY: VALUE}}}}; {cure}')
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
    }
    if "file" in texts:
        texts["file"] = str(directory / Path(texts["file"]).expanduser())
    return EnvironmentHint(name=content["name"], options=texts, sampling=sampling)


def require_directory(directory: Path) -> None:
    """Refuse what is not a directory with something in it."""
    if not directory.exists() and (given := address(directory)):
        raise UserError(
            f"{given} is an address, not a checkpoint directory on this machine; download the"
            " checkpoint and give its directory, or record runs of the model that is served there"
            " and give them to `forensics scan`"
        )
    if not directory.exists():
        raise UserError(
            f"{directory} does not exist; give a checkpoint directory on this machine (a model of"
            " the hub must be downloaded first: hf download NAME --local-dir DIR)"
        )
    if not directory.is_dir():
        raise UserError(f"{directory} is a file; give the checkpoint directory that holds it")
    if not any(directory.iterdir()):
        raise UserError(f"{directory} is empty; give a directory written by save_pretrained")


def _refuse_adapter(directory: Path) -> None:
    if (directory / "adapter_config.json").exists() or (
        directory / "adapter_model.safetensors"
    ).exists():
        raise UserError(
            f"{directory} holds a LoRA adapter, not a whole model; merge it first "
            "(PeftModel.merge_and_unload, then save_pretrained) and give the merged directory"
        )


def _model_config(directory: Path) -> dict[str, Any]:
    file = directory / "config.json"
    if not file.is_file():
        raise UserError(
            f"{directory} has no config.json; give a directory written by save_pretrained"
        )
    config = read_object(file)
    if not isinstance(config.get("model_type"), str):
        raise UserError(f"{file} names no model_type; copy the model's own config.json")
    names = config.get("architectures") or ()
    if names and not any(str(name).endswith(CAUSAL_SUFFIXES) for name in names):
        raise UserError(
            f"{directory} is a {names[0]}, which generates no text; give a causal language model"
        )
    return config


def refuse_remote_code(directory: Path, config: dict[str, Any]) -> None:
    """Code that a checkpoint brings along would run when it is loaded."""
    file = directory / TOKENIZER_CONFIG
    tokenizer = read_object(file) if file.is_file() else {}
    for name, content in (("config.json", config), (file.name, tokenizer)):
        if content.get("auto_map"):
            raise UserError(
                f"{directory / name} asks to run code of its own (auto_map), which is refused;"
                " where transformers knows the architecture itself, remove the auto_map entry"
            )


def _training_step(directory: Path) -> int | None:
    """The step that a Hugging Face trainer noted, `None` where none did."""
    state = directory / "trainer_state.json"
    step = read_object(state).get("global_step") if state.is_file() else None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


SAVED: Final = "copy or save the checkpoint again"
RULES: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
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


def tokenizer_identity(tokenizer: Any) -> str:
    """The hash that the tokenizer has in a checkpoint directory; it is saved to
    a temporary one to find out.
    """
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return identify_tokenizer(Path(folder))


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
        text: Any = read_text(directory / "chat_template.jinja", "", SAVED)
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
    path = directory / TOKENIZER_CONFIG
    return read_object(path) if path.is_file() else {}


def read_object(path: Path, cure: str = SAVED) -> dict[str, Any]:
    """A JSON object from a file of a checkpoint; anything else is a `UserError`
    that names the file and the cure.
    """
    text = read_text(path, "", cure)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); {cure}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object; {cure}")
    return value
