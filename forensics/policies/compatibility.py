"""Whether a checkpoint can be loaded whole, told from its headers and again when
it is, and whether prompts leave room for an action.

1. `require_loadable`: the config names a model that the library knows, and its
   tensors have the names and shapes of the model that the config builds. The
   model is built on the meta device and "loaded" from the headers alone by the
   library itself, so that whatever it renames, merges or ties is left alone. No
   weight is read.
2. `load_whole`: the same question about the weights that were in fact loaded.
   What the library does not find it fills with random numbers, and the answers
   would be about another model.
3. `require_context`: whether the token budget fits the policy and leaves room
   for an action.
"""

import logging as levels
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import Given
from forensics.policies.checkpoints import read_object
from forensics.policies.renderers import renderer_for, style_of, tools_of, warn_of_chat
from forensics.policies.weights import find_tensors
from forensics.protocols import Environment, Renderer

LONGEST_REASON: Final = 200
POSITIONS: Final = ("max_position_embeddings", "n_positions")
BELONG: Final = (
    "so its config.json and its weights do not belong together; copy both from one checkpoint"
)


def require_loadable(path: Path | str) -> None:
    """Refuse a checkpoint directory that could not be loaded whole. Raises
    `UserError`; reads headers only.
    """
    directory = Path(path).expanduser()
    config = known_config(directory)
    if getattr(config, "quantization_config", None):
        return  # its packed weights have shapes of their own, which only its loader knows
    told = _told_by_headers(directory, config)
    if told is not None:
        require_agreement(directory, *told)


def load_whole(path: Path | str, load: Callable[[], tuple[Any, Mapping[str, Any]]]) -> Any:
    """A model from `load`, which gives it with what `output_loading_info=True`
    tells.

    Raises `UserError` where the library refuses the directory, and where a
    weight was missing or of another shape.
    """
    try:
        with quiet_library():
            model, told = load()
    except MemoryError:
        raise
    except Exception as error:
        raise UserError(
            f"{path} cannot be loaded ({_reason(error)}); save the checkpoint again"
        ) from error
    require_agreement(path, model, told)
    return model


def load_tokenizer(path: Path | str) -> Any:
    """The directory's tokenizer. Raises `UserError` where the library refuses it."""
    from transformers import AutoTokenizer

    try:
        with quiet_library():
            return AutoTokenizer.from_pretrained(
                str(Path(path).expanduser()), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise UserError(
            f"the tokenizer of {path} cannot be loaded ({_reason(error)}); save it there with"
            " tokenizer.save_pretrained"
        ) from error


def stop_tokens(path: Path | str) -> list[int]:
    """Ids that end a text, as the directory's generation settings name them,
    else its config. No weights are needed.
    """
    folder = Path(path).expanduser()
    known = [
        place
        for place in (folder / "generation_config.json", folder / "config.json")
        if place.is_file()
    ]
    named = read_object(known[0]).get("eos_token_id") if known else None
    return [
        stop for stop in (named if isinstance(named, list) else [named]) if isinstance(stop, int)
    ]


def resolve_device(device: str) -> str:
    """`auto` as `cuda` where there is one, else `cpu`. Raises `UserError` for a
    device that is not here.
    """
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device):
        raise UserError(f"there is no device '{device}'; use auto, cpu, mps, cuda or cuda:N")
    if device == "cpu":
        return device
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    count = torch.backends.mps.is_available() if device == "mps" else torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= count:
        raise UserError(f"the device {device} is not available here; use --device cpu")
    return device


