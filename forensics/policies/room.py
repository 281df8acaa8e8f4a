"""Whether the token budget fits the policy and leaves room for an action, told before anything is sampled."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.policies.loading import load_tokenizer
from forensics.policies.rendering import rendering_for
from forensics.policies.tokenizers import read_object
from forensics.protocols import Environment

POSITIONS = ("max_position_embeddings", "n_positions")


def require_room(path: Path | str, environment: Environment, tasks: Sequence[str], seed: int, max_tokens: int) -> None:
    """Refuse a budget under which no prompt leaves room for an action. Raises `UserError`.

    Prompts are rendered one by one until one fits, so this is quick wherever the budget is sound. Tasks that cannot
    be started say nothing here: they give errored runs.
    """
    shortest: int | None = None
    for length in _prompt_lengths(load_tokenizer(path), environment, tasks, seed):
        if length < max_tokens:
            return
        shortest = length if shortest is None else min(length, shortest)
    if shortest is not None:
        raise UserError(
            f"the shortest prompt has {shortest} tokens and --max-tokens is {max_tokens}, so no action fits; raise "
            "--max-tokens"
        )


def require_positions(path: Path | str, max_tokens: int) -> None:
    """Refuse a budget beyond the positions that a checkpoint was made for. Raises `UserError`.

    Behind them a model with learned positions fails, and one with rotary positions goes on as nobody trained it.
    """
    config = read_object(Path(path) / "config.json")
    limit = next((value for part in (config, config.get("text_config") or {}) for name in POSITIONS
                  if isinstance(value := part.get(name), int)), None)
    if limit is not None and max_tokens > limit:
        raise UserError(
            f"--max-tokens is {max_tokens} and {path} was made for {limit} positions; give --max-tokens {limit} or less"
        )


def _prompt_lengths(tokenizer: Any, environment: Environment, tasks: Sequence[str], seed: int) -> Iterator[int]:
    rendering = rendering_for(tokenizer, extra_stops=(0,))  # which tokens end an action does not matter to a prompt
    for task in tasks:
        try:
            start = environment.spawn().reset(task, seed)
        except UserError:
            raise
        except Exception:
            continue
        yield len(rendering.prompt(start.text, start.system))
