"""What a diff will do, and about how long that takes here, said before a model is
loaded. Light at import: no torch.

1. Sizes come from the before directory's `config.json`, texts from the environment's
   first task; floating-point operations of each step follow from them.
2. How fast a core is, is measured by multiplying matrices twice, in processor time.
   `USED` is the share of that speed that the steps reach, by what was measured on a Llama of
   135 million parameters. Other processes on the machine, and episodes of many turns, take
   time that is not in it; a busy machine is said to be one.
3. What a resumed folder has is told as done.

On an accelerator, for models in memory, and where sizes are not known the steps are told
without a time.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from crosscoders.patching.results import passes
from crosscoders.study.diff_files import (
    DEEP_DECISIONS,
    DICTIONARY,
    MOST_DECISIONS,
    MOST_READ,
    MOST_TOKENS,
    PASSES,
    PATCHING,
    SMALL,
    DiffRequest,
)
from forensics.errors import UserError
from forensics.investigation import choose_environment
from forensics.phrases import plural

USED: Final = 0.6  # of the speed of large products
CHARACTERS: Final = 3.5  # a token
FLOAT: Final = 4  # bytes of a number on a CPU
TEMPLATE: Final = 32  # tokens that a chat template adds
SIDE, PRODUCTS = 1024, 2  # of the matrices that are multiplied
BUSY: Final = 1.5  # processes a core that want to run
CONTROLS: Final = 2  # dictionaries that should show nothing


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a decoder: `inside` are the weights of its layers."""

    layers: int
    width: int
    inside: int
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """`operations`: floating-point ones, `None` where they are not known; `done`: by a run
    that is gone on with.
    """

    what: str
    operations: float | None
    done: bool = False


def plan(request: DiffRequest, folder: Path | None, speed: float | None = None) -> list[str]:
    """The steps as sentences. `folder`: one that is gone on with. `speed`:
    operations a second (default: measured now).
    """
    sizes = sizes_of(request.before)
    steps = _steps(request, sizes, folder)
    timed = sizes is not None and request.device in ("auto", "cpu")
    if timed and speed is None:
        speed = speed_now()
    said, total = [], 0.0
    for number, step in enumerate(steps, 1):
        cost = ""
        if step.done:
            cost = " (done)"
        elif timed and speed and step.operations is not None:
            seconds = step.operations / (speed * USED)
            total += seconds
            cost = f" ({about(seconds)})"
        said.append(f"{number}. {step.what}{cost}")
    whole = f", {about(total)} in all where nothing else runs" if total else ""
    load = busy()
    if total and load > BUSY:
        whole += f" (now {load:.0f} processes want each core, so expect more)"
    return [f"Plan{whole}; what is finished is kept, and --resume goes on:", *said]


def about(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.0f} h"


def speed_now() -> float:
    """Floating-point operations a second of a product of matrices, on all cores that
    this process may use, when nothing else runs.
    """
    one = np.ones((SIDE, SIDE), dtype=np.float32)
    one @ one  # threads start
    start = time.process_time()
    for _ in range(PRODUCTS):
        one @ one
    return 2.0 * SIDE**3 * PRODUCTS * cores() / max(time.process_time() - start, 1e-6)


def cores() -> int:
    """That this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    there = os.cpu_count() or 1
    return min(int(asked), there) if asked.isdigit() and int(asked) else there


def busy() -> float:
    """Processes that want to run, for each core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def sizes_of(model: Any) -> Sizes | None:
    """From a directory's `config.json`; `None` where it does not say them."""
    if not isinstance(model, str | PathLike):
        return None
    try:
        stated = json.loads((Path(model).expanduser() / "config.json").read_text())
        text: Mapping[str, Any] = {**stated, **(stated.get("text_config") or {})}
        layers, width = int(text["num_hidden_layers"]), int(text["hidden_size"])
        inner, vocabulary = int(text["intermediate_size"]), int(text["vocab_size"])
        heads = int(text.get("num_attention_heads") or 1)
        shared = int(text.get("num_key_value_heads") or heads)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    attention = 2 * width * width * (1 + shared / heads)
    inside = int(layers * (attention + 3 * width * inner))
    return Sizes(layers=layers, width=width, inside=inside, vocabulary=vocabulary)