@contextmanager
def quiet_library() -> Iterator[None]:
    """Without the library's own tables and bars: what they say is said in one sentence here."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(levels.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def known_config(directory: Path) -> Any:
    """The config as the library reads it. Raises `UserError` where it builds no
    causal language model.
    """
    import transformers
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    kind = str(read_object(directory / "config.json").get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise UserError(
            f"{directory / 'config.json'} names the model type '{kind}', which transformers"
            f" {transformers.__version__} does not know; correct model_type, or install a"
            " transformers that knows it"
        )
    try:
        with quiet_library():
            config = AutoConfig.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise _bad_config(directory, error) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"{directory} is of the model type '{kind}', which generates no text; give a causal "
            "language model"
        )
    return config


def _bad_config(directory: Path, error: Exception) -> UserError:
    file = directory / "config.json"
    return UserError(f"{file} builds no model ({_reason(error)}); copy the model's own config.json")


def _told_by_headers(directory: Path, config: Any) -> tuple[Any, Mapping[str, Any]] | None:
    """The empty model and what loading it from the headers tells; `None` where
    the library cannot do that.
    """
    import torch
    from transformers import AutoModelForCausalLM

    headers = {
        place.name: torch.empty(place.shape, dtype=getattr(torch, place.dtype_name), device="meta")
        for place in find_tensors(directory)
    }
    with quiet_library():
        try:
            with torch.device("meta"):
                empty = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        except Exception as error:
            raise _bad_config(directory, error) from error
        try:
            told: tuple[Any, Mapping[str, Any]] = type(empty).from_pretrained(
                None,
                config=config,
                state_dict=headers,
                device_map="meta",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except (
            Exception
        ):  # a model that cannot be loaded without values is judged when it is loaded with them
            return None
    return told


def require_agreement(path: Path | str, model: Any, told: Mapping[str, Any]) -> None:
    """No weight of the model may be missing or of another shape, and no layer may be left over."""
    for name, found, wanted in sorted(told.get("mismatched_keys") or ()):
        raise UserError(
            f"{path} has the weight {name} in the shape {list(found)} where its config.json asks"
            f" for {list(wanted)}, {BELONG}"
        )
    if names := sorted(told.get("missing_keys") or ()):
        raise UserError(f"{path} lacks the weight {names[0]}, {BELONG}")
    if names := layers_left_over(model.state_dict(), told.get("unexpected_keys") or ()):
        raise UserError(
            f"{path} has the weight {names[0]}, which its config.json has no layer for, {BELONG}"
        )


def layers_left_over(built: Iterable[str], unexpected: Iterable[str]) -> list[str]:
    """Unexpected weights that differ from one of the model's own in nothing but
    a layer's number.

    Others are left alone: checkpoints carry value heads, buffers and prediction
    layers that no generation uses.
    """
    kinds = {_unnumbered(name) for name in built}
    return sorted(name for name in unexpected if _unnumbered(name) in kinds)


def _unnumbered(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "#", name)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shorten(str(error), LONGEST_REASON, placeholder=' ...')}"


def require_context(
    given: Given,
    environment: Environment,
    tasks: Sequence[str],
    seed: int,
    max_tokens: int,
) -> None:
    """Refuse a budget, or a checkpoint (or policy), that leaves no prompt room for
    an action; warn where the environment is none for chat models. Raises `UserError`.

    Prompts are rendered one by one until one fits, so this is quick wherever
    the budget is sound. Tasks that cannot be started say nothing here: they
    give errored runs. A policy without tokens has room for everything.
    """
    if isinstance(given, str | PathLike):
        limit, name = context_length(read_object(Path(given) / "config.json")), fspath(given)
        # which tokens end an action does not matter to a prompt
        style, tools = style_of(environment), tools_of(environment)
        renderer = renderer_for(load_tokenizer(name), (0,), style, tools)
    elif "tokens" not in given.capabilities:
        return
    else:
        limit, name = given.context_length, "the model"
        renderer = given.rendered_for(environment).renderer
    warn_of_chat(environment, renderer)
    most = max_tokens if limit is None else min(max_tokens, limit)
    shortest: int | None = None
    for length in _prompt_lengths(renderer, environment, tasks, seed):
        if length < most:
            return
        shortest = length if shortest is None else min(length, shortest)
    if shortest is None:
        return
    if most < max_tokens:
        raise UserError(
            f"the shortest prompt has {shortest} tokens and {name} was made for {most} positions,"
            " so no action fits; give a checkpoint with more positions, or shorter prompts"
        )
    raise UserError(
        f"the shortest prompt has {shortest} tokens and --max-tokens is {max_tokens}, so no action"
        " fits; raise --max-tokens"
    )


def context_length(config: Mapping[str, Any]) -> int | None:
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
    renderer: Renderer, environment: Environment, tasks: Sequence[str], seed: int
) -> Iterator[int]:
    for task in tasks:
        try:
            start = environment.spawn().reset(task, seed)
        except UserError:
            raise
        except Exception:
            continue
        yield len(renderer.prompt(start.text, start.system))
