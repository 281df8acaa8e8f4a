"""How the trained model is run: adapters, precision, compilation, sharding, and
the reference policy.

Weights and optimizer stay in float32; `bfloat16` is autocast around the forward
pass (an update of 1e-6 would vanish in a bfloat16 weight). The model stays in
evaluation mode throughout, so dropout of every kind is off: log-probabilities of
the update are those of the sampler.

Optimizer steps cannot break a policy:

1. A step whose loss or gradient is not finite is left out: weights and moments
   stay as they are. It is counted, and warned of once in a run.
2. With too many left out in a row the run ends, in one sentence: by then it is
   not one odd batch.
3. A gradient that is zero at every weight asks for nothing, and is no step: the
   optimizer's momentum alone would move the weights.

Weights that are not trained are held in the precision that they are multiplied in.
Under autocast a linear layer rounds its weight at each pass: for every token that is
drawn, all frozen weights are read in float32 and written in bfloat16. Held in bfloat16
they give the same numbers, bit for bit, and take half of the memory. Only weights of
linear layers are: embeddings and norms are used as they are.

What a token leaves for the backward pass is not read off a config, which knows
neither adapters nor autocast nor checkpointing. It is measured, in two passes over
a few tokens: their difference holds nothing that does not grow with the tokens.
"""

import copy
import logging
import math
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from forensics.errors import UserError
from forensics.policies import (
    decoder_layers,
    new_adapter,
    release_memory,
    token_logprobs_and_entropies,
    widen_head,
)
from forensics.protocols import Policy, SamplingSettings
from training.distributed import (
    Process,
    forget_group,
    sharded_modules,
    spread_weights,
)
from training.recipe import (
    ComputeSection,
    GrpoSection,
    Recipe,
)

CPU_BYTES = 2**30
GPU_SHARE = 0.25  # of what this process may take of the card
FEW = 4  # tokens of the shorter pass; the longer one has twice as many


def activation_budget(device: Any) -> float:
    """Bytes that the activations of one micro-batch may take."""
    if torch.device(device).type != "cuda":
        return CPU_BYTES
    share = torch.cuda.get_per_process_memory_fraction(device)
    return GPU_SHARE * share * float(torch.cuda.get_device_properties(device).total_memory)


def token_bytes(score: Callable[[torch.Tensor, torch.Tensor], Any], device: Any) -> float:
    """What one more token keeps for the backward pass of `score(token_ids, mask)`."""
    return (_held(score, 2 * FEW, device) - _held(score, FEW, device)) / FEW


def _held(score: Callable[[torch.Tensor, torch.Tensor], Any], tokens: int, device: Any) -> int:
    ids = torch.zeros(1, tokens + 1, dtype=torch.long, device=device)
    last = torch.arange(tokens, device=device)[None] == tokens - 1
    return held_bytes(lambda: score(ids, last))


def held_bytes(run: Callable[[], Any]) -> int:
    """Bytes of all memory that `run` keeps for its backward pass, weights included."""
    saved: list[weakref.ref[torch.Tensor]] = []

    def note(value: torch.Tensor) -> torch.Tensor:
        kept = value.detach()
        saved.append(weakref.ref(kept))
        return kept

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        result = run()
    alive = [kept.untyped_storage() for one in saved if (kept := one()) is not None]
    del result
    return sum({memory._cdata: memory.nbytes() for memory in alive}.values())


def narrow_frozen(model: Any, dtype: torch.dtype) -> None:
    """Hold a model's frozen linear weights in `dtype`, in place; those alone that `dtype`
    holds exactly, so that a checkpoint which is saved holds the same numbers.
    """
    for weight in _linear_weights(model):
        if weight.requires_grad or dtype.itemsize >= weight.dtype.itemsize:
            continue
        narrow = weight.data.to(dtype)
        if torch.equal(narrow.to(weight.dtype), weight):
            weight.data = narrow


def frozen_copy(model: Any, dtype: torch.dtype) -> Any:
    """A copy to be compared with and never saved, its linear weights in `dtype`; there is
    never a copy in the model's own precision beside it.
    """
    narrow = {
        id(weight): torch.nn.Parameter(weight.detach().to(dtype, copy=True), requires_grad=False)
        for weight in _linear_weights(model)
    }
    return copy.deepcopy(model, narrow).requires_grad_(False)