def _steps(request: DiffRequest, sizes: Sizes | None, folder: Path | None) -> list[Step]:
    texts, prompt, length = _texts(request)
    small = sizes is not None and sizes.layers <= SMALL
    inside = None if sizes is None else 2.0 * sizes.inside
    head = None if sizes is None else 2.0 * sizes.vocabulary * sizes.width
    tokens = None if texts is None else texts * length
    if not small:  # of texts that are not known yet, the most that is read
        most = max(MOST_READ, request.tokens or 0)
        tokens = most if tokens is None else min(tokens, most)
    decisions = request.decisions
    if decisions is None:
        decisions = MOST_DECISIONS if small else DEEP_DECISIONS
    steps = []
    if request.plays:
        drawn = request.budget.settings.max_turn_tokens
        cost = None
        if texts is not None and inside is not None and head is not None:
            prompts = texts / request.budget.samples  # which are read once for all samples
            cost = prompts * inside * prompt + texts * (inside + head) * drawn
        many = "an unknown number of" if texts is None else f"{texts:,}"
        steps.append(Step(what=f"both models play {many} episodes", operations=cost))
    if decisions:
        cost = None
        if sizes is not None and inside is not None:
            layers = sizes.layers
            number = (6 * (3 * layers + 2) + 10 * layers) / 2 if small else passes(layers)
            cost = number * inside * prompt * decisions
        how = "every site and module" if small else "layers first, then the few places that matter"
        done = folder is not None and (folder / PATCHING).is_file()
        what = f"patch and graft at {plural(decisions, 'decision')}: {how}"
        steps.append(Step(what=what, operations=cost, done=done))
    cost, kept = None, "an unknown size"
    if tokens is not None and sizes is not None and inside is not None:
        cost = tokens * inside  # half of two models
        kept = f"about {tokens * 2 * sizes.width * FLOAT / 1e9:.2g} GB"
    where = f"in {request.activations}" if request.activations else "on disk until it is done"
    what = f"read the activations of both models once ({kept} {where}), and find sinks"
    steps.append(Step(what=what, operations=cost))
    return [*steps, *_dictionaries(request, sizes, folder, tokens, small)]


def _dictionaries(
    request: DiffRequest,
    sizes: Sizes | None,
    folder: Path | None,
    tokens: float | None,
    small: bool,
) -> list[Step]:
    learnt = request.tokens or MOST_TOKENS
    if request.tokens is None and not small and tokens is not None:
        learnt = min(learnt, round(0.6 * PASSES * tokens))
    count = 0 if request.dictionary else request.seeds + CONTROLS * request.controls
    cost = None
    if sizes is not None:
        latents = request.shape.latents or 4 * sizes.width
        row = 12.0 * sizes.width * latents
        cost = learnt * row * (count + (0.5 if request.baselines else 0.0))
    number = count + request.baselines
    many = "1 dictionary" if number == 1 else f"{number} dictionaries"
    what = f"train {many} on {learnt:,} tokens"
    if count:
        what += f", the pair's from {plural(request.seeds, 'seed')}"
    done = folder is not None and (folder / DICTIONARY / "cfg.json").is_file()
    told = Step(what="tell what they found on other tasks", operations=None)
    if not count and not request.baselines:
        return [told]
    return [Step(what=what, operations=cost, done=done), told]


def _texts(request: DiffRequest) -> tuple[int | None, float, float]:
    """How many texts there will be, tokens of a prompt, tokens of a text."""
    drawn = float(request.budget.settings.max_turn_tokens)
    if not request.plays:
        return None, 64.0, 64.0 + drawn
    try:
        world, _ = choose_environment(request.before, request.environment, request.options)
        tasks = world.tasks("held-out", request.budget.tasks, request.seed)
        seen = world.spawn().reset(tasks[0], request.seed)
    except (UserError, IndexError):
        return None, 64.0, 64.0 + drawn  # said by the check that follows
    prompt = TEMPLATE + len(seen.text + (seen.system or "")) / CHARACTERS
    return 2 * len(tasks) * request.budget.samples, prompt, prompt + drawn
