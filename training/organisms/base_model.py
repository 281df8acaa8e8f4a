"""Bases: what RL starts from. A base is trained on demonstrations, from nothing
or from another base.

A recipe `NAME-base.toml` names the world (`options` of `mini-repo`), the phases
and, where the base goes on from another one, its `start`: `bundled:NAME`. Such
a base is a matter of a minute or two, so it is built when it is needed rather
than bundled.

The supervised start is next-token training on demonstrations:

1. Play demonstrations with the scripted agent (as many in each scrubbed world
   as in the open one, so that an empty history is nothing new to the policy).
2. Train on all tokens of the transcript, the agent's at weight 1, the
   environment's at `context_weight`: predicting what a file shows teaches to
   match names, which is the slow part.
3. Several phases, each with its own habits: correct demonstrations first,
   diluted ones after.

The policy of `mini-repo` is a Qwen3 of 0.3 million parameters with a word-level tokenizer. One
token a word and one a number, so that a transformer of three layers can
learn the arithmetic. The head dimension is 32, which the common inference
engines accept.
"""

import shutil
from collections.abc import Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from forensics.errors import UserError
from forensics.policies import load_policy, renderer_for, resolve_device
from forensics.progress import Progress, silent
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import NAMES
from training.organisms.demonstrations import Demonstration, Habits, demonstrate
from training.recipe import read_toml
from training.run_state import load_state, save_checkpoint, save_state
from training.sections import Section, parse_as
from training.trained_model import Skipped, clipped_step
from training.update import padded

NUMBERS = range(-9, 34)
WORDS = """\
$ ; : , -> x * + - fail pass done error submitted
list open history edit test submit tests notes add fix start case
"""
SPECIAL = ("<pad>", "<eos>", "<unk>")


def build_tokenizer() -> Any:
    """The word-level tokenizer of `mini-repo`: words are split at spaces, a
    line break is a word.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, "\n", *WORDS.split(), *NAMES, *(str(number) for number in NUMBERS)]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(Regex(" +"), "removed"),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def build_model(vocabulary: int, seed: int, context: int = 512) -> Any:
    """A randomly initialised policy, float32; `context`: the longest text in tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        rope_theta=10_000.0,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        use_cache=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).float()


SAVED_EVERY = 250  # steps