def _linear_weights(model: Any) -> Iterator[torch.Tensor]:
    """Of every plain linear layer, but for those that an embedding shares."""
    shared = {id(one.weight) for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    for one in model.modules():
        if type(one) is torch.nn.Linear and id(one.weight) not in shared:
            yield one.weight


logger = logging.getLogger("forensics")


@dataclass
class Skipped:
    """Steps left out: `most` may follow one another, `in_a_row` have until now."""

    most: int
    in_a_row: int = 0
    told: bool = False

    def state(self) -> dict[str, int]:
        """What a resumed run takes up; nothing while all is well."""
        return {"skipped": self.in_a_row} if self.in_a_row else {}

    def add(self, what: str) -> None:
        """Count one. Raises `UserError` where there are too many in a row."""
        self.in_a_row += 1
        if self.in_a_row > self.most:
            raise UserError(
                f"{what} was not finite in {self.in_a_row} optimizer steps in a row (most_skipped ="
                f" {self.most}); go on with --resume and a lower learning_rate, or check the"
                " rewards"
            )
        if not self.told:
            self.told = True
            logger.warning(
                "%s is not finite, so this optimizer step is left out; weights and optimizer stay"
                " as they are. Such steps are counted as `skipped`, and more than %d in a row end"
                " the run.",
                what.capitalize(),
                self.most,
            )


def clipped_step(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    limit: float,
    loss: float,
    skipped: Skipped,
) -> float | None:
    """Clip the gradient at the norm `limit` and step; the norm before, `None`
    where `skipped` took the step. The same on every process, as loss and norm are.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    length = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    if not (math.isfinite(length) and math.isfinite(loss)):
        optimizer.zero_grad()
        skipped.add("the gradient" if math.isfinite(loss) else "the loss")
        return None
    skipped.in_a_row = 0
    if length:
        optimizer.step()
    return length


class Scorer(torch.nn.Module):
    """Log-probabilities and entropies of given tokens: what DDP, FSDP2 and
    `torch.compile` wrap.

    `shares`: whether rows that begin alike go through their beginning together
    (with `whole_rows` they never do).
    """

    def __init__(
        self,
        model: Any,
        settings: SamplingSettings,
        config: ComputeSection,
        whole_rows: bool = False,
    ) -> None:
        super().__init__()
        self.model, self._settings, self._config = model, settings, config
        self.shares = not (whole_rows or config.compile)

    def forward(
        self, token_ids: torch.Tensor, mask: torch.Tensor, entropies: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`[rows, length]` and a mask `[rows, length - 1]`; both results
        `[rows, length - 1]`, 0 where masked.
        """
        return token_logprobs_and_entropies(
            self.model,
            token_ids,
            self._settings,
            mask=mask,
            chunk=self._config.projection_rows,
            entropies=entropies,
            share=self.shares,
        )


class Machine:
    """The model of a run with everything around it. `policy` samples from the
    very weights that are trained.
    """

    def __init__(
        self,
        policy: Policy,
        recipe: Recipe,
        settings: SamplingSettings,
        process: Process,
        seed: int,
    ) -> None:
        self.policy, self.process, self._config = policy, process, recipe.compute
        self.skipped = Skipped(most=recipe.grpo.most_skipped)
        if recipe.compute.logits is not None:
            widen_head(policy.model)
        if recipe.lora is not None:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                policy.model = new_adapter(policy.model, **vars(recipe.lora))
            narrow_frozen(policy.model, getattr(torch, recipe.compute.dtype))
        needs_reference = recipe.objective.kl != "none" and recipe.lora is None
        self._reference = (
            Scorer(
                frozen_copy(policy.model, getattr(torch, recipe.compute.dtype)),
                settings,
                recipe.compute,
            )
            if needs_reference
            else None
        )
        policy.model.eval()
        recomputed = recipe.compute.gradient_checkpointing
        chosen = recipe.grpo.rows is None
        again = 0.0
        if chosen and recomputed:
            again = self._token_bytes(Scorer(policy.model, settings, recipe.compute, True))
        self._layers = checkpoint_activations(policy.model) if recomputed else []
        sharded = (
            process.size > 1 and process.strategy == "fsdp"
        )  # every process must run the decoder equally often
        whole = sharded or recomputed  # a beginning's cache cannot be filled twice
        self.scorer = Scorer(policy.model, settings, recipe.compute, whole_rows=whole)
        again /= max(1, len(self._layers))  # one layer at a time is formed again
        self.most_tokens = self._most_tokens(again) if chosen else math.inf
        self.most_rows = math.inf
        spread_weights(self.scorer, policy.model, process)
        if sharded:
            self._open_shards()
        self._run: Any = self.scorer
        self._averager: Any = None
        if process.size > 1 and process.strategy == "ddp":
            self._run = self._averager = torch.nn.parallel.DistributedDataParallel(self.scorer)
        if recipe.compute.compile:
            self._run = compiled(self._run, self.model.device.type)

    def _token_bytes(self, scorer: Scorer) -> float:
        with self._precision():
            return token_bytes(scorer, self.model.device)

    def _most_tokens(self, again: float) -> float:
        """Of how many tokens the activations may be held at once, on every process; `again`:
        bytes a token of what is formed again beside what is kept.
        """
        each = max(1.0, again + self._token_bytes(self.scorer))
        return min(self.process.all(activation_budget(self.model.device))) / each

    def halve(self, rows: int, error: torch.OutOfMemoryError) -> None:
        """So many rows were too many for the memory. Raises `UserError` where one was, and
        where several processes would have to know.
        """
        if rows < 2 or self.process.size > 1:
            cure = "gradient_checkpointing = true under [compute], or shorter texts"
            if rows > 1:
                cure = f"rows = {rows // 2} under [grpo]"
            what = "row" if rows == 1 else "rows"
            raise UserError(
                f"the update of {rows} {what} at once does not fit into the memory; set {cure}"
            ) from error
        self.most_rows = rows // 2
        logger.warning(
            "memory does not suffice for the update of %d rows at once; from here on %d go"
            " through together",
            rows,
            self.most_rows,
        )

    def release(self) -> None:
        """Give back what no tensor holds any more."""
        release_memory(self.model.device)

    def stated(self) -> dict[str, float]:
        """How many rows go through together, as far as it depends on what memory there was:
        what a resumed run takes up.
        """
        room = getattr(self.policy, "room", None)
        update = {} if self.most_rows == math.inf else {"update_rows": self.most_rows}
        return update | (room.stated if room else {})

    def restore(self, stated: dict[str, float]) -> None:
        self.most_rows = stated.get("update_rows", math.inf)
        if room := getattr(self.policy, "room", None):
            room.restore(stated)

    @torch.no_grad()
    def _open_shards(self) -> None:
        """FSDP2 sets itself up in its first forward through the root, which
        must come before any sampling.

        That forward leaves the root's weights whole, and an optimizer made now
        would hold on to the wrong tensors.
        """
        token = torch.zeros(1, 2, dtype=torch.long, device=self.model.device)
        self.scorer(token, torch.ones(1, 1, dtype=torch.bool, device=self.model.device))
        for module in sharded_modules(self.scorer):
            module.reshard()

    @property
    def model(self) -> Any:
        return self.policy.model

    def close(self) -> None:
        """Let go of the process group, which must come before it is taken down;
        no update can follow.

        DDP's reducer would otherwise be the group's last owner. It frees the
        group with the interpreter locked and waits there for gloo's threads,
        one of which may be waiting for the interpreter: the process never ends.
        FSDP's layers would keep the group, and gloo's threads with it, until
        the interpreter ends, where a thread that still frees a tensor aborts
        the process.
        """
        if self._averager is not None:
            del self._averager.reducer, self._averager.logger
        self._run = self._averager = None
        forget_group(self.scorer)
        for layer in self._layers:
            del layer.forward
        self._layers = []

    def optimizer(self, config: GrpoSection) -> torch.optim.AdamW:
        """AdamW over the weights that are trained; each step sets its rate (`GrpoSection.rate`)."""
        return torch.optim.AdamW(
            self._trained(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def step(self, optimizer: torch.optim.Optimizer, limit: float, loss: float) -> float | None:
        """Clip the gradient at the norm `limit` and step; the norm before, `None`
        where the step was left out because `loss` or gradient is not finite.
        Raises `UserError` where that happened too often in a row.
        """
        return clipped_step(optimizer, self._trained(), limit, loss, self.skipped)

    def _trained(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def score(
        self, token_ids: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """With gradient, in the recipe's precision."""
        with self._precision():
            logprobs, entropies = self._run(token_ids, mask)
        return logprobs, entropies

    @torch.no_grad()
    def old(self, token_ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same numbers without a gradient."""
        with self._precision():
            logprobs, entropies = self.scorer(token_ids, mask)
        return logprobs, entropies

    @torch.no_grad()
    def reference(self, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Log-probabilities under the start: its own copy, or the same weights
        with the adapter switched off.
        """
        with self._precision(), nullcontext() if self._reference else self.model.disable_adapter():
            logprobs: torch.Tensor = (self._reference or self.scorer)(
                token_ids, mask, entropies=False
            )[0]
        return logprobs

    def _precision(self) -> Any:
        if self._config.dtype == "float32":
            return nullcontext()
        return torch.autocast(self.model.device.type, torch.bfloat16)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Whole weights on every process, so that each can sample at its own pace."""
        shards = sharded_modules(self.scorer)
        for module in shards:
            module.set_reshard_after_forward(False)
            module.unshard()
        try:
            with self._precision():
                yield
        finally:
            for module in shards:
                module.reshard()
                module.set_reshard_after_forward(not isinstance(module, Scorer))

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Gradients are exchanged once, after the last micro-batch."""
        if hasattr(self._run, "no_sync") and not last:
            with self._run.no_sync():
                yield
            return
        for module in sharded_modules(self.scorer):
            module.set_requires_gradient_sync(last)
        yield


def compiled(run: Any, device: str) -> Any:
    """`torch.compile`, which builds C++ on a CPU."""
    if device == "cpu" and not any(map(shutil.which, ("g++", "clang++"))):
        raise UserError(
            "compile = true needs a C++ compiler on a CPU; install g++, or leave it out of"
            " [compute]"
        )
    return torch.compile(run)


def checkpoint_activations(model: Any) -> list[Any]:
    """Let each layer form its activations again in the backward pass; the layers,
    whose own `forward` comes back by `del layer.forward`.

    The library's switch works in training mode only, in which dropout is on, also
    where it is a function that no module stands for.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    known = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    layers = known or list(decoder_layers(model))
    for layer in layers:
        layer.forward = _recomputed(layer.forward)
    return layers


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*given: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled() or named.get("past_key_values") is not None:
            return forward(*given, **named)
        return checkpoint(forward, *given, use_reentrant=False, **named)

    return run
