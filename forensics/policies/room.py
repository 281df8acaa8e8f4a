"""Whether the token budget fits the policy and leaves room for an action, told
before anything is sampled.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies.compatibility import load_tokenizer
from forensics.policies.renderers import renderer_for, style_of
from forensics.policies.tokenizers import read_object
from forensics.protocols import Environment

POSITIONS = ("max_position_embeddings", "n_positions")


def require_room(
    path: Path | str, environment: Environment, tasks: Sequence[str], seed: int, max_tokens: int
) -> None:
    """Refuse a budget, or a checkpoint, that leaves no prompt room for an
    action. Raises `UserError`.

    Prompts are rendered one by one until one fits, so this is quick wherever
    the budget is sound. Tasks that cannot be started say nothing here: they
    give errored runs.
    """
    limit = positions(read_object(Path(path) / "config.json"))
    most = max_tokens if limit is None else min(max_tokens, limit)
    shortest: int | None = None
    for length in _prompt_lengths(load_tokenizer(path), environment, tasks, seed):
        if length < most:
            return
        shortest = length if shortest is None else min(length, shortest)
    if shortest is None:
        return
    if most < max_tokens:
        raise UserError(
            f"the shortest prompt has {shortest} tokens and {path} was made for {most} positions,"
            " so no action fits; give a checkpoint with more positions, or shorter prompts"
        )
    raise UserError(
        f"the shortest prompt has {shortest} tokens and --max-tokens is {max_tokens}, so no action"
        " fits; raise --max-tokens"
    )


def positions(config: Mapping[str, Any]) -> int | None:
    """The positions that a model was made for, where its config says so.

    Behind them a model with learned positions fails, and one with rotary
    positions goes on as nobody trained it.
    """
    parts = (config, config.get("text_config") or {})
    return next(
        (value for part in parts for name in POSITIONS if isinstance(value := part.get(name), int)),
        None,
    )


def _prompt_lengths(
    tokenizer: Any, environment: Environment, tasks: Sequence[str], seed: int
) -> Iterator[int]:
    # which tokens end an action does not matter to a prompt
    renderer = renderer_for(tokenizer, extra_stops=(0,), style=style_of(environment))
    for task in tasks:
        try:
            start = environment.spawn().reset(task, seed)
        except UserError:
            raise
        except Exception:
            continue
        yield len(renderer.prompt(start.text, start.system))