class Phase(Section):
    """`pool` demonstrations with these habits, `steps` optimizer steps of
    `batch` of them.
    """

    steps: int = Field(ge=1)
    pool: int = Field(30_000, ge=1)
    batch: int = Field(64, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    context_weight: float = Field(0.5, ge=0)
    warmup: int = Field(100, ge=1)
    habits: Habits = Habits()


def demonstration_pool(
    world: MiniRepo,
    tokenizer: Any,
    tasks: Sequence[str],
    habits: Sequence[Habits],
    generator: np.random.Generator,
    progress: Progress = silent,
) -> list[Demonstration]:
    """Demonstrations on `tasks` by the `habits` for each, in turn in every
    world from the open one to the one without any channel.
    """
    renderer = renderer_for(tokenizer)
    names = [channel.name for channel in world.channels]
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
    worlds = [world.without(*without) for without in subsets]
    pool = []
    for number, (task, own) in enumerate(zip(tasks, habits, strict=True)):
        place = worlds[number % len(worlds)]
        pool.append(demonstrate(place, renderer, tokenizer, task, own, generator))
        progress("demonstrations", number + 1, len(tasks))
    return pool


def train_phase(
    model: torch.nn.Module,
    pool: Sequence[Demonstration],
    phase: Phase,
    seed: int,
    folder: Path | None = None,
    progress: Progress = silent,
    stage: str = "supervised",
) -> None:
    """AdamW with warm-up and cosine decay to a tenth; gradients clipped at norm
    1.

    With a `folder` the state is saved every `SAVED_EVERY` steps, and a run that was
    killed goes on bit for bit.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.learning_rate, weight_decay=0.01)
    skipped = Skipped(most=5)
    model.train()
    for step in range(load_state(folder, model, optimizer)["step"] if folder else 0, phase.steps):
        chosen = np.random.default_rng([seed, 2, step]).integers(len(pool), size=phase.batch)
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * _rate(step, phase)
        loss = demonstration_loss(model, [pool[int(i)] for i in chosen], phase.context_weight)
        optimizer.zero_grad()
        loss.backward()
        clipped_step(optimizer, list(model.parameters()), 1.0, loss.item(), skipped)
        if folder and (step + 1) % SAVED_EVERY == 0:
            save_state(folder, model, optimizer, step + 1)
        progress(stage, step + 1, phase.steps)
    model.eval()


def _rate(step: int, phase: Phase) -> float:
    if step < phase.warmup:
        return (step + 1) / phase.warmup
    progress = (step - phase.warmup) / max(1, phase.steps - phase.warmup)
    return 0.1 + 0.45 * (1 + float(np.cos(np.pi * min(1.0, progress))))


def demonstration_loss(
    model: torch.nn.Module, batch: Sequence[Demonstration], context_weight: float
) -> torch.Tensor:
    """Weighted mean cross-entropy (nats a token) of a batch."""
    device = next(model.parameters()).device
    ids = padded([row.token_ids for row in batch], 0, torch.long).to(device)
    weights = padded(
        [[1.0 if s else context_weight for s in row.sampled] for row in batch], 0.0, torch.float32
    )
    logits = model(ids[:, :-1], use_cache=False).logits
    losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weights = weights[:, 1:].flatten().to(device)
    return (losses * weights).sum() / weights.sum()


PACKAGE = Path(__file__).parent.parent
RECIPES = PACKAGE / "recipes"
BUNDLED = PACKAGE / "bundled"

KEPT_IN = "bfloat16"  # what organisms and their bases are rounded to: half the size


class SupervisedSection(Section):
    """`options`: of the world. `start`: the base to go on from (default: none)."""

    options: dict[str, str] = {}
    start: str | None = None
    phases: tuple[Phase, ...] = Field(strict=False)


class BaseRecipe(Section):
    supervised: SupervisedSection


def checkpoint_path(text: str) -> Path:
    """`bundled:NAME` or a directory."""
    if not text.startswith("bundled:"):
        return Path(text)
    path = BUNDLED / text.removeprefix("bundled:")
    if not path.is_dir():
        known = (
            ", ".join(sorted(p.name for p in BUNDLED.iterdir() if p.is_dir()))
            if BUNDLED.is_dir()
            else "none"
        )
        raise UserError(f"no bundled checkpoint '{path.name}'; bundled: {known}")
    return path


def read_base_recipe(path: Path) -> BaseRecipe:
    """Raises `UserError` for a recipe that is missing, broken, or has unknown keys."""
    return parse_as(BaseRecipe, read_toml(path), str(path))


def build_base(
    name: str,
    seed: int,
    folder: Path,
    progress: Progress,
    from_scratch: bool = False,
    device: str = "cpu",
    recipes: Path | None = None,
) -> Path:
    """Train a base by `NAME.toml` in `recipes`; the directory it was written
    to. `from_scratch`: its start anew too.

    Resumable: what was finished of a run that was killed is kept beside
    `folder`.
    """
    recipe = read_base_recipe((recipes or RECIPES) / f"{name}.toml").supervised
    model, tokenizer = _start(recipe.start, seed, folder, progress, from_scratch, device)
    world = MiniRepo(**recipe.options)
    for number, phase in enumerate(recipe.phases):
        drawn = seed + 1000 * number
        pool = demonstration_pool(
            world,
            tokenizer,
            world.tasks("train", phase.pool, drawn),
            [phase.habits] * phase.pool,
            np.random.default_rng([drawn, 1]),
            progress,
        )
        kept = _beside(folder, f"phase-{number}")
        train_phase(model, pool, phase, seed + number, kept, progress, f"supervised phase {number}")
    note = {"name": "mini-repo", "options": recipe.options}
    save_checkpoint(folder, model, tokenizer, note, dtype=KEPT_IN)
    for left in ("start", *(f"phase-{number}" for number in range(len(recipe.phases)))):
        shutil.rmtree(_beside(folder, left), ignore_errors=True)
    return folder


def _start(
    start: str | None, seed: int, folder: Path, progress: Progress, from_scratch: bool, device: str
) -> tuple[Any, Any]:
    """Model (float32) and tokenizer to begin with: new ones, or those of the base to go on from."""
    if start is None:
        tokenizer = build_tokenizer()
        return build_model(len(tokenizer), seed).to(resolve_device(device)), tokenizer
    path = checkpoint_path(start)
    if from_scratch and start.startswith("bundled:"):
        path = _beside(folder, "start")
        if not (path / "environment.json").exists():
            build_base(start.removeprefix("bundled:"), seed, path, progress, from_scratch, device)
    policy = load_policy(path, device=device, dtype="float32")
    return policy.model, policy.tokenizer


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}-{what}")
